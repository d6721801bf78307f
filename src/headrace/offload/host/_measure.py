# SPDX-License-Identifier: Apache-2.0
"""How long the host and the trainer take for a batch, from what happened so far.

Where the loader waited for the host's batches, the host was at work all the time, and its time a batch is the clock's
between those that were waited for. Where it did not, the trainer sets the pace, and what the host could do follows from
how long its threads were busy with what they have made, taken or not: at first they make more than is taken. Medians
are taken, so that a pause of the whole machine is not taken for anybody's pace.
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

# A share of the time spent waiting for the host from which on it counts as the one who sets the pace.
_WAITING = 0.03
# Less than this is no waiting, but the way through the code.
_AT_ONCE = 0.0002
_REMEMBERED = 256
_BUSY = ("read_seconds", "decode_seconds", "transform_seconds")
_LEAST = 1e-6


@dataclass(frozen=True, slots=True)
class HostPace:
    """Seconds a batch of the host's, and of the trainer's."""

    host: float
    step: float
    reading: float
    """Of the host's, that its threads waited for storage."""

    def with_near(self, near: float, link: float, take: float) -> Times:
        """Add the offload worker's figures: a read occupies the link by the clock, and the host by its CPU."""
        near = max(near, _LEAST)
        return Times(host=self.host, near=near, step=self.step, link=link, take=take, reading=self.reading)


class Work(NamedTuple):
    """What the host's threads have done."""

    busy: float = 0.0
    """Seconds of all of them."""
    reading: float = 0.0
    """Of these."""
    images: float = 0.0

    def since(self, before: Work) -> Work:
        """Give what came after."""
        return Work(*(now - then for now, then in zip(self, before, strict=True)))


class Measure:
    """Follows one epoch. The first batch, which has everybody's start in it, does not count."""

    def __init__(
        self, meters: Meters, source_stats: Callable[[], dict[str, float]], *, threads: int, images_a_batch: int
    ) -> None:
        self._meters, self._source_stats = meters, source_stats
        self._threads, self._images_a_batch = threads, images_a_batch
        self._begun: float | None = None
        self._before = Work()
        self._host = 0
        self._host_waited = 0.0
        self._awaited: tuple[float, int] | None = None
        self._host_times: deque[float] = deque(maxlen=_REMEMBERED)

    def count(self, near: bool, waited: float) -> None:
        """Note a batch that is there now, and how long it was waited for."""
        if self._begun is None:
            self._begun = time.perf_counter()
            self._before = self._work()
        elif not near:
            self._count_host(time.perf_counter(), waited)

    def _count_host(self, now: float, waited: float) -> None:
        self._host += 1
        self._host_waited += waited
        if waited > _AT_ONCE:
            if self._awaited is not None:
                then, number = self._awaited
                self._host_times.append((now - then) / (self._host - number))
            self._awaited = (now, self._host)

    def pace(self) -> HostPace | None:
        """Give what was measured; None if nothing was yet."""
        steps = self._meters.steps.copy()
        if self._begun is None or not self._host or not steps:
            return None
        work = self._work().since(self._before)
        saturated = self._host_waited > _WAITING * (time.perf_counter() - self._begun)
        if saturated and self._host_times:
            host = median(self._host_times)
        elif work.images and work.busy:
            host = work.busy / self._threads / work.images * self._images_a_batch
        else:
            return None
        share = work.reading / work.busy if work.busy else 0.0
        return HostPace(max(host, _LEAST), median(steps), share * host)

    def _work(self) -> Work:
        stats = self._source_stats()
        busy = sum(stats.get(name, 0.0) for name in _BUSY)
        return Work(busy, stats.get("read_seconds", 0.0), stats.get("images", 0.0))
