# SPDX-License-Identifier: Apache-2.0
"""One measurement: a loader on a dataset in an environment, with a trainer that takes its time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from benchmarks._plan.environments import Environment
from headrace.planning._disturbance import OTHERS, Books
from headrace.planning._turns import held_to

# Batches that are not counted: with them the pipeline fills, and threads start.
_SKIPPED = 2
_LEAST_BATCHES = 2
_SLICE = 0.2  # seconds: shorter than most disturbances
_SLICES = 6  # of a turn, at most
_ENOUGH = 3
_NEAR = 0.10  # above the floor: what samples differ by, and waiting threads cost
_SPARE = 0.6  # of the cores: less work than that waits for nothing but storage or the trainer
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


class Trainer:
    """What stands for an accelerator: it works on a batch while the next is fetched, as kernels are launched ahead."""

    def __init__(self, step: float) -> None:
        self._step, self._free = step, 0.0

    def take(self, batch: Any) -> None:
        """Hand over a batch; wait until the one before it is done."""
        del batch
        now = time.perf_counter()
        begins = max(now, self._free)
        self._free = begins + self._step
        if begins > now:
            time.sleep(begins - now)


@dataclass(frozen=True)
class Slice:
    """Some batches of a cell."""

    samples: int
    seconds: float
    cpu_seconds: float  # of the process
    others: float  # which share of the cores' time went to other programs
    spare: bool  # whether the cores had time to spare, so that their speed decided nothing


@dataclass(frozen=True)
class Cell:
    """What was measured, in as many slices as it took."""

    slices: tuple[Slice, ...]
    floor: float | None = None  # the least CPU time a sample that is known for what is loaded here

    def __add__(self, other: Cell) -> Cell:
        return Cell(self.slices + other.slices, self.floor)

    def above(self, floor: float | None) -> Cell:
        """The same, held against what is known by now."""
        return Cell(self.slices, floor)

    @property
    def alone(self) -> Sequence[Slice]:
        """Slices that had the cores for themselves; all, if none had."""
        return [each for each in self.slices if each.others <= OTHERS] or self.slices

    @property
    def undisturbed(self) -> Sequence[Slice]:
        """Slices that nothing slowed: near the floor, or with time to spare on the cores, which then decide nothing."""
        near = 0.0 if self.floor is None else (1 + _NEAR) * self.floor
        return [each for each in self.alone if each.spare or each.cpu_seconds <= near * each.samples]

    @property
    def counted(self) -> Sequence[Slice]:
        """What nothing slowed; failing that, the third that took least CPU time a sample."""
        least = sorted(self.alone, key=lambda each: each.cpu_seconds / each.samples)[: max(1, len(self.alone) // 3)]
        return self.undisturbed or least

    @property
    def settled(self) -> bool:
        """Whether enough was not slowed."""
        return len(self.undisturbed) >= _ENOUGH

    @property
    def rate(self) -> float:
        return sum(each.samples for each in self.counted) / sum(each.seconds for each in self.counted)

    @property
    def rate_of_all(self) -> float:
        """With what was slowed, too."""
        return sum(each.samples for each in self.slices) / sum(each.seconds for each in self.slices)

    @property
    def cpu_seconds(self) -> float:
        """A sample: tells a disturbed measurement from a wrong cost."""
        return sum(each.cpu_seconds for each in self.counted) / sum(each.samples for each in self.counted)


def measure(dataset: Path, recipe: Recipe, environment: Environment, floor: float | None = None) -> Cell:
    """Load some slices, when everything flows."""
    with held_to(environment.cores), open_loader(dataset, recipe, environment) as loader:
        batches, trainer = iter(loader), Trainer(environment.step)
        for _ in range(_SKIPPED):
            trainer.take(next(batches))
        one_slice(batches, trainer, recipe, environment)  # by its end nothing that was read ahead is left
        return some_slices(batches, trainer, recipe, environment, floor)


def some_slices(
    batches: Iterator[Any], trainer: Trainer, recipe: Recipe, environment: Environment, floor: float | None = None
) -> Cell:
    """As many slices as a turn has; fewer if that is enough."""
    cell = Cell((), floor)
    for _ in range(_SLICES):
        cell += Cell((one_slice(batches, trainer, recipe, environment),))
        if cell.settled:
            break
    return cell


def one_slice(batches: Iterator[Any], trainer: Trainer, recipe: Recipe, environment: Environment) -> Slice:
    """Batches for a fifth of a second or so."""
    books, count = Books.now(), 0
    begun, cpu = time.perf_counter(), time.process_time()
    while count < _LEAST_BATCHES or time.perf_counter() - begun < _SLICE:
        trainer.take(next(batches))
        count += 1
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    spare = cpu < _SPARE * environment.cores * seconds
    return Slice(count * recipe.batch_size, seconds, cpu, Books.now().others_since(books), spare)
