# SPDX-License-Identifier: Apache-2.0
"""Follows a loader's batches, and says what they took: from the midst of an epoch, or epoch by epoch.

A turn of `mte`, whose beginning and end are not alike, is an epoch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import headrace
from headrace.planning._disturbance import OTHERS, busy_seconds


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
    preparing_cpu: float = 0.0
    """Of the host's, what its threads have used that prepare batches; prepared ones are taken by others."""

    @property
    def counts(self) -> bool:
        """Whether the host had its core for itself."""
        return self.others <= OTHERS

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


class Meter:
    """Follows the batches of one loader."""

    def __init__(self, loader: headrace.Loader, *, core: int) -> None:
        self._loader, self._core = loader, core
        self._batches = self._samples = 0
        self._near = (0.0, 0)
        self._last = self._now()

    def _now(self) -> Totals:
        stats = self._loader.stats()
        figures = stats.get("prongs") or {"near": None, "near_batches": 0}
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
            stats.get("cpu_seconds", 0.0),
        )

    def batch(self, samples: int) -> None:
        """Note a batch that was trained on."""
        self._batches += 1
        self._samples += samples

    def cut(self) -> Totals:
        """Give what has happened since the last time."""
        now = self._now()
        between, self._last = now.minus(self._last), now
        return between

    def plan(self) -> dict[str, Any] | None:
        """How the last epoch was walked."""
        plans = (self._loader.stats().get("prongs") or {}).get("plans") or [None]
        last: dict[str, Any] | None = plans[-1]
        return last
