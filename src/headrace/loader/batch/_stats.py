# SPDX-License-Identifier: Apache-2.0
"""What a loader has done so far, counted where it happens."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MOST_NAMED = 100
"""Errors that are told one by one; all are counted."""


class SampleError(NamedTuple):
    """A sample that could not be loaded, and what became of its place in the batch."""

    epoch: int
    row: int
    action: str
    message: str


@dataclass(slots=True)
class Meters:
    """Counts and busy seconds since the loader was made. Each number is written by one thread at a time."""

    batches: int = 0
    samples: int = 0
    wait_seconds: float = 0.0
    wall_seconds: float = 0.0
    batch_seconds: float = 0.0
    callable_seconds: float = 0.0
    error_count: int = 0
    errors: list[SampleError] = field(default_factory=list)
    steps: deque[float] = field(default_factory=lambda: deque(maxlen=256))
    """Seconds that the trainer took between the last batches."""

    def add_error(self, error: SampleError) -> None:
        self.error_count += 1
        if len(self.errors) < MOST_NAMED:
            self.errors.append(error)


_COUNTED = {"read_seconds", "decode_seconds", "transform_seconds", "cpu_seconds", "images", "bytes_read"}
_COUNTED |= {"failed_renditions"}


class EngineTotals:
    """The engine's own figures, kept when an engine is closed and another takes its place."""

    def __init__(self) -> None:
        self._past: dict[str, Any] = {}

    def retire(self, stats: Mapping[str, Any]) -> None:
        """Add what an engine that is being closed has counted; what it has in its hands ends with it."""
        self._past = _sum(self._past, {name: stats[name] for name in stats if name in _COUNTED or name == "formats"})

    def with_current(self, stats: Mapping[str, Any]) -> dict[str, Any]:
        return _sum(self._past, stats)


def _sum(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Add figures of the same names, also those of formats, which have figures of their own."""
    names = dict.fromkeys((*first, *second))
    nested = {name for name in names if isinstance(first.get(name, second.get(name)), Mapping)}
    return {
        name: _sum(first.get(name, {}), second.get(name, {}))
        if name in nested
        else first.get(name, 0) + second.get(name, 0)
        for name in names
    }


_BUSY = ("read", "decode", "transform")


def summarise(meters: Meters, engine: dict[str, Any], transfer_seconds: float, ready: int) -> dict[str, Any]:
    """Put the figures together as `Loader.stats` gives them."""
    busy = {f"{stage}_seconds": stage for stage in _BUSY}
    return {
        "batches": meters.batches,
        "samples": meters.samples,
        "wait_seconds": meters.wait_seconds,
        "wall_seconds": meters.wall_seconds,
        "busy_seconds": {
            **{stage: engine[name] for name, stage in busy.items() if name in engine},
            "callables": meters.callable_seconds,
            "batch": meters.batch_seconds,
            "transfer": transfer_seconds,
        },
        "batches_ready": ready,
        **{name: value for name, value in engine.items() if name not in busy},
        "error_count": meters.error_count,
        "errors": [error._asdict() for error in meters.errors],
    }
