# SPDX-License-Identifier: Apache-2.0
"""Cuts a measurement into slices of a second or so each, and says of each what it took.

Which of them count is decided later, by `floors`. An epoch of `mte`, whose beginning and end are not alike, is one
slice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import headrace
from headrace.planning._disturbance import busy_seconds

SLICE_SECONDS = 0.8


@dataclass(frozen=True, slots=True)
class Totals:
    """What has happened up to a moment, or between two."""

    seconds: float = 0.0
    batches: int = 0
    samples: int = 0
    host_cpu: float = 0.0
    near_cpu: float = 0.0
    """Of the near worker, up to its last batch."""
    near_batches: int = 0
    """Of the near worker's, that were trained on."""
    near_made: int = 0
    core_busy: float = 0.0
    """Seconds that the host's core has worked, for anybody."""

    @property
    def others(self) -> float:
        """What part of the host's core went to other programs, or to other machines."""
        return max(0.0, self.core_busy - self.host_cpu) / self.seconds

    def minus(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(Totals)))

    @staticmethod
    def sum(parts: Iterable[Totals]) -> Totals:
        parts = list(parts)
        return Totals(*(sum(getattr(part, each.name) for part in parts) for each in fields(Totals)))


class Slices:
    """Follows the batches of one loader."""

    def __init__(self, loader: headrace.Loader, *, core: int, whole_epochs: bool) -> None:
        self._loader, self._whole, self._core = loader, whole_epochs, core
        self._batches = self._samples = 0
        self._near = (0.0, 0)
        self._last = self._now()
        self.cut: list[tuple[Totals, dict[str, Any] | None]] = []
        """Slices; with those that are epochs, the plan of each."""

    @property
    def seconds(self) -> float:
        """Of all slices."""
        return sum(each.seconds for each, _ in self.cut)

    def _now(self) -> Totals:
        figures = self._loader.stats().get("prongs") or {"near": None, "near_batches": 0}
        near = figures["near"] or {"cpu_seconds": 0.0, "batches": 0}
        if near["batches"] != self._near[1]:  # between two of its batches, its clock tells of half a batch
            self._near = near["cpu_seconds"], near["batches"]
        return Totals(
            time.perf_counter(),
            self._batches,
            self._samples,
            time.process_time(),
            self._near[0],
            figures["near_batches"],
            self._near[1],
            busy_seconds({self._core}) or 0.0,
        )

    def restart(self) -> None:
        """Leave out what has happened so far."""
        self._last = self._now()

    def batch(self, samples: int) -> None:
        """Note a batch that was trained on."""
        self._batches += 1
        self._samples += samples
        if not self._whole and time.perf_counter() - self._last.seconds >= SLICE_SECONDS:
            self._cut()

    def end_epoch(self) -> None:
        """End the slice, if epochs are slices."""
        if self._whole:
            self._cut()

    def _cut(self) -> None:
        now = self._now()
        plan = None
        if self._whole:
            plans = (self._loader.stats().get("prongs") or {}).get("plans") or [None]
            plan = plans[-1]
        self.cut.append((now.minus(self._last), plan))
        self._last = now
