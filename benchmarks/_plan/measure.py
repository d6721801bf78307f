# SPDX-License-Identifier: Apache-2.0
"""The rate of a loader on emulated storage, with a trainer that takes its time; and the datasets that it loads."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from benchmarks import machine
from benchmarks._plan.environments import Environment
from benchmarks.trainer import Trainer
from headrace.loader import limit_storage
from headrace.planning import Plan

_WARM_UP_BATCHES = 2
_WARM_UP_SECONDS = 0.25
_SECONDS = 0.5  # of a repeat
_MIN_BATCHES = 4  # of a repeat
_MAX_SAMPLES = 400_000  # no measurement comes to the end of such an epoch


@dataclass(frozen=True)
class Recipe:
    """How a dataset is loaded."""

    transform: Sequence[Any]
    batch_size: int
    direct: bool


@dataclass
class Rate:
    """Samples per second, from several repeats.

    Other load on the machine only ever slows a repeat down, so the fastest third of them counts, and at least two.
    """

    repeats: list[float] = field(default_factory=list)

    @property
    def value(self) -> float:
        counted = sorted(self.repeats, reverse=True)[: max(2, len(self.repeats) // 3)]
        return sum(counted) / len(counted)


class Datasets:
    """One folder of images as datasets, which are built on first use and kept for the next run."""

    def __init__(self, store: Path, source: Path) -> None:
        digest = hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:8]
        self.source, self.folder = source, store / f"{source.resolve().name}-{digest}"

    def single(self, format_name: str) -> Path:
        """Return all images in one format."""
        return self._built(format_name.replace(":", "-"), format=format_name)

    def mixed(self, plan: Plan) -> Path:
        """Return all images as the plan has them."""
        if len(plan.shares) == 1:
            return self.single(plan.shares[0].format)
        document = plan.to_json()
        name = hashlib.sha256(json.dumps(document["fields"], sort_keys=True).encode()).hexdigest()[:12]
        return self._built(f"plan-{name}", plan=document)

    def drop_plans(self) -> None:
        """Remove mixes: the next calibration leads to others."""
        for path in self.folder.glob("plan-*"):
            shutil.rmtree(path)

    def _built(self, name: str, **options: Any) -> Path:
        path = self.folder / name
        if not (path / "dataset.json").exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            headrace.build(self.source, path, **options)
        return path


def open_loader(dataset: Path, recipe: Recipe, environment: Environment) -> headrace.Loader:
    """Open a loader on emulated storage. Call it while held to the environment's cores: its threads stay there."""
    n = len(headrace.open(dataset))
    loader = headrace.Loader(
        dataset,
        batch_size=recipe.batch_size,
        transform=list(recipe.transform),
        indices=np.tile(np.arange(n), -(-_MAX_SAMPLES // n)),
        shuffle=True,
        num_workers=environment.cores,
        output="numpy",
        direct_io=recipe.direct,
    )
    limit_storage(loader, environment.storage_rate)
    return loader


def measure(dataset: Path, recipe: Recipe, environment: Environment) -> float:
    """Return the rate of one repeat."""
    with machine.held_to(environment.cores), open_loader(dataset, recipe, environment) as loader:
        return Stream(loader, environment).repeat()


class Stream:
    """Takes batches from a loader to a trainer; what was read ahead is taken first."""

    def __init__(self, loader: headrace.Loader, environment: Environment) -> None:
        self._batches, self._trainer = iter(loader), Trainer(environment.step_seconds)
        self._batch_size = loader.batch_size
        self._last = time.perf_counter()
        self.seconds: list[float] = []
        """From each batch to the next."""
        self.take(_WARM_UP_BATCHES)
        self._take_for(_WARM_UP_SECONDS)

    def take(self, n: int) -> None:
        """Train on `n` batches."""
        for _ in range(n):
            self._trainer.take(next(self._batches))
            now = time.perf_counter()
            self.seconds.append(now - self._last)
            self._last = now

    def repeat(self) -> float:
        """Train for half a second; return samples per second."""
        begun = time.perf_counter()
        n = self._take_for(_SECONDS)
        return n * self._batch_size / (time.perf_counter() - begun)

    def _take_for(self, seconds: float) -> int:
        begun, n = time.perf_counter(), 0
        while n < _MIN_BATCHES or time.perf_counter() - begun < seconds:
            self.take(1)
            n += 1
        return n
