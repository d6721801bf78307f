# SPDX-License-Identifier: Apache-2.0
"""Whether a measurement had its cores to itself: other load on the machine, and repeats that agree.

Other programs appear in the kernel's CPU times. Other guests of the same physical cores do not: they make the same work
take up to 1.5 times as long for some seconds. Both only ever slow a measurement down. So the repeats that took the
least CPU time count, and there are enough of them when the best three agree.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.measuring._process import ResourceUse, busy_seconds, metered

MAX_OTHER_LOAD = 0.10
"""Share of the cores. Interrupts and the usual background work of a system stay below it."""
MAX_REPEAT_SPREAD = 0.04
"""How far the best three repeats may lie apart."""

# A profile's measurements are longer and its verdict coarser than a calibration's costs.
_MAX_PROFILE_LOAD = 0.25
_MIN_SECONDS = 0.5
"""The kernel counts CPU time in hundredths of a second: for a shorter measurement the counts say nothing."""


def repeats_agree(seconds: Sequence[float]) -> bool:
    """Whether the best three repeats agree."""
    best = sorted(seconds)[:3]
    return len(best) == 3 and best[-1] <= (1 + MAX_REPEAT_SPREAD) * best[0]


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """CPU time so far of the cores that this thread may use, and of this process."""

    clock: float
    busy: float | None
    """Of all these cores together, for all programs; None where the system does not report it."""
    own: float
    cores: int

    @classmethod
    def now(cls) -> CpuTimes:
        held = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
        return cls(time.perf_counter(), busy_seconds(held), time.process_time(), len(held))

    def other_load_since(self, before: CpuTimes) -> float:
        """Return the share of the cores' time that other programs used."""
        if self.busy is None or before.busy is None or self.clock <= before.clock:
            return 0.0
        others = (self.busy - before.busy) - (self.own - before.own)
        return max(0.0, others / (self.cores * (self.clock - before.clock)))


class NoiseMonitor:
    """Records the other load on the machine around one measurement after the other."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        # Other programs may use the cores that the measurement does not.
        self._spare = max(0, (os.cpu_count() or cores) - cores)
        self._seen: list[tuple[str, ResourceUse]] = []

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Watch the machine during a measurement."""
        with metered() as use:
            yield
        self._seen.append((name, use))

    @property
    def disturbed(self) -> tuple[str, ...]:
        """The measurements during which other programs used too many cores."""
        return tuple(name for name, use in self._seen if self._is_disturbed(use))

    def _is_disturbed(self, use: ResourceUse) -> bool:
        if use.seconds < _MIN_SECONDS:
            return False
        return (use.other_cores or 0.0) - self._spare > _MAX_PROFILE_LOAD * self._cores
