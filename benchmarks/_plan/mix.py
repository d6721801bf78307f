# SPDX-License-Identifier: Apache-2.0
"""The part `mix`: every single format and the plan's mix, predicted and measured, in every environment."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks._plan.cells import Cell, Recipe, measure
from benchmarks._plan.environments import LEAST_SHARE, Environment, environments, is_mix, storage_rates
from benchmarks._plan.stores import Stores
from headrace.planning import Calibration, Grid, Plan, plan, predict, what_if

MIX = "mix"
_CALIBRATED_AGAIN = 2  # when all is measured: what neighbours take of the machine changes


def run(
    stores: Stores,
    calibration: Calibration,
    recipe: Recipe,
    *,
    calibrate: Callable[[], Calibration],
    disk_rate: float,
    cores: Sequence[int],
    rounds: int,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Measure all cells, round after round, each until its turns agree."""
    rates = storage_rates(calibration, disk_rate)
    places = list(environments(calibration, rates, cores))
    plans = {place.name: plan(calibration, place.machine, step=place.step) for place in places}
    paths = {name: stores.single(name) for name in calibration.formats}
    mixed = {place.name: stores.mixed(plans[place.name]) for place in places}
    cells: dict[tuple[str, str], _Wanted] = {}
    for place in places:
        cells |= {(place.name, name): _Wanted(path, place) for name, path in paths.items()}
        if len(plans[place.name].shares) > 1:
            cells[place.name, MIX] = _Wanted(mixed[place.name], place)
    measured = _measure(cells, recipe, rounds=rounds, log=log)
    log("calibrating again")
    calibration = average([calibration, calibration, *(calibrate() for _ in range(_CALIBRATED_AGAIN))])
    for place in places:
        if len(plans[place.name].shares) == 1:  # a plan of one format is that format
            measured[place.name, MIX] = measured[place.name, plans[place.name].shares[0].format]
    rows = [_row(place, plans[place.name], calibration, measured) for place in places]
    return {
        "source_format": calibration.source_format,
        "images": stores.images,
        "batch_size": recipe.batch_size,
        "transforms": [each.to_json() for each in recipe.transform],
        "direct": recipe.direct,
        "disk_rate": disk_rate,
        "storage_rates": rates,
        "calibration": calibration.to_json(),
        "rounds": rounds,
        "environments": rows,
        "unsettled_cells": sum(not cell["settled"] for row in rows for cell in row["cells"]),
        "summary": summarise(rows, calibration.source_format),
    }


@dataclass(frozen=True)
class _Wanted:
    """A cell that is to be measured."""

    dataset: Path
    place: Environment


def _measure(
    cells: Mapping[tuple[str, str], _Wanted],
    recipe: Recipe,
    *,
    rounds: int,
    log: Callable[[str], None],
) -> dict[tuple[str, str], Cell]:
    """Measure all cells, and in later rounds those again whose turns do not agree so far."""
    measured = {key: Cell() for key in cells}
    for number in range(1, rounds + 1):
        wanting = [key for key, cell in measured.items() if not cell.settled]
        for at, key in enumerate(wanting, 1):
            log(f"round {number} of at most {rounds}, {at} of {len(wanting)}: {key[0]}, {key[1]}")
            wanted = cells[key]
            measured[key] += measure(wanted.dataset, recipe, wanted.place)
    return measured


def average(calibrations: Sequence[Calibration]) -> Calibration:
    """Of several calibrations of the same images the mean costs: each finds the machine in another mood."""
    costs = []
    for cost in calibrations[0].costs:
        same = [each.cost(cost.format, cost.place) for each in calibrations]
        crowded = [each.cpu_seconds_crowded for each in same if each.cpu_seconds_crowded is not None]
        costs.append(
            replace(
                cost,
                cpu_seconds=statistics.fmean(each.cpu_seconds for each in same),
                cpu_seconds_crowded=statistics.fmean(crowded) if crowded else None,
            )
        )
    return replace(calibrations[0], costs=tuple(costs))


def _row(
    place: Environment,
    found: Plan,
    calibration: Calibration,
    measured: Mapping[tuple[str, str], Cell],
) -> dict[str, Any]:
    cells = []
    for name in (*calibration.formats, MIX):
        shares = {each.format: each.share for each in found.shares} if name == MIX else name
        predicted = predict(calibration, place.machine, shares, step=place.step).rate
        cell = measured[place.name, name]
        cells.append(
            {
                "format": name,
                "predicted": predicted,
                "measured": cell.rate,
                "settled": cell.settled,
                # Of each its rate and the share of other programs.
                "turns": [(turn.rate, turn.others) for turn in cell.turns],
                "cpu_seconds": cell.cpu_seconds,
            }
        )
    return {
        "regime": place.regime,
        "storage_rate": place.storage_rate,
        "cores": place.cores,
        "trainer": place.trainer,
        "step": place.step,
        "shares": {each.format: each.share for each in found.shares},
        "binds": list(found.predicted.binds),
        "is_mix": is_mix(found),
        "what_if": what_if(calibration, _grid(place)).points[0].rate,
        "cells": cells,
    }


def _grid(place: Environment) -> Grid:
    """The environment as one machine of a what-if, which always has a trainer."""
    return Grid(cores=(place.cores,), storage_rates=(place.storage_rate,), steps=(place.step or 1e-9,))


def of(row: dict[str, Any], name: str, key: str = "measured") -> float:
    return float(next(cell[key] for cell in row["cells"] if cell["format"] == name))


def best_single(row: dict[str, Any]) -> float:
    return max(cell["measured"] for cell in row["cells"] if cell["format"] != MIX)


def summarise(rows: Sequence[dict[str, Any]], baseline: str) -> dict[str, Any]:
    """What the cells come to: the mix beside single formats, and predictions beside measurements."""
    against_single = [of(row, MIX) / best_single(row) for row in rows]
    of_mixes = [(of(row, MIX) / best_single(row), row) for row in rows if row["is_mix"] and row["trainer"] == "none"]
    errors = [cell["predicted"] / cell["measured"] - 1 for row in rows for cell in row["cells"]]
    supposed = [row["what_if"] / of(row, MIX) - 1 for row in rows]
    preparation = [of(row, MIX) / of(row, baseline) for row in rows if row["trainer"] == "none"]
    by_place: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows:
        by_place[row["regime"], row["cores"]].append(of(row, MIX) / of(row, baseline))
    trained = [math.exp(statistics.fmean(map(math.log, gains))) for gains in by_place.values()]
    best = max(of_mixes, key=lambda each: each[0], default=None)
    return {
        "baseline": baseline,
        "mix_to_best_single_least": min(against_single),
        "mix_to_best_single_most": None if best is None else best[0],
        "mix_to_best_single_shares": None if best is None else best[1]["shares"],
        "least_share_counted": LEAST_SHARE,
        "cells": len(errors),
        "within_10_percent": sum(abs(error) <= 0.10 for error in errors) / len(errors),
        "largest_error": max(errors, key=abs),
        "what_if_within_10_percent": sum(abs(error) <= 0.10 for error in supposed) / len(supposed),
        "what_if_largest_error": max(supposed, key=abs),
        "preparation_gain_most": max(preparation),
        "preparation_gain_least": min(preparation),
        "training_gain_most": max(trained),
        "training_gain_least": min(trained),
    }
