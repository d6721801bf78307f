# SPDX-License-Identifier: Apache-2.0
"""How fast the core under a measurement is just now, beside the fastest that it was seen.

A virtual machine shares its physical cores with neighbours, and a laptop its watts: the same work takes a third longer
for some seconds and nothing in the system's books says so. A short piece of reference work between two batches tells.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from headrace import codec

QUIET = 1.12
"""At most so many times the fastest: caches and timers account for that much on a machine without neighbours."""

_EDGE = 96
_WARMING, _DECODES = 6, 16  # together some half a millisecond; the first ones bring the caches back
_EVERY = 0.04  # seconds between two samples: a hundredth of the core or so


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
        self.cpu_seconds = 0.0
        """What samples have cost since the stretch began."""
        for _ in range(3):
            self.sample()

    def begin(self) -> None:
        """Begin a stretch."""
        self._taken, self.cpu_seconds = [], 0.0
        self.look(now=True)

    def look(self, *, now: bool = False) -> None:
        """Take a sample, unless the last one is so fresh that it still holds."""
        clock = time.perf_counter()
        if now or clock >= self._next:
            self._taken.append(self.sample())
            self._next = time.perf_counter() + _EVERY

    def end(self) -> float:
        """End a stretch: how many times as long as at best its samples took, in the mean."""
        self.look(now=True)
        return statistics.fmean(self._taken) / self._fastest

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
