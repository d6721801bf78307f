# SPDX-License-Identifier: Apache-2.0
"""What the two cells of a rank say: the host's requests, and how the offload worker is doing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from headrace.offload import _untrusted as claims
from headrace.offload.exchange._machine import UNKNOWN, Process, is_gone
from headrace.offload.exchange._names import VERSION, BatchName, Stretch

State: TypeAlias = Literal["working", "waiting", "full", "refused", "trouble", "ended"]
Energy: TypeAlias = Literal["counter", "model", "none"]

MAX_STRETCHES = 8
_MAX_EPOCH = 2**32 - 1
_MAX_POSITION = 2**48
_MAX_PROCESS = 2**31 - 1
_MAX_COUNT = 2**20


@dataclass(frozen=True, slots=True)
class HostRequest:
    """What a host says in its cell."""

    session: str
    beat: int
    process: Process
    stretches: tuple[Stretch, ...] = ()
    closed: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "session": self.session,
            "beat": self.beat,
            "process": list(self.process),
            "stretches": [list(stretch) for stretch in self.stretches],
            "closed": self.closed,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> HostRequest:
        """Read what a host says; ValueError if it is of another version or makes no sense."""
        check_version(document)
        stretches = document.get("stretches")
        if not isinstance(stretches, list) or len(stretches) > MAX_STRETCHES:
            raise ValueError(f"stretches must be a list of at most {MAX_STRETCHES}; found {claims.briefly(stretches)}")
        closed = document.get("closed")
        if not isinstance(closed, bool):
            raise ValueError(f"closed must be true or false; found {claims.briefly(closed)}")
        return cls(
            session=claims.token("session", document.get("session")),
            beat=claims.integer("beat", document.get("beat")),
            process=_process(document.get("process")),
            stretches=tuple(Stretch(*_stretch(numbers)) for numbers in stretches),
            closed=closed,
        )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What an offload worker says in the cell of a rank."""

    session: str
    """The host's that it works for."""
    worker: str
    """A random name of the process."""
    beat: int
    """Rises at least every half second while the process lives."""
    state: State
    reason: str = ""
    """Why it refuses, or what its trouble is."""
    marks: tuple[tuple[int, int, int, int, int], ...] = ()
    """Epoch, start, stop, mark and top: of this stretch, all batches from the mark up to the top are published."""
    batches: int = 0
    """Published for this rank."""
    busy_seconds: float = 0.0
    """How long it had something to do for this rank, other ranks' turns included."""
    seconds_a_batch: float | None = None
    """Of the last few batches, as this rank sees it: throttling and other ranks' turns are in it, waiting is not."""
    ahead_bytes: int = 0
    """How many bytes of this rank's batches may lie unread."""
    held_bytes: int = 0
    """How many do."""
    ranks: int = 1
    """Ranks that share the offload worker at present."""
    threads: int = 1
    cpu_share: float = 1.0
    """Of each of the threads' cores."""
    cpu_seconds: float = 0.0
    """Of the whole process, as all that follows."""
    peak_bytes: int = 0
    mean_bytes: float = 0.0
    written_bytes: int = 0
    read_bytes: int = 0
    joules: float | None = None
    energy: Energy = "none"
    """Where the joules are from: a counter of the machine's, stated watts, or there are none."""
    process: Process = UNKNOWN

    @property
    def machine(self) -> str:
        return self.process.machine

    @property
    def is_vacant(self) -> bool:
        """Whether another offload worker may take the rank over at once."""
        return self.state in ("ended", "refused") or is_gone(self.process)

    def published(self, name: BatchName) -> bool:
        """Whether a batch that the host still wants is there to be read."""
        stretch = (name.epoch, name.start, name.stop)
        return any(mark[:3] == stretch and mark[3] <= name.number < mark[4] for mark in self.marks)

    def to_json(self) -> dict[str, Any]:
        members = {name: getattr(self, name) for name in _MEMBERS}
        return {"version": VERSION, **members, "reason": claims.printable(self.reason)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Heartbeat | None:
        """Read what an offload worker says; None if none has come yet, ValueError if it makes no sense."""
        check_version(document)
        if document.get("worker") is None:
            return None
        members: dict[str, Any] = {"process": _process(document.get("process")), "marks": _marks(document.get("marks"))}
        for name, value in document.items():
            check = _CHECKS.get(name)
            if check is not None:
                members[name] = check(name, value)
        missing = [name for name in _REQUIRED if name not in members]
        if missing:
            raise ValueError(f"the offload worker's cell has no {missing[0]!r}")
        return cls(**members)


_MEMBERS = tuple(field.name for field in fields(Heartbeat))

NOBODY: dict[str, Any] = {"version": VERSION, "worker": None}
"""What the offload worker's cell says before one has come."""


def _process(members: Any) -> Process:
    if not isinstance(members, list) or len(members) != 3:
        raise ValueError(f"process must be a list of three members; found {claims.briefly(members)}")
    machine, number, started = members
    return Process(
        claims.text("process", machine),
        claims.integer("process", number, 0, _MAX_PROCESS),
        claims.integer("process", started),
    )


def _stretch(numbers: Any) -> tuple[int, int, int, int, int]:
    """Check five numbers: epoch, start and stop in it, and two numbers of batches, the smaller one first."""
    if not isinstance(numbers, list) or len(numbers) != 5:
        raise ValueError(f"a stretch must be a list of five numbers; found {claims.briefly(numbers)}")
    epoch = claims.integer("epoch", numbers[0], 0, _MAX_EPOCH)
    start, stop, low, high = (claims.integer("stretch", each, 0, _MAX_POSITION) for each in numbers[1:])
    if start > stop or low > high:
        raise ValueError(f"a stretch must not end before it starts; found {numbers}")
    return epoch, start, stop, low, high


def _marks(marks: Any) -> tuple[tuple[int, int, int, int, int], ...]:
    if not isinstance(marks, list) or len(marks) > MAX_STRETCHES:
        raise ValueError(f"marks must be a list of at most {MAX_STRETCHES}; found {claims.briefly(marks)}")
    return tuple(map(_stretch, marks))


def _choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; found {claims.briefly(value)}")
    return value


def _bytes(name: str, value: Any) -> float:
    return claims.number(name, value, float(claims.MAX_INTEGER))


def _optional(name: str, value: Any) -> float | None:
    return None if value is None else claims.number(name, value)


def _count(name: str, value: Any) -> int:
    return claims.integer(name, value, 0, _MAX_COUNT)


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("session", "worker"), claims.token),
    "state": lambda name, value: _choice(name, value, get_args(State)),
    "energy": lambda name, value: _choice(name, value, get_args(Energy)),
    "reason": claims.text,
    **dict.fromkeys(("beat", "batches", "ahead_bytes", "held_bytes", "written_bytes", "read_bytes"), claims.integer),
    "peak_bytes": claims.integer,
    "mean_bytes": _bytes,
    **dict.fromkeys(("ranks", "threads"), _count),
    **dict.fromkeys(("busy_seconds", "cpu_seconds", "cpu_share"), claims.number),
    **dict.fromkeys(("seconds_a_batch", "joules"), _optional),
}
_REQUIRED = ("session", "worker", "beat", "state")


def check_version(document: dict[str, Any]) -> None:
    if document.get("version") != VERSION:
        raise ValueError(
            f"the exchange has version {claims.briefly(document.get('version'))} and this Headrace knows {VERSION}: "
            f"use the same Headrace on both sides"
        )
