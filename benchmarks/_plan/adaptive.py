# SPDX-License-Identifier: Apache-2.0
"""The part `adaptive`: two renditions of every image, and storage that drops to a third in the middle of an epoch."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks._plan.cells import Cell, Course, Recipe, measure, open_loader
from benchmarks._plan.environments import Environment, balanced_rate
from benchmarks._plan.stores import Stores
from headrace.planning import Calibration, plan
from headrace.planning._turns import held_to

DROP = 3.0
SETTLED = 0.05
BATCHES_GIVEN = 20


def run(
    stores: Stores,
    calibration: Calibration,
    recipe: Recipe,
    *,
    disk_rate: float,
    cores: int,
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
    earlier = later = goal = free = Cell()
    settled: list[int] = []
    for _ in range(rounds):
        if not later.settled:
            begun, ended, times = _epoch(dataset, recipe, before, after)
            earlier, later = earlier + begun, later + ended
            settled.append(_settled_after(times, recipe.batch_size, ended.rate))
        if not goal.settled:
            goal += measure(replanned, recipe, after)
        if not free.settled:
            free += measure(unconfined, recipe, after)
        if later.settled and goal.settled and free.settled:
            break
    return {
        "source_format": calibration.source_format,
        "formats": [each.format for each in two.shares],
        "cores": cores,
        "storage_rate": before.storage_rate,
        "storage_rate_after": after.storage_rate,
        "rate_before": earlier.rate,
        "rate_after": later.rate,
        "rate_replanned": goal.rate,
        "rate_replanned_all_formats": free.rate,
        "rate_replanned_predicted": new.predicted.rate,
        "ratio": later.rate / goal.rate,
        "ratio_all_formats": later.rate / free.rate,
        "settled_after_batches": statistics.median(settled) if settled else None,
        "settled": [cell.settled for cell in (later, goal, free)],
    }


def _epoch(dataset: Path, recipe: Recipe, before: Environment, after: Environment) -> tuple[Cell, Cell, list[float]]:
    """The rate before storage changes, the rate from 20 batches after it on, and the seconds of those 20 and more."""
    with held_to(before.cores), open_loader(dataset, recipe, before) as loader:
        course = Course(loader, before)
        course.settle()
        begun = course.turn()
        loader._set_storage_rate(after.storage_rate)  # noqa: SLF001 - for such as this
        changed = len(course.times)
        for _ in range(BATCHES_GIVEN):
            course.batch()
        return begun, course.turn(), course.times[changed:]


def _rate(times: list[float], batch_size: int) -> float:
    return batch_size * len(times) / sum(times)


def _settled_after(times: list[float], batch_size: int, end: float, window: int = 10) -> int:
    """Batches after the change until a window of them is within 5 % of the rate at the end."""
    for number in range(len(times) - window):
        if abs(_rate(times[number : number + window], batch_size) / end - 1) <= SETTLED:
            return number
    return len(times)
