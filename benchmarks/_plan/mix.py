# SPDX-License-Identifier: Apache-2.0
"""The part `mix`: every single format and the plan's mix, predicted and measured, in every environment."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks._plan.environments import Environment, environments, is_mix, storage_rates
from benchmarks._plan.measure import Datasets, Rate, Recipe, measure
from headrace.planning import Calibration, Plan, predict, solve

MIX = "mix"


def run(
    datasets: Datasets,
    calibration: Calibration,
    recipe: Recipe,
    *,
    calibrate: Callable[[], Calibration],
    max_storage_rate: float,
    cores: Sequence[int],
    repeats: int,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Measure everything in rounds, then calibrate again: predictions use the mean of before and after."""
    rates = storage_rates(calibration, max_storage_rate)
    places = list(environments(calibration, rates, cores))
    plans = {place.name: solve(calibration, place.machine, step=place.step_seconds) for place in places}
    paths = {(place.name, name): datasets.single(name) for place in places for name in calibration.formats}
    paths |= {(name, MIX): datasets.mixed(found) for name, found in plans.items() if len(found.shares) > 1}
    by_name = {place.name: place for place in places}
    measured: dict[tuple[str, str], Rate] = {key: Rate() for key in paths}
    for number in range(repeats):
        log(f"{datasets.source.name}: repeat {number + 1} of {repeats}, {len(paths)} measurements")
        for key, path in paths.items():
            measured[key].repeats.append(measure(path, recipe, by_name[key[0]]))
    for name, found in plans.items():
        if len(found.shares) == 1:  # a plan of one format is that format
            measured[name, MIX] = measured[name, found.shares[0].format]
    log(f"{datasets.source.name}: calibrating again")
    calibration = average([calibration, calibrate()])
    rows = [_row(place, plans[place.name], calibration, measured) for place in places]
    return {
        "source_format": calibration.source_format,
        "images": calibration.images,
        "batch_size": recipe.batch_size,
        "transforms": [each.to_json() for each in recipe.transform],
        "direct": recipe.direct,
        "storage_rates": rates,
        "environments": rows,
        "summary": summarise(rows, calibration.source_format),
    }


def average(calibrations: Sequence[Calibration]) -> Calibration:
    """Return the mean costs of several calibrations of the same images."""
    costs = []
    for cost in calibrations[0].costs:
        same = [each.cost(cost.format) for each in calibrations]
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
    place: Environment, found: Plan, calibration: Calibration, measured: Mapping[tuple[str, str], Rate]
) -> dict[str, Any]:
    shares = {each.format: each.share for each in found.shares}
    return {
        "regime": place.regime,
        "cores": place.cores,
        "trainer": place.trainer,
        "step_seconds": place.step_seconds,
        "shares": shares,
        "is_mix": is_mix(found),
        "rates": [
            {
                "format": name,
                "predicted": predict(
                    calibration, place.machine, shares if name == MIX else name, step=place.step_seconds
                ).rate,
                "measured": measured[place.name, name].value,
                "repeats": measured[place.name, name].repeats,
            }
            for name in (*calibration.formats, MIX)
        ],
    }


def of(row: Mapping[str, Any], name: str) -> float:
    """Return the measured rate of a format."""
    return float(next(rate["measured"] for rate in row["rates"] if rate["format"] == name))


def best_single(row: Mapping[str, Any]) -> float:
    return max(rate["measured"] for rate in row["rates"] if rate["format"] != MIX)


def summarise(rows: Sequence[Mapping[str, Any]], baseline: str) -> dict[str, Any]:
    """Compare the mix with single formats, and predictions with measurements."""
    mixes = [(of(row, MIX) / best_single(row), row) for row in rows if row["is_mix"] and row["trainer"] == "none"]
    errors = [rate["predicted"] / rate["measured"] - 1 for row in rows for rate in row["rates"]]
    loading = [of(row, MIX) / of(row, baseline) for row in rows if row["trainer"] == "none"]
    by_place: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows:
        by_place[row["regime"], row["cores"]].append(of(row, MIX) / of(row, baseline))
    training = [math.exp(statistics.fmean(map(math.log, gains))) for gains in by_place.values()]
    best = max(mixes, key=lambda each: each[0], default=None)
    return {
        "mix_to_best_single_min": min(of(row, MIX) / best_single(row) for row in rows),
        "mix_to_best_single_max": None if best is None else best[0],
        "mix_to_best_single_shares": None if best is None else best[1]["shares"],
        "predictions": len(errors),
        "within_10_percent": sum(abs(error) <= 0.10 for error in errors) / len(errors),
        "largest_error": max(errors, key=abs),
        "loading_gain": [min(loading), max(loading)],
        "training_gain": [min(training), max(training)],
    }
