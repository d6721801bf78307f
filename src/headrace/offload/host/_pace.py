# SPDX-License-Identifier: Apache-2.0
"""Measures how long the host and the trainer take per batch.

If the loader waited for the host's batches, the host was busy all the time, and its time per batch is the time between
batches that were waited for. Otherwise the trainer limits the speed, and the host's time follows from how long its
threads were busy with what they made, including batches made ahead. Medians are used, so that a pause of the machine
does not count.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from headrace.loader.supply import Meters
from headrace.offload.strategies._model import Times

BUSY = ("read_seconds", "decode_seconds", "transform_seconds")
"""The engine's counters of busy seconds."""
# The host limits the speed if the loader waits for it for more than this share of the time.
_WAITING_SHARE = 0.03
# A shorter wait is the time that the code itself takes.
_MIN_WAIT_SECONDS = 0.0002
_REMEMBERED = 256
_MIN_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class HostPace:
    """Seconds per batch of the host and of the trainer."""

    host: float
    step: float
    reading: float
    """The part of `host` in which its threads waited for storage."""

    def with_worker(self, worker: float, link: float, take: float) -> Times:
        """Add the offload worker's seconds per batch, and how long a read takes in elapsed and in CPU time."""
        worker = max(worker, _MIN_SECONDS)
        return Times(host=self.host, worker=worker, step=self.step, link=link, take=take, reading=self.reading)


class HostWork(NamedTuple):
    """What the host's threads have done: seconds over all threads, the part spent reading, and images."""

    busy: float = 0.0
    reading: float = 0.0
    images: float = 0.0


class PaceMeter:
    """Measures one epoch. The first batch, which includes everything that starts, does not count."""

    def __init__(
        self, meters: Meters, source_stats: Callable[[], dict[str, float]], *, threads: int, images_per_batch: int
    ) -> None:
        self._meters, self._source_stats = meters, source_stats
        self._threads, self._images_per_batch = threads, images_per_batch
        self._begun: float | None = None
        self._before = HostWork()
        self._batches = 0
        self._waited = 0.0
        self._last_wait: tuple[float, int] | None = None
        self._times: deque[float] = deque(maxlen=_REMEMBERED)

    def count(self, waited: float | None) -> None:
        """Count a batch that is done now, and the seconds that the loader waited for it; None if it was prepared."""
        if self._begun is None:
            self._begun = time.perf_counter()
            self._before = self._work()
        elif waited is not None:
            self._batches += 1
            self._waited += waited
            if waited > _MIN_WAIT_SECONDS:
                now = time.perf_counter()
                if self._last_wait is not None:
                    then, number = self._last_wait
                    self._times.append((now - then) / (self._batches - number))
                self._last_wait = (now, self._batches)

    def pace(self) -> HostPace | None:
        """Return what was measured; None if nothing was yet."""
        steps = self._meters.steps.copy()
        if self._begun is None or not self._batches or not steps:
            return None
        work = HostWork(*(now - then for now, then in zip(self._work(), self._before, strict=True)))
        if self._times and self._waited > _WAITING_SHARE * (time.perf_counter() - self._begun):
            host = median(self._times)
        elif work.images and work.busy:
            host = work.busy / self._threads / work.images * self._images_per_batch
        else:
            return None
        share = work.reading / work.busy if work.busy else 0.0
        return HostPace(max(host, _MIN_SECONDS), median(steps), share * host)

    def _work(self) -> HostWork:
        stats = self._source_stats()
        busy = sum(stats.get(name, 0.0) for name in BUSY)
        return HostWork(busy, stats.get("read_seconds", 0.0), stats.get("images", 0.0))
