# SPDX-License-Identifier: Apache-2.0
"""Cuts a measurement into slices of some batches each, and counts those in which the cores were quiet.

The cores of a shared machine change their speed for seconds at a time (see `quiet`), and serve other programs. A rate
that is taken from quiet slices alone is that of the machine. An epoch of `mte`, whose beginning and end are not alike,
is one slice.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import headrace
from benchmarks._prongs.quiet import Log, is_quiet
from headrace.planning._disturbance import OTHERS, busy_seconds

SLICE_SECONDS = 0.3
_LEAST_SECONDS = 0.15


@dataclass(frozen=True, slots=True)
class Totals:
    """What has happened up to a moment, or between two."""

    seconds: float = 0.0
    batches: int = 0
    samples: int = 0
    step_seconds: float = 0.0
    host_cpu: float = 0.0
    near_cpu: float = 0.0
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

    def plus(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Totals)))


class Slices:
    """Follows the batches of one loader; `counted` is what happened in quiet slices."""

    def __init__(self, loader: headrace.Loader, logs: list[Path], *, core: int, whole_epochs: bool) -> None:
        self._loader, self._logs, self._whole = loader, [Log(path) for path in logs], whole_epochs
        self._core = core
        self._batches = self._samples = 0
        self._step_seconds = 0.0
        self._last = self._now()
        self.counted = self.all = Totals()
        self.paces: list[list[float | None]] = []
        self.epochs: list[dict[str, Any]] = []
        """The counted ones, where slices are epochs."""

    def _now(self) -> Totals:
        figures = self._loader.stats().get("prongs") or {"near": None, "near_batches": 0}
        near = figures["near"] or {"cpu_seconds": 0.0, "batches": 0}
        return Totals(
            time.monotonic(),
            self._batches,
            self._samples,
            self._step_seconds,
            time.process_time(),
            near["cpu_seconds"],
            figures["near_batches"],
            near["batches"],
            busy_seconds({self._core}) or 0.0,
        )

    def restart(self) -> None:
        """Leave out what has happened since the last slice ended."""
        self._last = self._now()

    def batch(self, samples: int, step_seconds: float) -> None:
        """Note a batch that was trained on."""
        self._batches += 1
        self._samples += samples
        self._step_seconds += step_seconds
        if not self._whole and time.monotonic() - self._last.seconds >= SLICE_SECONDS:
            self._cut()

    def end_epoch(self) -> None:
        """End the slice that is under way; a short one goes on in the next epoch."""
        if self._whole or time.monotonic() - self._last.seconds >= _LEAST_SECONDS:
            self._cut()

    def _cut(self) -> None:
        now = self._now()
        for log in self._logs:
            log.read_on()
        paces = [log.pace(self._last.seconds, now.seconds) for log in self._logs]
        between = now.minus(self._last)
        self._last = now
        self.paces.append(paces)
        self.all = self.all.plus(between)
        if is_quiet(paces) and between.others <= OTHERS:
            self.counted = self.counted.plus(between)
            if self._whole:
                plans = (self._loader.stats().get("prongs") or {}).get("plans") or [{}]
                self.epochs.append({"seconds": between.seconds, "batches": between.batches, "plan": plans[-1]})

    def best(self, seconds: float) -> tuple[Totals, bool]:
        """Give what counts, and whether that is quiet enough; all of it where too little was."""
        enough = self.counted.seconds >= seconds
        return (self.counted, enough) if self.counted.batches else (self.all, False)
