# SPDX-License-Identifier: Apache-2.0
"""The part `adaptive`: two renditions of every image, and storage that drops to a third in the middle of an epoch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks._plan.cells import Recipe, measure, open_loader
from benchmarks._plan.environments import Environment, balanced_rate
from benchmarks._plan.stores import Stores
from headrace.planning import Calibration, plan
from headrace.planning._calibrate import held_to

DROP = 3.0
SETTLED = 0.05
BATCHES_GIVEN = 20
_BEFORE, _AFTER = 30, 80


def run(
    stores: Stores,
    calibration: Calibration,
    recipe: Recipe,
    *,
    disk_rate: float,
    cores: int,
    seconds: float,
    rounds: int,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Measure the rate after the drop, batch by batch, beside that of a plan made for the new environment."""
    before = Environment("balanced", balanced_rate(calibration, cores, disk_rate), cores, "none", 0.0)
    after = replace(before, storage_rate=before.storage_rate / DROP)
    two = plan(calibration, before.machine, renditions=2)
    new = plan(calibration, after.machine, formats=[each.format for each in two.shares])
    best = plan(calibration, after.machine)
    log(f"two renditions: {', '.join(each.format for each in two.shares)}")
    dataset, replanned, unconfined = stores.mixed(two), stores.mixed(new), stores.mixed(best)
    runs, goals, frees = [], [], []
    for _ in range(rounds):
        runs.append(_epoch(dataset, recipe, before, after))
        goals.append(measure(replanned, recipe, after, seconds).rate)
        frees.append(measure(unconfined, recipe, after, seconds).rate)
    # Of each the fastest run: what disturbs one only slows it.
    goal, free = max(goals), max(frees)
    settled = [_rate(times[_BEFORE + BATCHES_GIVEN :], recipe.batch_size) for times in runs]
    return {
        "source_format": calibration.source_format,
        "formats": [each.format for each in two.shares],
        "cores": cores,
        "storage_rate": before.storage_rate,
        "storage_rate_after": after.storage_rate,
        "rate_before": statistics.median(_rate(times[10:_BEFORE], recipe.batch_size) for times in runs),
        "rate_after": max(settled),
        "rate_replanned": goal,
        "rate_replanned_all_formats": free,
        "rate_replanned_predicted": new.predicted.rate,
        "ratio": max(settled) / goal,
        "ratio_all_formats": max(settled) / free,
        "settled_after_batches": statistics.median(_settled_after(times, recipe.batch_size) for times in runs),
        "batch_seconds": runs[0],
    }


def _epoch(dataset: Any, recipe: Recipe, before: Environment, after: Environment) -> list[float]:
    """Seconds of each batch; storage changes after some."""
    times = []
    with held_to(before.cores), open_loader(dataset, recipe, before) as loader:
        batches = iter(loader)
        next(batches)
        last = time.perf_counter()
        for number in range(_BEFORE + _AFTER):
            if number == _BEFORE:
                loader._set_storage_rate(after.storage_rate)  # noqa: SLF001 - for measurements such as this one
            next(batches)
            now = time.perf_counter()
            times.append(now - last)
            last = now
    return times


def _rate(times: list[float], batch_size: int) -> float:
    return batch_size * len(times) / sum(times)


def _settled_after(times: list[float], batch_size: int, window: int = 10) -> int:
    """Batches after the drop until a window of them is within 5 % of the rate at the end."""
    after = times[_BEFORE:]
    end = _rate(after[BATCHES_GIVEN:], batch_size)
    for number in range(len(after) - window):
        if abs(_rate(after[number : number + window], batch_size) / end - 1) <= SETTLED:
            return number
    return len(after)
