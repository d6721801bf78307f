# SPDX-License-Identifier: Apache-2.0
"""What a loader has done so far, counted where it happens."""

from __future__ import annotations

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
    batch_seconds: float = 0.0
    callable_seconds: float = 0.0
    error_count: int = 0
    errors: list[SampleError] = field(default_factory=list)

    def add_error(self, error: SampleError) -> None:
        self.error_count += 1
        if len(self.errors) < MOST_NAMED:
            self.errors.append(error)


_COUNTED = {"read_seconds", "decode_seconds", "transform_seconds", "images", "bytes_read"}


class EngineTotals:
    """The engine's own figures, kept when an engine is closed and another takes its place."""

    def __init__(self) -> None:
        self._past: dict[str, float] = {}

    def retire(self, stats: dict[str, float]) -> None:
        """Add what an engine that is being closed has counted; what it has in its hands ends with it."""
        for name in _COUNTED & stats.keys():
            self._past[name] = self._past.get(name, 0) + stats[name]

    def with_current(self, stats: dict[str, float]) -> dict[str, float]:
        names = dict.fromkeys((*self._past, *stats))
        return {name: self._past.get(name, 0) + stats.get(name, 0) for name in names}


def summarise(meters: Meters, engine: dict[str, float], transfer_seconds: float, ready: int) -> dict[str, Any]:
    """Put the figures together as `Loader.stats` gives them."""
    return {
        "batches": meters.batches,
        "samples": meters.samples,
        "wait_seconds": meters.wait_seconds,
        "busy_seconds": {
            **{name.removesuffix("_seconds"): value for name, value in engine.items() if name.endswith("_seconds")},
            "callables": meters.callable_seconds,
            "batch": meters.batch_seconds,
            "transfer": transfer_seconds,
        },
        "batches_ready": ready,
        **{name: value for name, value in engine.items() if not name.endswith("_seconds")},
        "error_count": meters.error_count,
        "errors": [error._asdict() for error in meters.errors],
    }
