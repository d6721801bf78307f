# SPDX-License-Identifier: Apache-2.0
"""What hosts and offload workers write about themselves: requests and heartbeats (spec/exchange.md §2).

Everything read from an exchange may be forged: reading raises ValueError, and nothing else, for a value of the wrong
type or out of range.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar

from headrace.documents import DocumentReader
from headrace.offload.exchange._liveness import UNKNOWN, Process, is_gone
from headrace.offload.exchange._names import NAME_PATTERN, VERSION, Stretch
from headrace.terminal import printable

MAX_STRETCHES = 8
MAX_TEXT = 300
_MAX_EPOCH = 2**32 - 1
_MAX_POSITION = 2**48
_MAX_PROCESS = 2**31 - 1
_LIMITS = {
    **dict.fromkeys(("busy_seconds", "seconds_per_batch", "cpu_seconds", "cpu_share", "joules"), 1e9),
    **dict.fromkeys(("ranks", "threads"), 2**20),
    "mean_bytes": 2.0**63,
}

# Exceptions, beside OSError, that code may raise when it takes untrusted values apart.
MALFORMED = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)

State: TypeAlias = Literal["working", "waiting", "full", "refused", "trouble", "ended"]


@dataclass(frozen=True, slots=True)
class HostRequest:
    """What a host writes to its cell."""

    session: str
    beat: int
    process: Process
    stretches: tuple[Stretch, ...]
    closed: bool

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> HostRequest:
        """Read the host's cell; ValueError if its version or a value is wrong."""
        return _read_cell(cls, document, "the host's cell", "stretches")


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What an offload worker writes to the cell of a rank."""

    session: str  # the session of the host that it works for
    worker: str  # the random name of the process
    beat: int  # increases at least every half second while the process is alive
    state: State
    reason: str = ""  # why it refuses, or what is wrong
    marks: tuple[Stretch, ...] = ()  # the batches that are published
    batches: int = 0  # published for this rank
    busy_seconds: float = 0.0  # how long there was work for this rank, including the turns of other ranks
    seconds_per_batch: float | None = None
    """Mean of the last batches for this rank, including the turns of other ranks, without waiting for the host."""
    ahead_bytes: int = 0  # how many bytes of unread batches this rank may have
    held_bytes: int = 0  # how many it has
    ranks: int = 1  # ranks that the offload worker serves now
    threads: int = 1
    cpu_share: float = 1.0  # of the core of each thread
    cpu_seconds: float = 0.0  # of the process, like everything below
    peak_bytes: int = 0
    mean_bytes: float = 0.0
    written_bytes: int = 0
    read_bytes: int = 0
    joules: float | None = None
    energy: Literal["counter", "model", "none"] = "none"
    """Source of `joules`, which Headrace's own worker does not count."""
    process: Process = UNKNOWN

    @property
    def is_vacant(self) -> bool:
        """Whether another offload worker may take the rank over at once."""
        return self.state in ("ended", "refused") or is_gone(self.process)

    def to_json(self) -> dict[str, Any]:
        members = asdict(self)
        members["seconds_a_batch"] = members.pop("seconds_per_batch")
        return {"version": VERSION, **members, "reason": short_text(self.reason)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Heartbeat | None:
        """Read the offload worker's cell; None if no worker has written it yet, ValueError if a value is wrong."""
        if document.get("version") == VERSION and document.get("worker") is None:
            return None
        document = {**document, "seconds_per_batch": document.get("seconds_a_batch")}
        found = _read_cell(cls, document, "the offload worker's cell", "marks")
        return replace(found, reason=short_text(found.reason))


_Cell = TypeVar("_Cell", HostRequest, Heartbeat)

NO_WORKER: dict[str, Any] = {"version": VERSION, "worker": None}
"""The offload worker's cell before a worker has written it."""


# Checks of untrusted values.


def _read_cell(kind: type[_Cell], document: dict[str, Any], where: str, stretches: str) -> _Cell:
    """Return a document as a dataclass; ValueError if it has another version or a value is not valid."""
    if document.get("version") != VERSION:
        raise ValueError(
            f"the exchange has version {show(document.get('version'))}, and this Headrace reads version {VERSION}: "
            f"use the same Headrace on both sides"
        )
    try:
        found = DocumentReader(strict=False).read(kind, document, where)
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply") from None
    for name in (found.session, getattr(found, "worker", found.session)):
        if not NAME_PATTERN.fullmatch(name):
            raise ValueError(f"a session or worker must be 1 to 64 letters, digits, '-' and '_'; got {show(name)}")
    for name, limit in _LIMITS.items():
        _check_limit(name, getattr(found, name, None) or 0.0, limit)
    _check_limit("process", found.process.number, _MAX_PROCESS)
    _check_stretches(stretches, getattr(found, stretches))
    return found


def _check_stretches(name: str, stretches: tuple[Stretch, ...]) -> None:
    _check_limit(f"the length of {name}", len(stretches), MAX_STRETCHES)
    for each in stretches:
        _check_limit("epoch", each.epoch, _MAX_EPOCH)
        _check_limit(name, max(each[1:]), _MAX_POSITION)
        if each.start > each.stop or each.bottom > each.top:
            raise ValueError(f"{name} must not end before they start; got {list(each)}")


def _check_limit(name: str, value: float, limit: float) -> None:
    if value > limit:
        raise ValueError(f"{name} must be at most {limit:g}; got {value:g}")


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
