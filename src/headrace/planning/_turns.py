# SPDX-License-Identifier: Apache-2.0
"""Loaders that take turns over a sample, and what each turn took. `_calibrate` makes costs of it."""

from __future__ import annotations

import collections
import contextlib
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.loader import Loader
from headrace.measuring import MAX_OTHER_LOAD, CpuTimes, repeats_agree
from headrace.records import open_dataset

_MOST_REPEATS = 256
_LEAST_SAMPLES = 16
_SKIPPED = 1  # batches at the beginning of an epoch, while threads start
_HANDED_OVER = 0.1  # of the cores' time, at most: while one waits for storage another thread has to wake up
_MOST_REST, _GLANCE = 2.0, 0.02  # seconds
_IDLE = 0.1  # of a core
_BEYOND = 2  # batches that are left of it, beside those that are under way: so that no thread runs out of work


@contextlib.contextmanager
def held_to(cores: int) -> Iterator[None]:
    """Hold this thread, and those that it starts, to so many cores, where the system can."""
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True, slots=True)
class Store:
    """The sample in one format."""

    format: str
    path: Path
    stored_bytes: float
    encode_seconds: float


@dataclass(frozen=True, slots=True)
class Turn:
    """What a sample took in one turn of a run: of all threads, of the consumer's, by the clock, and in bytes."""

    cpu: float
    consumer: float
    wall: float
    read_bytes: float
    others: float
    """Which share of the cores' time went to other programs."""


@dataclass(slots=True)
class Run:
    """A loader over a store with so many cores at work."""

    store: Store
    options: Mapping[str, Any]
    cores: int
    turns: list[Turn] = field(default_factory=list)
    """Whole epochs: exactly these samples were loaded, at the cost of ends at which cores wait for each other."""
    cached_turns: list[Turn] = field(default_factory=list)
    """Batches from the midst of epochs, of a loader that finds all bytes in memory: cores that idle in these wait
    neither for storage nor for the end. Only where there is more than one core."""
    direct_turns: list[Turn] = field(default_factory=list)
    """The same of a loader that reads past the page cache, where one was asked for."""
    _epochs: Loader | None = None
    _endless: list[tuple[Loader, list[Turn]]] = field(default_factory=list)
    _batches: int = 1

    def prepare(self, seconds: float) -> None:
        """Warm up, and make epochs that last long enough to be measured, and not much longer."""
        n, size = len(open_dataset(self.store.path)), self.options["batch_size"]
        least = min(n, max(_LEAST_SAMPLES, size))
        with held_to(self.cores):
            with self._make(_spread(n, least), direct_io=False) as once:
                begun = time.perf_counter()
                take_epoch(once)
                took = (time.perf_counter() - begun) / least
            wanted = math.ceil(seconds / max(took, 1e-6))
            samples = _spread(n, max(least, min(n, wanted)))
            self._epochs = self._make(np.tile(samples, min(_MOST_REPEATS, max(1, wanted // n))))
            take_epoch(self._epochs)  # starts its threads, which stay on these cores
            if self.cores > 1:
                self._batches = max(1, wanted // size)
                batches = _SKIPPED + self._batches + self._epochs.batches_ahead + _BEYOND
                indices = np.resize(samples, batches * size)
                self._endless.append((self._make(indices, direct_io=False), self.cached_turns))
                if self.options["direct_io"]:
                    self._endless.append((self._make(indices), self.direct_turns))
                for loader, _ in self._endless:
                    take_midst(loader, 1)

    def measure(self) -> None:
        assert self._epochs is not None
        with held_to(self.cores):
            self.turns.append(take_epoch(self._epochs))
            for loader, turns in self._endless:
                turns.append(take_midst(loader, self._batches))

    @property
    def settled(self) -> bool:
        """Whether the best turns agree: then something that slows the machine has not met all of them."""
        return repeats_agree([turn.cpu for turn in alone(self.turns)])

    @property
    def use(self) -> float:
        """Which share of its cores' time the loader can use; a neighbour makes work longer, not the share of it.

        With direct reads work changes hands, and cores idle for a moment. What they idle beyond that is storage's
        doing, and not in the cost of an image.
        """
        cached = self._use_in(self.cached_turns)
        return max(self._use_in(self.direct_turns), (1 - _HANDED_OVER) * cached) if self.direct_turns else cached

    def _use_in(self, turns: Sequence[Turn]) -> float:
        shares = [turn.cpu / (turn.wall * self.cores) for turn in alone(turns)]
        return min(1.0, statistics.median(shares)) if shares else 1.0

    def _make(self, indices: Any, **changes: Any) -> Loader:
        options = {**self.options, **changes}
        return Loader(self.store.path, indices=indices, shuffle=True, num_workers=self.cores, **options)

    def close(self) -> None:
        for loader in (self._epochs, *(endless for endless, _ in self._endless)):
            if loader is not None:
                loader.close()


def alone(turns: Sequence[Turn]) -> Sequence[Turn]:
    """Those that had the cores for themselves; all, if none had."""
    return [turn for turn in turns if turn.others <= MAX_OTHER_LOAD] or turns


def best(turns: Sequence[Turn]) -> list[Turn]:
    """The third that took least CPU time: a neighbour on the same physical core makes a turn slower, never faster."""
    found = sorted(alone(turns), key=lambda turn: turn.cpu)
    return found[: max(1, len(found) // 3)]


def take_epoch(loader: Loader) -> Turn:
    """Load an epoch and do nothing with it."""
    return _timed(loader, lambda: collections.deque(loader, maxlen=0))


def take_midst(loader: Loader, batches: int) -> Turn:
    """Load so many batches from the midst of an epoch, and do nothing with them."""
    iterator = iter(loader)
    for _ in range(_SKIPPED):
        next(iterator)
    turn = _timed(loader, lambda: collections.deque(itertools.islice(iterator, batches), maxlen=0))
    iterator.close()
    _rest()
    return turn


def _rest() -> None:
    """Wait until what was under way when a loader was left has ended: it would be in the CPU time of the next turn."""
    deadline = time.monotonic() + _MOST_REST
    while time.monotonic() < deadline:
        used = time.process_time()
        time.sleep(_GLANCE)
        if time.process_time() - used < _IDLE * _GLANCE:
            return


def _timed(loader: Loader, load: Callable[[], Any]) -> Turn:
    before, times = loader.stats(), CpuTimes.now()
    cpu, own, wall = time.process_time(), time.thread_time(), time.perf_counter()
    load()
    wall, own, cpu = time.perf_counter() - wall, time.thread_time() - own, time.process_time() - cpu
    others = CpuTimes.now().other_load_since(times)
    after = loader.stats()
    samples = after.samples - before.samples
    n_bytes = after.bytes_read - before.bytes_read
    return Turn(
        cpu=cpu / samples,
        consumer=own / samples,
        wall=wall / samples,
        read_bytes=n_bytes / samples,
        others=others,
    )


def _spread(n: int, count: int) -> npt.NDArray[np.int64]:
    """Rows from all over a sample, which lies in the order of its sizes."""
    return np.arange(count, dtype=np.int64) * n // count
