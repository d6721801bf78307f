# SPDX-License-Identifier: Apache-2.0
"""One measurement: a loader on a dataset in an environment, with a trainer that takes its time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
_SLICE = 0.2  # seconds: shorter than most disturbances
_SLICES = 12  # of a turn, at most
_ENOUGH = 3  # of them, for the turn to count
_TURNS = 2  # that agree
_ALIKE = 0.05
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


@dataclass(frozen=True)
class Slice:
    """Some batches of a cell."""

    samples: int
    seconds: float
    cpu_seconds: float  # of the process
    formats: Mapping[str, float]  # which share of the images was of which
    others: float  # which share of the cores' time went to other programs
    spare: bool  # whether the cores had time to spare, so that their speed decided nothing


@dataclass(frozen=True)
class Cell:
    """What was measured, in as many turns as it took, some slices each."""

    turns: tuple[tuple[Slice, ...], ...]
    floors: Mapping[str, float] = field(default_factory=dict)  # the least CPU time that is known, by format

    def __add__(self, other: Cell) -> Cell:
        return Cell(self.turns + other.turns, self.floors)

    def above(self, floors: Mapping[str, float]) -> Cell:
        """The same, held against what is known by now."""
        return Cell(self.turns, floors)

    @property
    def slices(self) -> Sequence[Slice]:
        return [each for turn in self.turns for each in turn]

    @property
    def alone(self) -> Sequence[Slice]:
        """Slices that had the cores for themselves; all, if none had."""
        return [each for each in self.slices if each.others <= OTHERS] or self.slices

    @property
    def undisturbed(self) -> Sequence[Slice]:
        """Slices that nothing slowed."""
        return [each for turn in self._good_turns for each in turn]

    @property
    def _good_turns(self) -> Sequence[Sequence[Slice]]:
        """Of each turn the slices whose cores nothing slowed; of turns those about as fast as the fastest.

        The disk has neighbours, too, which slow it for minutes, and nothing but the rate tells.
        """
        turns = [turn for each in self.turns if len(turn := [s for s in each if self._is_undisturbed(s)]) >= _ENOUGH]
        best = max(map(rate_of, turns), default=0.0)
        return [turn for turn in turns if rate_of(turn) >= (1 - _ALIKE) * best]

    def _is_undisturbed(self, part: Slice) -> bool:
        """Near the floor, or with time to spare on the cores, which then decide nothing."""
        if part.others > OTHERS:
            return False
        if part.spare:
            return True
        if not part.formats.keys() <= self.floors.keys():
            return False
        floor = sum(share * self.floors[name] for name, share in part.formats.items())
        return part.cpu_seconds <= (1 + _NEAR) * floor * part.samples

    @property
    def counted(self) -> Sequence[Slice]:
        """What nothing slowed; failing that, the third that took least CPU time a sample."""
        least = sorted(self.alone, key=lambda each: each.cpu_seconds / each.samples)[: max(1, len(self.alone) // 3)]
        return self.undisturbed or least

    @property
    def settled(self) -> bool:
        """Whether enough turns were not slowed, and agree."""
        return len(self._good_turns) >= _TURNS

    @property
    def rate(self) -> float:
        return rate_of(self.counted)

    @property
    def rate_of_all(self) -> float:
        """With what was slowed, too."""
        return rate_of(self.slices)

    @property
    def cpu_seconds(self) -> float:
        """A sample: tells a disturbed measurement from a wrong cost."""
        return sum(each.cpu_seconds for each in self.counted) / sum(each.samples for each in self.counted)


def rate_of(slices: Sequence[Slice]) -> float:
    """Samples a second."""
    return sum(each.samples for each in slices) / sum(each.seconds for each in slices)


def measure(dataset: Path, recipe: Recipe, environment: Environment, floors: Mapping[str, float]) -> Cell:
    """Load some slices, when everything flows."""
    with held_to(environment.cores), open_loader(dataset, recipe, environment) as loader:
        cutter = Cutter(loader, recipe, environment)
        for _ in range(_SKIPPED):
            cutter.batch()
        cutter.slice()  # by its end nothing that was read ahead is left
        return cutter.turn(floors)


class Cutter:
    """Cuts what a loader gives a trainer into slices."""

    def __init__(self, loader: headrace.Loader, recipe: Recipe, environment: Environment) -> None:
        self._loader, self._recipe, self._environment = loader, recipe, environment
        self._batches, self._trainer = iter(loader), Trainer(environment.step)
        self._last = time.perf_counter()
        self.times: list[float] = []  # that each batch was in coming

    def batch(self) -> None:
        """Train on the next batch."""
        self._trainer.take(next(self._batches))
        now = time.perf_counter()
        self.times.append(now - self._last)
        self._last = now

    def turn(self, floors: Mapping[str, float]) -> Cell:
        """One turn: as many slices as it has; fewer if that is enough."""
        turn: list[Slice] = []
        while len(turn) < _SLICES and len(Cell((tuple(turn),), floors).undisturbed) < _ENOUGH:
            turn.append(self.slice())
        return Cell((tuple(turn),), floors)

    def slice(self) -> Slice:
        """Batches for a fifth of a second or so."""
        books, count, images = Books.now(), 0, self._images()
        begun, cpu = time.perf_counter(), time.process_time()
        while count < _LEAST_BATCHES or time.perf_counter() - begun < _SLICE:
            self.batch()
            count += 1
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        spare = cpu < _SPARE * self._environment.cores * seconds
        loaded = {name: number - images.get(name, 0) for name, number in self._images().items()}
        formats = {name: number / sum(loaded.values()) for name, number in loaded.items() if number}
        samples = count * self._recipe.batch_size
        return Slice(samples, seconds, cpu, formats, Books.now().others_since(books), spare)

    def _images(self) -> dict[str, int]:
        return {name: figures["images"] for name, figures in self._loader.stats()["formats"].items()}
