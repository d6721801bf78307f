# SPDX-License-Identifier: Apache-2.0
"""Loaders that take turns over a sample, and what each turn took. `_calibrate` makes costs of it."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.loader import Loader
from headrace.planning._disturbance import OTHERS, Books, settled
from headrace.records import open_dataset

_MOST_REPEATS = 256
_LEAST_SAMPLES = 16


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
    cached_turns: list[Turn] = field(default_factory=list)
    """Of a loader that finds all bytes in memory: cores that idle in these wait for each other, not for storage."""
    loaders: list[tuple[Loader, list[Turn]]] = field(default_factory=list)

    def prepare(self, seconds: float) -> None:
        """Warm up, and make epochs that last long enough to be measured, and not much longer."""
        n = len(open_dataset(self.store.path))
        least = min(n, max(_LEAST_SAMPLES, self.options["batch_size"]))
        with held_to(self.cores):
            with self._make(_spread(n, least), direct=False) as once:
                begun = time.perf_counter()
                take_turn(once)
                took = (time.perf_counter() - begun) / least
            wanted = math.ceil(seconds / max(took, 1e-6))
            indices = np.tile(_spread(n, max(least, min(n, wanted))), min(_MOST_REPEATS, max(1, wanted // n)))
            self.loaders.append((self._make(indices), self.turns))
            if self.options["direct"]:
                self.loaders.append((self._make(indices, direct=False), self.cached_turns))
            else:
                self.cached_turns = self.turns
            for loader, _ in self.loaders:
                take_turn(loader)  # starts its threads, which stay on these cores

    def measure(self) -> None:
        with held_to(self.cores):
            for loader, turns in self.loaders:
                turns.append(take_turn(loader))

    @property
    def settled(self) -> bool:
        """Whether the best turns agree: then something that slows the machine has not met all of them."""
        return all(settled([turn.cpu for turn in alone(found)]) for _, found in self.loaders)

    def _make(self, indices: Any, **changes: Any) -> Loader:
        options = {**self.options, **changes}
        return Loader(self.store.path, indices=indices, shuffle=True, num_workers=self.cores, **options)

    def close(self) -> None:
        for loader, _ in self.loaders:
            loader.close()


def alone(turns: Sequence[Turn]) -> Sequence[Turn]:
    """Those that had the cores for themselves; all, if none had."""
    return [turn for turn in turns if turn.others <= OTHERS] or turns


def best(turns: Sequence[Turn]) -> list[Turn]:
    """The third that took least CPU time: a neighbour on the same physical core makes a turn slower, never faster."""
    found = sorted(alone(turns), key=lambda turn: turn.cpu)
    return found[: max(1, len(found) // 3)]


def take_turn(loader: Loader) -> Turn:
    """Load an epoch and do nothing with it."""
    before, books = loader.stats(), Books.now()
    cpu, own, wall = time.process_time(), time.thread_time(), time.perf_counter()
    for _ in loader:
        pass
    wall, own, cpu = time.perf_counter() - wall, time.thread_time() - own, time.process_time() - cpu
    others = Books.now().others_since(books)
    after = loader.stats()
    samples = after["samples"] - before["samples"]
    n_bytes = after.get("bytes_read", 0) - before.get("bytes_read", 0)
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
