# SPDX-License-Identifier: Apache-2.0
"""Follows a loader's batches, and says what they took, turn by turn.

A turn is a second or so from the midst of an epoch; of `mte`, whose beginning and end are not alike, it is an epoch. It
begins and ends with a batch.
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
        self.turns: list[Totals] = []
        self.times: list[tuple[float, float]] = []
        """When each turn began and ended, as `time.monotonic` tells it in all processes."""
        self.plans: list[dict[str, Any] | None] = []
        """How each was walked, if it is an epoch."""
        self.clear()

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

    def clear(self) -> None:
        """Forget what has happened so far."""
        self._last, self._cut_at = self._now(), time.monotonic()
        self.turns, self.times, self.plans = [], [], []

    def cut(self, plan: dict[str, Any] | None = None) -> None:
        """End a turn, and begin the next."""
        now, at = self._now(), time.monotonic()
        self.turns.append(now.minus(self._last))
        self.times.append((self._cut_at, at))
        self.plans.append(plan)
        self._last, self._cut_at = now, at

    def end_epoch(self) -> None:
        """End a turn that is an epoch."""
        plans = (self._loader.stats().get("prongs") or {}).get("plans") or [None]
        self.cut(plans[-1])

    @property
    def since_cut(self) -> float:
        return time.monotonic() - self._cut_at

    @property
    def seconds(self) -> float:
        """Of all turns."""
        return sum(turn.seconds for turn in self.turns)
