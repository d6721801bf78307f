# SPDX-License-Identifier: Apache-2.0
"""What the two cells of a rank say: the host's wishes, and how the near worker is doing."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from headrace.prongs._exchange import VERSION, BatchName, Stretch
from headrace.prongs._exchange_machine import UNKNOWN, Process, is_gone

State: TypeAlias = Literal["working", "waiting", "full", "refused", "trouble", "ended"]
Energy: TypeAlias = Literal["counter", "model", "none"]

MOST_STRETCHES = 8
_MOST_REASON = 300  # characters, of four bytes at most: all of it must fit a cell


@dataclass(frozen=True, slots=True)
class Wish:
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
    def from_json(cls, document: dict[str, Any]) -> Wish:
        """Read what a host says; ValueError if it is of another version or makes no sense."""
        check_version(document)
        try:
            stretches = tuple(Stretch(*map(operator.index, numbers)) for numbers in document["stretches"])
            return cls(
                session=str(document["session"]),
                beat=operator.index(document["beat"]),
                process=_process(document["process"]),
                stretches=stretches,
                closed=bool(document["closed"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the host's cell makes no sense: {error!r}") from None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a near worker says in the cell of a rank."""

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
    """Ranks that share the near worker at present."""
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
        """Whether another near worker may take the rank over at once."""
        return self.state in ("ended", "refused") or is_gone(self.process)

    def published(self, name: BatchName) -> bool:
        """Whether a batch that the host still wants is there to be read."""
        stretch = (name.epoch, name.start, name.stop)
        return any(mark[:3] == stretch and mark[3] <= name.number < mark[4] for mark in self.marks)

    def to_json(self) -> dict[str, Any]:
        members = {name: getattr(self, name) for name in _MEMBERS}
        return {"version": VERSION, **members, "reason": self.reason[:_MOST_REASON]}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Heartbeat | None:
        """Read what a near worker says; None if none has come yet, ValueError if it makes no sense."""
        check_version(document)
        if document.get("worker") is None:
            return None
        members = {name: value for name, value in document.items() if name in _MEMBERS}
        try:
            members["marks"] = tuple(tuple(map(operator.index, mark)) for mark in members["marks"])
            members["process"] = _process(members["process"])
            beat = cls(**members)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the near worker's cell makes no sense: {error!r}") from None
        if beat.state not in get_args(State):
            raise ValueError(f"the near worker's state is {beat.state!r}")
        return beat


_MEMBERS = tuple(field.name for field in fields(Heartbeat))

NOBODY: dict[str, Any] = {"version": VERSION, "worker": None}
"""What the near worker's cell says before one has come."""


def _process(members: Any) -> Process:
    machine, number, started = members
    return Process(str(machine), operator.index(number), operator.index(started))


def check_version(document: dict[str, Any]) -> None:
    if document.get("version") != VERSION:
        raise ValueError(
            f"the exchange has version {document.get('version')!r} and this Headrace knows {VERSION}: "
            f"use the same Headrace on both sides"
        )
