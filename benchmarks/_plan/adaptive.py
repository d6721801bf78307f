# SPDX-License-Identifier: Apache-2.0
"""The part `adaptive`: two renditions of every image, and storage that drops to a third in the middle of an epoch."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks._plan.environments import Environment, balanced_rate
from benchmarks._plan.measure import Datasets, Rate, Recipe, Stream, measure, open_loader
from headrace.loader import limit_storage
from headrace.planning import Calibration, solve

_DROP = 3.0
_ADAPTED = 0.05  # within this of the final rate
_WINDOW = 10  # batches
_BATCHES_GIVEN = 20  # to adapt, before the rate is measured


def run(
    datasets: Datasets,
    calibration: Calibration,
    recipe: Recipe,
    *,
    max_storage_rate: float,
    cores: int,
    repeats: int,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Compare the rate after the drop with that of a plan made for the slower storage."""
    before = Environment("balanced", balanced_rate(calibration, cores, max_storage_rate), cores, "none", 0.0)
    after = replace(before, storage_rate=before.storage_rate / _DROP)
    two = solve(calibration, before.machine, renditions=2)
    names = [each.format for each in two.shares]
    log(f"{datasets.source.name}: two renditions, {' and '.join(names)}, {cores} cores")
    dataset = datasets.mixed(two)
    replanned = datasets.mixed(solve(calibration, after.machine, formats=names))
    rates = {name: Rate() for name in ("before", "after", "replanned")}
    batches = []
    for _ in range(repeats):
        fast, slow, seconds = _epoch(dataset, recipe, before, after)
        rates["before"].repeats.append(fast)
        rates["after"].repeats.append(slow)
        rates["replanned"].repeats.append(measure(replanned, recipe, after))
        batches.append(_adapted_after(seconds, recipe.batch_size, slow))
    return {
        "source_format": calibration.source_format,
        "formats": names,
        "cores": cores,
        "storage_rate": before.storage_rate,
        "storage_rate_after": after.storage_rate,
        **{f"rate_{name}": rate.value for name, rate in rates.items()},
        "ratio": rates["after"].value / rates["replanned"].value,
        "adapted_after_batches": statistics.median(batches),
    }


def _epoch(dataset: Path, recipe: Recipe, before: Environment, after: Environment) -> tuple[float, float, list[float]]:
    """Return the rates before and after the drop, and the seconds per batch since the drop."""
    with machine.held_to(before.cores), open_loader(dataset, recipe, before) as loader:
        stream = Stream(loader, before)
        fast = stream.repeat()
        limit_storage(loader, after.storage_rate)
        dropped = len(stream.seconds)
        stream.take(_BATCHES_GIVEN)
        return fast, stream.repeat(), stream.seconds[dropped:]


def _adapted_after(seconds: Sequence[float], batch_size: int, final_rate: float) -> int:
    """Return after how many batches a window of them is within 5 % of the final rate."""
    for n in range(len(seconds) - _WINDOW):
        rate = batch_size * _WINDOW / sum(seconds[n : n + _WINDOW])
        if abs(rate / final_rate - 1) <= _ADAPTED:
            return n
    return len(seconds)
