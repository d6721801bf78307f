# SPDX-License-Identifier: Apache-2.0
"""One measurement: a loader on a dataset in an environment, with a trainer that takes its time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from benchmarks._plan.environments import Environment
from benchmarks.trainer import Trainer
from headrace.planning._disturbance import OTHERS, Books
from headrace.planning._turns import held_to

# Batches that are not counted: with them the pipeline fills, and threads start.
_SKIPPED = 2
_LEAST_BATCHES = 4
_SETTLING = 0.25  # seconds
_SECONDS = 0.5  # of a turn
# Of the turns the fastest third counts, as in a calibration, and three at least: neighbours of the machine and of its
# disk only slow, and nothing else tells of them.
_LEAST_COUNTED = 3
_LEAST_TURNS = 6  # a neighbour may stay for minutes: fewer might all be its
_ALIKE = 0.02  # how far those may lie apart
_MOST_SAMPLES = 400_000


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
class Turn:
    """Some batches of a cell."""

    samples: int
    seconds: float
    cpu_seconds: float  # of the process
    others: float  # which share of the cores' time went to other programs

    @property
    def rate(self) -> float:
        """Samples a second."""
        return self.samples / self.seconds


@dataclass(frozen=True)
class Cell:
    """What was measured, in as many turns as it took."""

    turns: tuple[Turn, ...] = ()

    def __add__(self, other: Cell) -> Cell:
        return Cell(self.turns + other.turns)

    @property
    def counted(self) -> Sequence[Turn]:
        """The fastest turns of those that had the cores for themselves; of all, if none had."""
        alone = [turn for turn in self.turns if turn.others <= OTHERS] or self.turns
        return sorted(alone, key=lambda turn: turn.rate, reverse=True)[: max(_LEAST_COUNTED, len(alone) // 3)]

    @property
    def settled(self) -> bool:
        """Whether the fastest turns agree."""
        rates = [turn.rate for turn in self.counted]
        enough = len(self.turns) >= _LEAST_TURNS and len(rates) >= _LEAST_COUNTED
        return enough and rates[-1] >= (1 - _ALIKE) * rates[0]

    @property
    def rate(self) -> float:
        return sum(turn.samples for turn in self.counted) / sum(turn.seconds for turn in self.counted)

    @property
    def cpu_seconds(self) -> float:
        """A sample: tells a disturbed measurement from a wrong cost."""
        return sum(turn.cpu_seconds for turn in self.counted) / sum(turn.samples for turn in self.counted)


def measure(dataset: Path, recipe: Recipe, environment: Environment) -> Cell:
    """Load for a turn, when everything flows."""
    with held_to(environment.cores), open_loader(dataset, recipe, environment) as loader:
        course = Course(loader, environment)
        course.settle()
        return course.turn()


class Course:
    """Takes a loader's batches to a trainer, in turns."""

    def __init__(self, loader: headrace.Loader, environment: Environment) -> None:
        self._batches, self._trainer = iter(loader), Trainer(environment.step)
        self._batch_size = loader.batch_size
        self._last = time.perf_counter()
        self.times: list[float] = []  # that each batch was in coming

    def batch(self) -> None:
        """Train on the next batch."""
        self._trainer.take(next(self._batches))
        now = time.perf_counter()
        self.times.append(now - self._last)
        self._last = now

    def settle(self) -> None:
        """Take batches until nothing that was read ahead is left."""
        for _ in range(_SKIPPED):
            self.batch()
        self._take(_SETTLING)

    def turn(self) -> Cell:
        books = Books.now()
        begun, cpu = time.perf_counter(), time.process_time()
        samples = self._take(_SECONDS) * self._batch_size
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        return Cell((Turn(samples, seconds, cpu, Books.now().others_since(books)),))

    def _take(self, seconds: float) -> int:
        """Take batches for so long; gives how many."""
        begun, count = time.perf_counter(), 0
        while count < _LEAST_BATCHES or time.perf_counter() - begun < seconds:
            self.batch()
            count += 1
        return count
