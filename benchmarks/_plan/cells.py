# SPDX-License-Identifier: Apache-2.0
"""One measurement: a loader on a dataset in an environment, with a trainer that sleeps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from benchmarks._plan.environments import Environment
from headrace.planning._calibrate import held_to

# Batches that are not counted: with them the pipeline fills, and threads start.
_SKIPPED = 2
_LEAST_BATCHES = 3
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
class Cell:
    """What was measured."""

    rate: float  # samples a second
    cpu_seconds: float  # of the process, a sample: tells a disturbed measurement from a wrong cost


def measure(dataset: Path, recipe: Recipe, environment: Environment, seconds: float) -> Cell:
    """From the end of one batch to the end of another, when everything flows."""
    with held_to(environment.cores), open_loader(dataset, recipe, environment) as loader:
        batches = iter(loader)
        for _ in range(_SKIPPED):
            _train(next(batches), environment.step)
        begun, cpu, count = time.perf_counter(), time.process_time(), 0
        while count < _LEAST_BATCHES or time.perf_counter() - begun < seconds:
            _train(next(batches), environment.step)
            count += 1
        samples = count * recipe.batch_size
        return Cell(samples / (time.perf_counter() - begun), (time.process_time() - cpu) / samples)


def _train(batch: Any, step: float) -> None:
    """What stands for an accelerator: the consumer's thread does nothing for so long."""
    del batch
    if step:
        time.sleep(step)
