# SPDX-License-Identifier: Apache-2.0
"""Whether a measurement has its cores for itself, and at their full speed.

A virtual machine shares its physical cores with neighbours, and a laptop its watts: the same work takes a third longer
for some seconds and nothing in the system's books says so. A short piece of reference work between two batches tells.
Other programs on the same cores are in the books.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace import codec

QUIET = 1.12
"""At most so many times the fastest: caches and timers account for that much on a machine without neighbours."""
OTHERS = 0.10
"""Of the cores: less than that goes to interrupts, and to what every system does now and then."""

_EDGE = 96
_WARMING, _DECODES = 6, 16  # together some half a millisecond; the first ones bring the caches back
_EVERY = 0.04  # seconds between two samples: a hundredth of the core or so


@dataclass(frozen=True, slots=True)
class Stretch:
    """How a stretch of work went."""

    pace: float
    """How many times as long as at best the reference work took, in the mean."""
    others: float
    """Which share of the cores' time went to other programs and other machines."""

    @property
    def quiet(self) -> bool:
        return self.pace <= QUIET and self.others <= OTHERS


class Pace:
    """Watches one stretch of work after the other; the fastest sample of all is the measure of each.

    Called by the thread that takes the batches, so it samples the cores that this thread is held to.
    """

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        slopes = np.add.outer(np.arange(_EDGE), 2 * np.arange(_EDGE))[..., None] // 2
        picture = (slopes + rng.integers(0, 16, (_EDGE, _EDGE, 3))).astype(np.uint8)
        self._data = codec.encode(picture)
        self._fastest = float("inf")
        self._taken: list[float] = []
        self._next = 0.0
        self._begun = _Books.now()
        self.cpu_seconds = 0.0
        """What samples have cost since the stretch began."""
        for _ in range(3):
            self.sample()

    def begin(self) -> None:
        """Begin a stretch."""
        self._taken, self.cpu_seconds = [], 0.0
        self.look(now=True)
        self._begun = _Books.now()

    def look(self, *, now: bool = False) -> None:
        """Take a sample, unless the last one is so fresh that it still holds."""
        clock = time.perf_counter()
        if now or clock >= self._next:
            self._taken.append(self.sample())
            self._next = time.perf_counter() + _EVERY

    def end(self) -> Stretch:
        """End a stretch."""
        others = _Books.now().others_since(self._begun)
        self.look(now=True)
        return Stretch(statistics.fmean(self._taken) / self._fastest, others)

    def sample(self) -> float:
        """CPU seconds of the reference work."""
        arrived = time.thread_time()
        for _ in range(_WARMING):
            codec.decode(self._data)
        begun = time.thread_time()
        for _ in range(_DECODES):
            codec.decode(self._data)
        ended = time.thread_time()
        self._fastest = min(self._fastest, ended - begun)
        self.cpu_seconds += ended - arrived
        return ended - begun


@dataclass(frozen=True, slots=True)
class _Books:
    """What the system has written down: how long the cores that this thread is held to have worked, and for us."""

    clock: float
    busy: float | None
    """Of all cores together; None where there are no books."""
    own: float
    cores: int

    @classmethod
    def now(cls) -> _Books:
        held = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
        try:
            lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
            busy = _busy_seconds(lines, held)
        except (OSError, ValueError):
            busy = None
        return cls(time.perf_counter(), busy, time.process_time(), len(held))

    def others_since(self, before: _Books) -> float:
        if self.busy is None or before.busy is None or self.clock <= before.clock:
            return 0.0
        others = (self.busy - before.busy) - (self.own - before.own)
        return max(0.0, others / (self.cores * (self.clock - before.clock)))


def _busy_seconds(lines: Iterable[str], cores: set[int]) -> float:
    """Sum what is neither idle nor waiting for storage: the 4th and 5th figure of a core's line in /proc/stat."""
    wanted = {f"cpu{core}" for core in cores}
    total = 0
    for line in lines:
        name, *figures = line.split()
        if name in wanted:
            total += sum(int(each) for at, each in enumerate(figures[:8]) if at not in (3, 4))
    return total / os.sysconf("SC_CLK_TCK")
