# SPDX-License-Identifier: Apache-2.0
"""What hosts and offload workers write about themselves: names, requests and heartbeats (spec/exchange.md).

EXCHANGE/
  RUN/                          one training
    plan-EPOCH.json             written by rank 0, read by the others
    rank-RANK/                  one loader; everything below is created and removed with this folder
      recipe.json  rows.npy     what to prepare; written once, before `host`
      host                      a cell that the host writes and the offload worker reads
      near                      a cell that the offload worker writes and the host reads
      EPOCH-START-STOP-NUMBER.safetensors

Nothing here opens a file of an exchange. Everything read from one may be forged: the checks in this file raise
ValueError, and nothing else, for a value of the wrong type or out of range.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from headrace.errors import ExchangeError
from headrace.terminal import printable

VERSION = 1
RECIPE = "recipe.json"
ROWS = "rows.npy"
HOST_CELL = "host"
WORKER_CELL = "near"
SUFFIX = ".safetensors"
TEMPORARY = ".tmp"

BEAT_SECONDS = 0.5
"""How often both sides write a heartbeat."""
SILENT_SECONDS = 3.0
"""The host treats an offload worker without a heartbeat for this long as dead or frozen."""
TAKEOVER_SECONDS = 5.0
"""Another offload worker takes a rank over after this long without a heartbeat."""
ABANDONED_SECONDS = 60.0
"""The offload worker removes the files of a host without a heartbeat for this long."""

MAX_STRETCHES = 8
MAX_INTEGER = 2**63 - 1
"""Larger numbers fit neither a file size nor a NumPy array, and a float cannot hold all of them."""
MAX_SECONDS = 1e9
MAX_TEXT = 300
_MAX_EPOCH = 2**32 - 1
_MAX_POSITION = 2**48
_MAX_PROCESS = 2**31 - 1
_MAX_COUNT = 2**20

# Exceptions, beside OSError, that code may raise when it takes untrusted values apart.
MALFORMED = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)

State: TypeAlias = Literal["working", "waiting", "full", "refused", "trouble", "ended"]
Energy: TypeAlias = Literal["counter", "model", "none"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_RANK = re.compile(r"rank-(0|[1-9][0-9]{0,8})")
_BATCH = re.compile(r"([0-9]{1,10})-([0-9]{1,15})-([0-9]{1,15})-([0-9]{1,15})\.safetensors")


# Names of batches and files.


class BatchName(NamedTuple):
    """One of the batches into which positions `start` to `stop` of a rank's epoch are divided."""

    epoch: int
    rank: int
    start: int
    stop: int
    number: int
    """Counted from `start`."""


class Stretch(NamedTuple):
    """The batches that a host wants from a stretch of its epoch: numbers in [bottom, top).

    The offload worker makes `top` - 1 first. A host lowers `top` below each batch that it has read or makes itself.
    """

    epoch: int
    start: int
    stop: int
    bottom: int
    top: int


class Origin(NamedTuple):
    """Which run, session and recipe a prepared batch belongs to."""

    run: str
    session: str
    recipe: str
    """Digest of the recipe's file."""


def run_folder(exchange: Path, run: str) -> Path:
    if not is_run(run):
        raise ExchangeError(f"the name of a run must be 1 to 64 letters, digits, '-' and '_'; got {run!r}")
    return exchange / run


def rank_folder(exchange: Path, run: str, rank: int) -> Path:
    return run_folder(exchange, run) / f"rank-{rank}"


def is_run(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def rank_of(name: str) -> int | None:
    """Return the rank from a folder's name, or None."""
    match = _RANK.fullmatch(name)
    return None if match is None else int(match[1])


def batch_of(file: str, rank: int) -> BatchName | None:
    """Return the batch from a file's name, or None."""
    match = _BATCH.fullmatch(file)
    return None if match is None else BatchName(int(match[1]), rank, *(int(match[at]) for at in (2, 3, 4)))


def plan_file(epoch: int) -> str:
    return f"plan-{epoch}.json"


def digest(content: bytes) -> str:
    """Return the digest that identifies a recipe."""
    return blake2b(content, digest_size=16).hexdigest()


def new_token() -> str:
    """Return a new random name for a process or a session."""
    return os.urandom(8).hex()


# Whether the other side is alive.


class Process(NamedTuple):
    """A process, distinct from a later one with the same number."""

    machine: str
    """Identifies the boot and the namespace of process numbers; empty if unknown."""
    number: int
    started: int


UNKNOWN = Process("", 0, 0)
_PROC = Path("/proc")


def this_process() -> Process:
    return Process(this_machine(), os.getpid(), _start_time(os.getpid()) or 0)


@cache
def this_machine() -> str:
    """Identify this machine since its boot, and the container of this process; "" if that is unknown."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return f"{boot} {namespace}"


def is_gone(process: Process) -> bool:
    """Whether a process has certainly ended; always False for a process on another machine."""
    if not process.machine or process.machine != this_machine() or process.number < 1:
        return False
    try:
        os.kill(process.number, 0)  # sends nothing; unlike /proc, it also sees processes of other users
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    started = _start_time(process.number)
    return started is not None and started != process.started


def _start_time(number: int) -> int | None:
    """Return when a process started, in ticks since boot; 0 for a zombie process, None if unknown."""
    try:
        stat = (_PROC / str(number) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return 0 if stat[0] in "ZX" else int(stat[19])


# Checks of untrusted values.


def parse_object(content: bytes | str) -> dict[str, Any]:
    """Parse a JSON object. Deep nesting, NaN and infinity are errors too."""
    try:
        document = _DECODER.decode(content if isinstance(content, str) else str(content, "utf-8"))
    except RecursionError:
        raise ValueError("not valid JSON: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not valid JSON: {short_text(str(error))}") from None
    if not isinstance(document, dict):
        raise ValueError(f"a JSON object is expected; found a {type(document).__name__}")
    return document


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


# Created once: `json.loads` with an option creates one per call, which takes 5 µs.
_DECODER = json.JSONDecoder(parse_constant=_reject_constant)


def check_integer(name: str, value: Any, low: int = 0, high: int = MAX_INTEGER) -> int:
    """Return an integer in [low, high]."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} must be an integer in [{low}, {high}]; found {show(value)}")
    return value


def check_number(name: str, value: Any, high: float = MAX_SECONDS) -> float:
    """Return a finite number in [0, high] as a float."""
    if type(value) not in (int, float) or not 0 <= value <= high:
        raise ValueError(f"{name} must be a number in [0, {high:g}]; found {show(value)}")
    return float(value)


def _check_token(name: str, value: Any) -> str:
    if type(value) is not str or not is_run(value):
        raise ValueError(f"{name} must be 1 to 64 letters, digits, '-' and '_'; found {show(value)}")
    return value


def check_text(name: str, value: Any) -> str:
    """Return text that is safe to print, at most `MAX_TEXT` characters."""
    if type(value) is not str:
        raise ValueError(f"{name} must be a string; found {show(value)}")
    return short_text(value)


def short_text(value: str) -> str:
    """Return untrusted text on one printable line of at most `MAX_TEXT` characters."""
    if len(value) <= MAX_TEXT and value.isprintable():
        return value
    shown = printable(value[: MAX_TEXT + 1])
    return shown if len(shown) <= MAX_TEXT else shown[: MAX_TEXT - 1] + "…"


def show(value: Any) -> str:
    """Describe an untrusted value of any size in a few characters, for an error message."""
    if type(value) is int and value.bit_length() > 64:  # Python refuses to print integers of many digits
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (dict, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return repr(value[:40] if isinstance(value, (str, bytes)) else value)


def check_version(document: dict[str, Any]) -> None:
    if document.get("version") != VERSION:
        raise ValueError(
            f"the exchange has version {show(document.get('version'))}, and this Headrace reads version {VERSION}: "
            f"use the same Headrace on both sides"
        )


def _check_process(members: Any) -> Process:
    if not isinstance(members, list) or len(members) != 3:
        raise ValueError(f"process must be a list of three members; found {show(members)}")
    machine, number, started = members
    return Process(
        check_text("process", machine),
        check_integer("process", number, 0, _MAX_PROCESS),
        check_integer("process", started),
    )


def _check_stretches(name: str, value: Any) -> tuple[tuple[int, int, int, int, int], ...]:
    if not isinstance(value, list) or len(value) > MAX_STRETCHES:
        raise ValueError(f"{name} must be a list of at most {MAX_STRETCHES}; found {show(value)}")
    return tuple(map(_check_stretch, value))


def _check_stretch(numbers: Any) -> tuple[int, int, int, int, int]:
    """Check epoch, start, stop, and two batch numbers, the smaller one first."""
    if not isinstance(numbers, list) or len(numbers) != 5:
        raise ValueError(f"a stretch must be a list of five numbers; found {show(numbers)}")
    epoch = check_integer("epoch", numbers[0], 0, _MAX_EPOCH)
    start, stop, low, high = (check_integer("stretch", each, 0, _MAX_POSITION) for each in numbers[1:])
    if start > stop or low > high:
        raise ValueError(f"a stretch must not end before it starts; found {numbers}")
    return epoch, start, stop, low, high


# The two cells.


@dataclass(frozen=True, slots=True)
class HostRequest:
    """What a host writes to its cell."""

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
        """Read the host's cell; ValueError if its version or a value is wrong."""
        check_version(document)
        closed = document.get("closed")
        if not isinstance(closed, bool):
            raise ValueError(f"closed must be true or false; found {show(closed)}")
        return cls(
            session=_check_token("session", document.get("session")),
            beat=check_integer("beat", document.get("beat")),
            process=_check_process(document.get("process")),
            stretches=tuple(Stretch(*each) for each in _check_stretches("stretches", document.get("stretches"))),
            closed=closed,
        )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What an offload worker writes to the cell of a rank."""

    session: str
    """The session of the host that it works for."""
    worker: str
    """The random name of the process."""
    beat: int
    """Increases at least every half second while the process is alive."""
    state: State
    reason: str = ""
    """Why it refuses, or what is wrong."""
    marks: tuple[tuple[int, int, int, int, int], ...] = ()
    """Epoch, start, stop, mark and top: batches [mark, top) of this stretch are published."""
    batches: int = 0
    """Published for this rank."""
    busy_seconds: float = 0.0
    """How long there was work for this rank, including the turns of other ranks."""
    seconds_per_batch: float | None = None
    """Mean of the last batches for this rank, including the turns of other ranks, without waiting for the host."""
    ahead_bytes: int = 0
    """How many bytes of unread batches this rank may have."""
    held_bytes: int = 0
    """How many it has."""
    ranks: int = 1
    """Ranks that the offload worker serves now."""
    threads: int = 1
    cpu_share: float = 1.0
    """Of the core of each thread."""
    cpu_seconds: float = 0.0
    """Of the process, like everything below."""
    peak_bytes: int = 0
    mean_bytes: float = 0.0
    written_bytes: int = 0
    read_bytes: int = 0
    joules: float | None = None
    energy: Energy = "none"
    """Source of `joules`: the machine's counter, stated watts, or none."""
    process: Process = UNKNOWN

    @property
    def is_vacant(self) -> bool:
        """Whether another offload worker may take the rank over at once."""
        return self.state in ("ended", "refused") or is_gone(self.process)

    def to_json(self) -> dict[str, Any]:
        members = {_KEYS.get(name, name): getattr(self, name) for name in _MEMBERS}
        return {"version": VERSION, **members, "reason": short_text(self.reason)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Heartbeat | None:
        """Read the offload worker's cell; None if no worker has written it yet, ValueError if a value is wrong."""
        check_version(document)
        if document.get("worker") is None:
            return None
        members: dict[str, Any] = {
            "process": _check_process(document.get("process")),
            "marks": _check_stretches("marks", document.get("marks")),
        }
        for name, check in _CHECKS.items():
            key = _KEYS.get(name, name)
            if key in document:
                members[name] = check(key, document[key])
        missing = [name for name in ("session", "worker", "beat", "state") if name not in members]
        if missing:
            raise ValueError(f"the offload worker's cell must have {missing[0]!r}")
        return cls(**members)


_MEMBERS = tuple(field.name for field in fields(Heartbeat))
_KEYS = {"seconds_per_batch": "seconds_a_batch"}
NO_WORKER: dict[str, Any] = {"version": VERSION, "worker": None}
"""The offload worker's cell before a worker has written it."""


def _choice(kind: Any) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in get_args(kind):
            raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}; found {show(value)}")
        return value

    return check


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("session", "worker"), _check_token),
    "state": _choice(State),
    "energy": _choice(Energy),
    "reason": check_text,
    **dict.fromkeys(("beat", "batches", "ahead_bytes", "held_bytes", "written_bytes", "read_bytes"), check_integer),
    "peak_bytes": check_integer,
    "mean_bytes": lambda name, value: check_number(name, value, float(MAX_INTEGER)),
    **dict.fromkeys(("ranks", "threads"), lambda name, value: check_integer(name, value, 0, _MAX_COUNT)),
    **dict.fromkeys(("busy_seconds", "cpu_seconds", "cpu_share"), check_number),
    **dict.fromkeys(
        ("seconds_per_batch", "joules"), lambda name, value: None if value is None else check_number(name, value)
    ),
}
