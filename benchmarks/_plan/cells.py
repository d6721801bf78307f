# SPDX-License-Identifier: Apache-2.0
"""One measurement: a loader on a dataset in an environment, with a trainer that takes its time."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from benchmarks._plan.environments import Environment
from benchmarks.speed import Clock
from benchmarks.trainer import Trainer
from headrace.planning._disturbance import OTHERS, Books
from headrace.planning._turns import held_to

# Batches that are not counted: with them the pipeline fills, and threads start.
_SKIPPED = 2
_LEAST_BATCHES = 4
_SLICE = 0.25  # seconds at full speed
_SLICES = 5  # of a turn
_LEAST_SPEED = 0.5  # of the cores: below that, nobody knows what a slice is worth
_TURNS = 3  # at least
_ALIKE = 0.10
_ERROR = 0.01  # of a cell's rate, as its turns have it: so little, and it is settled
_MOST_SAMPLES = 400_000
_PAUSE = 0.03  # seconds after which storage goes as fast as the cores do by then


@dataclass(frozen=True)
class Recipe:
    """How a source is loaded."""

    transform: Sequence[Any]
    batch_size: int
    direct: bool


def long_epoch(dataset: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Indices for an epoch that no measurement comes to the end of."""
    n = len(headrace.open(dataset))
    return np.tile(np.arange(n), -(-_MOST_SAMPLES // n))


def open_loader(dataset: Path, recipe: Recipe, environment: Environment, **more: Any) -> headrace.Loader:
    """The loader of a cell. Call it held to the environment's cores: its threads stay there."""
    return headrace.Loader(
        dataset,
        batch_size=recipe.batch_size,
        transform=list(recipe.transform),
        indices=long_epoch(dataset),
        shuffle=True,
        num_workers=environment.cores,
        output="numpy",
        direct=recipe.direct,
        storage_rate=environment.storage_rate,
        **more,
    )


@dataclass(frozen=True)
class Slice:
    """Some batches of a cell, in seconds at full speed."""

    samples: int
    seconds: float
    cpu_seconds: float  # of the process
    others: float  # which share of the cores' time went to other programs
    speed: float  # of the cores, on average

    @property
    def counts(self) -> bool:
        """Whether the cores were there, and fast enough for their clocks to be trusted."""
        return self.others <= OTHERS and self.speed >= _LEAST_SPEED


@dataclass(frozen=True)
class Cell:
    """What was measured, in as many turns as it took, some slices each."""

    turns: tuple[tuple[Slice, ...], ...]

    def __add__(self, other: Cell) -> Cell:
        return Cell(self.turns + other.turns)

    @property
    def slices(self) -> Sequence[Slice]:
        return [each for turn in self.turns for each in turn]

    @property
    def _good_turns(self) -> Sequence[Sequence[Slice]]:
        """Of each turn the slices that count; of turns those about as fast as the fastest.

        The disk has neighbours, too, which slow it for minutes, and nothing but the rate tells.
        """
        turns = [turn for each in self.turns if (turn := [part for part in each if part.counts])]
        best = max(map(rate_of, turns), default=0.0)
        return [turn for turn in turns if rate_of(turn) >= (1 - _ALIKE) * best]

    @property
    def counted(self) -> Sequence[Slice]:
        """What counts; all, if nothing does."""
        return [each for turn in self._good_turns for each in turn] or self.slices

    @property
    def error(self) -> float:
        """How far the rate may be off, as a part of it: the standard error of the turns."""
        rates = [rate_of(turn) for turn in self._good_turns]
        if len(rates) < _TURNS:
            return math.inf
        return statistics.stdev(rates) / statistics.fmean(rates) / math.sqrt(len(rates))

    @property
    def settled(self) -> bool:
        """Whether enough turns agree."""
        return self.error <= _ERROR

    @property
    def rate(self) -> float:
        return rate_of(self.counted)

    @property
    def cpu_seconds(self) -> float:
        """A sample: tells a disturbed measurement from a wrong cost."""
        return sum(each.cpu_seconds for each in self.counted) / sum(each.samples for each in self.counted)


def rate_of(slices: Sequence[Slice]) -> float:
    """Samples a second."""
    return sum(each.samples for each in slices) / sum(each.seconds for each in slices)


def measure(dataset: Path, recipe: Recipe, environment: Environment, clock: Clock) -> Cell:
    """Load some slices, when everything flows."""
    with cutter_of(dataset, recipe, environment, clock) as cutter:
        for _ in range(_SKIPPED):
            cutter.batch()
        cutter.slice()  # by its end nothing that was read ahead is left
        return cutter.turn()


@contextmanager
def cutter_of(dataset: Path, recipe: Recipe, environment: Environment, clock: Clock) -> Iterator[Cutter]:
    """Open a dataset in an environment; storage slows down with the cores."""
    with held_to(environment.cores), open_loader(dataset, recipe, environment) as loader:
        cutter, ended = Cutter(loader, recipe, environment, clock), threading.Event()
        pacer = threading.Thread(target=cutter.pace, args=(ended,), daemon=True)
        pacer.start()
        try:
            yield cutter
        finally:
            ended.set()
            pacer.join()


class Cutter:
    """Cuts what a loader gives a trainer into slices; the trainer goes by the clock of the cores, as the slices do."""

    def __init__(self, loader: headrace.Loader, recipe: Recipe, environment: Environment, clock: Clock) -> None:
        self._loader, self._recipe, self._clock = loader, recipe, clock
        self._batches, self._trainer = iter(loader), Trainer(environment.step, clock.now)
        self.storage_rate = environment.storage_rate
        self._last = clock.now()
        self.times: list[float] = []  # that each batch was in coming

    def pace(self, ended: threading.Event) -> None:
        """Have storage go as fast as the cores do."""
        while not ended.wait(_PAUSE):
            self._loader._set_storage_rate(self.storage_rate * self._clock.speed)  # noqa: SLF001 - for such as this

    def batch(self) -> None:
        """Train on the next batch."""
        self._trainer.take(next(self._batches))
        now = self._clock.now()
        self.times.append(now - self._last)
        self._last = now

    def turn(self) -> Cell:
        return Cell((tuple(self.slice() for _ in range(_SLICES)),))

    def slice(self) -> Slice:
        """Batches for a quarter of a second or so."""
        books, count = Books.now(), 0
        begun, real, cpu = self._clock.now(), time.perf_counter(), time.process_time()
        while count < _LEAST_BATCHES or self._clock.now() - begun < _SLICE:
            self.batch()
            count += 1
        seconds, cpu = self._clock.now() - begun, time.process_time() - cpu
        speed = seconds / (time.perf_counter() - real)
        return Slice(count * self._recipe.batch_size, seconds, speed * cpu, Books.now().others_since(books), speed)
