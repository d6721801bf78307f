# SPDX-License-Identifier: Apache-2.0
"""Tells whether neighbours of a virtual machine slowed its cores while something was measured.

Other programs are in the system's books; neighbours on the physical cores are not: the same work takes a third longer,
for seconds or minutes. So on each core a tenth of a millisecond of work is done every 25 ms, timed by its own CPU
clock. It is small enough for the first cache, so what a benchmark does to caches and memory does not show in it, and
the disturbance is told by something else than how fast the benchmark was. It tells quieter times from louder ones, of
cores in the same use: one that sleeps now and then wakes beside a neighbour more often than one always at work.
"""

from __future__ import annotations

import os
import random
import threading
import time
import zlib
from bisect import bisect_left
from collections.abc import Collection, Sequence

_EVERY_SECONDS = 0.025
_WARMING, _TIMED = 3, 8
_SIZE = 4096
_REMEMBERED = 24_000  # pieces of work, of ten minutes, that tell how long one takes at best
_SLOWED = 1.25
"""Work that took so many times what it takes at best had a neighbour; by caches alone it varies by a tenth or so."""


class Gauge:
    """Watches some cores, from now on, by a thread on each.

    Times are those of `time.monotonic`, which are the same in all processes of a machine.
    """

    def __init__(self, cores: Collection[int]) -> None:
        rng = random.Random(0)  # noqa: S311 - any bytes will do
        self._work = zlib.compress(bytes(rng.choice(b"abcdefgh") for _ in range(_SIZE)))
        self._at: dict[int, list[float]] = {core: [] for core in cores}
        self._took: dict[int, list[float]] = {core: [] for core in cores}
        for core in cores:
            threading.Thread(target=self._watch, args=(core,), name=f"gauge-{core}", daemon=True).start()

    def disturbed(self, core: int, begun: float, ended: float) -> float:
        """Give the part of a time in which a core was slowed."""
        at = self._at[core]
        took = self._took[core][bisect_left(at, begun) : bisect_left(at, ended)]
        return slowed(took, best_of(self._took[core][-_REMEMBERED:]))

    def _watch(self, core: int) -> None:
        os.sched_setaffinity(0, {core})  # of this thread alone
        while True:
            time.sleep(_EVERY_SECONDS)
            for _ in range(_WARMING):
                zlib.decompress(self._work)
            begun = time.thread_time()
            for _ in range(_TIMED):
                zlib.decompress(self._work)
            self._took[core].append(time.thread_time() - begun)
            self._at[core].append(time.monotonic())


def best_of(took: Sequence[float]) -> float:
    """Give what the work takes on a core that is left alone: a low quantile of all that was seen."""
    return sorted(took)[len(took) // 20] if took else 0.0


def slowed(took: Sequence[float], best: float) -> float:
    """Give the part of some pieces of work that took longer than they do at best; all of it, if there were none."""
    return sum(each > _SLOWED * best for each in took) / len(took) if took else 1.0
