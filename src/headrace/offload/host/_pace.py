# SPDX-License-Identifier: Apache-2.0
"""Measures how long the host and the trainer take per batch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from headrace.loader.supply import Meters

BUSY = ("read_seconds", "decode_seconds", "transform_seconds")
"""The engine's counters of busy seconds."""
# The host limits the speed if the loader waits for it for more than this share of the time.
_WAITING_SHARE = 0.03
# A shorter wait is the time that the code itself takes.
_MIN_COUNTED_SECONDS = 0.0002
_REMEMBERED = 256
MIN_SECONDS = 1e-6


class HostPace(NamedTuple):
    """Seconds per batch of the host and of the trainer."""

    host: float
    step: float
    reading: float  # the part of `host` in which its threads waited for storage


class PaceMeter:
    """Measures one epoch. The first batch, which includes everything that starts, does not count.

    If the loader waited for the host's batches, the host was busy all the time, and its time per batch is the time
    between batches that were waited for. Otherwise the trainer limits the speed, and the host's time follows from how
    long its threads were busy with what they made, including batches made ahead. Medians are used, so that a pause of
    the machine does not count.
    """

    def __init__(
        self, meters: Meters, source_stats: Callable[[], dict[str, float]], *, threads: int, images_per_batch: int
    ) -> None:
        self._meters, self._source_stats = meters, source_stats
        self._threads, self._images_per_batch = threads, images_per_batch
        self._before = dict.fromkeys((*BUSY, "images"), 0.0)
        self.done: deque[tuple[float, float | None]] = deque(maxlen=_REMEMBERED)
        """When each of the last batches was done, and how long the loader waited for it; None if it was prepared."""

    def start(self) -> None:
        """Start when the first batch is done."""
        stats = self._source_stats()
        self._before = {name: stats.get(name, 0.0) for name in self._before}

    def pace(self) -> HostPace | None:
        """Return what was measured; None if nothing was yet."""
        done, steps = list(self.done), self._meters.steps.copy()
        host = [(when, waited) for when, waited in done if waited is not None]
        if not host or not steps:
            return None
        stats = self._source_stats()
        work = {name: stats.get(name, 0.0) - then for name, then in self._before.items()}
        busy, images = sum(work[name] for name in BUSY), work["images"]
        counted = [(number, when) for number, (when, waited) in enumerate(host) if waited > _MIN_COUNTED_SECONDS]
        times = [(end - begin) / (later - earlier) for (earlier, begin), (later, end) in pairwise(counted)]
        if times and sum(waited for _, waited in host) > _WAITING_SHARE * (time.perf_counter() - done[0][0]):
            seconds = median(times)
        elif images and busy:
            seconds = busy / self._threads / images * self._images_per_batch
        else:
            return None
        reading = work["read_seconds"] / busy if busy else 0.0
        return HostPace(max(seconds, MIN_SECONDS), median(steps), reading * seconds)
