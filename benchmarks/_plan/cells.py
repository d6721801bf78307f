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
from headrace.planning._pace import OTHERS, Pace, Stretch
from headrace.planning._turns import held_to

# Batches that are not counted: with them the pipeline fills, and threads start.
_SKIPPED = 2
_LEAST_BATCHES = 2
_SLICE = 0.25  # seconds: shorter than most disturbances
_SPARE = 0.5  # of the cores: less work than that waits for nothing but storage or the trainer
_PATIENCE = 1.5  # seconds at least: who has not been left alone by then gets another turn
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
    stretch: Stretch
    spare: bool  # whether the cores had time to spare, so that their speed decided nothing

    @property
    def counts(self) -> bool:
        return self.stretch.quiet or (self.spare and self.stretch.others <= OTHERS)


@dataclass(frozen=True)
class Cell:
    """What was measured, in as many slices as it took."""

    slices: tuple[Slice, ...]

    def __add__(self, other: Cell) -> Cell:
        return Cell(self.slices + other.slices)

    @property
    def counted(self) -> Sequence[Slice]:
        """Slices that nothing slowed; if there are none, the third that was slowed least."""
        found = [each for each in self.slices if each.counts]
        return found or sorted(self.slices, key=lambda each: each.stretch.pace)[: -(-len(self.slices) // 3)]

    @property
    def counted_seconds(self) -> float:
        return sum(each.seconds for each in self.slices if each.counts)

    @property
    def disturbed(self) -> bool:
        return not any(each.counts for each in self.slices)

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


def measure(dataset: Path, recipe: Recipe, environment: Environment, seconds: float, pace: Pace) -> Cell:
    """Load until slices of `seconds` in all have counted, when everything flows."""
    with held_to(environment.cores), open_loader(dataset, recipe, environment) as loader:
        batches, trainer = iter(loader), Trainer(environment.step)
        for _ in range(_SKIPPED):
            trainer.take(next(batches))
        one_slice(batches, trainer, recipe, environment, pace)  # by its end nothing that was read ahead is left
        return slices_of(batches, trainer, recipe, environment, seconds, pace)


def slices_of(
    batches: Iterator[Any], trainer: Trainer, recipe: Recipe, environment: Environment, seconds: float, pace: Pace
) -> Cell:
    """Slices until enough have counted, or patience is at its end."""
    cell = Cell(())
    last = time.perf_counter() + max(_PATIENCE, 2 * seconds)
    while cell.counted_seconds < seconds and time.perf_counter() < last:
        cell += Cell((one_slice(batches, trainer, recipe, environment, pace),))
    return cell


def one_slice(batches: Iterator[Any], trainer: Trainer, recipe: Recipe, environment: Environment, pace: Pace) -> Slice:
    """Batches for a quarter of a second or so."""
    pace.begin()
    begun, cpu, count = time.perf_counter(), time.process_time(), 0
    while count < _LEAST_BATCHES or time.perf_counter() - begun < _SLICE:
        trainer.take(next(batches))
        pace.look()
        count += 1
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    spare = cpu < _SPARE * environment.cores * seconds
    return Slice(count * recipe.batch_size, seconds, cpu, pace.end(), spare)
