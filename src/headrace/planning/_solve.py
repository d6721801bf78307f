# SPDX-License-Identifier: Apache-2.0
"""`solve`: the best mix of formats for known costs on a known machine. Pure."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from headrace.errors import InfeasiblePlan
from headrace.planning._model import Calibration, Cost, Machine, predict, resource_seconds, trainer_seconds
from headrace.planning._plan import Plan, Share
from headrace.planning._search import MIN_SHARE, FormatMixture, MixProblem, fastest_mix, thriftiest_mix
from headrace.units import bytes_text

_CHANGES = ((1.0, 1.0), (1 / 3, 1.0), (1.0, 0.5))
"""Factors of storage rate and cores that may apply while a training runs: two renditions should be fast there too."""


def solve(
    calibration: Calibration,
    machine: Machine,
    *,
    step: float = 0.0,
    disk_budget: float | None = None,
    formats: Iterable[str] | None = None,
    renditions: int = 1,
    field: str = "image",
) -> Plan:
    """Return the mix of formats with which a machine prepares the most samples per second. Pure and deterministic.

    Without a disk budget each doubling of the dataset's size must make the run at least 10 % faster: five times the
    disk is taken for 1.25 times the speed, and not for 3 %. With a budget the fastest mix within it is taken.

    Args:
        calibration: The costs of a sample in each format, from `calibrate`.
        machine: The capacities, from `find_machine`.
        step: The trainer's seconds per batch of the calibration's size; 0 is no trainer.
        disk_budget: Bytes that all images together may take.
        formats: Consider only these. Default: all lossless formats, and the source's own files.
        renditions: With 2, every image is stored in two formats, and the loader chooses while it runs.
        field: The field that the plan is for.

    Raises:
        InfeasiblePlan: No format fits the disk budget.

    """
    if renditions not in (1, 2):
        raise ValueError(f"renditions must be 1 or 2; got {renditions}")
    candidates = _candidate_costs(calibration, formats)
    limit = math.inf if disk_budget is None else disk_budget / calibration.images
    trainer = trainer_seconds(calibration, step)

    def problem(on: Machine, costs: Sequence[Cost]) -> MixProblem:
        seconds = np.array([resource_seconds(cost, calibration, on) for cost in costs])
        return MixProblem(tuple(costs), seconds, trainer)

    if renditions == 2:
        found = _best_pair(machine, candidates, problem, limit)
    else:
        find = thriftiest_mix if disk_budget is None else fastest_mix
        found = find(dataclasses.replace(problem(machine, candidates), max_bytes=limit))
    if found is None:
        raise InfeasiblePlan(_infeasible(candidates, calibration, disk_budget, renditions))
    shares = {cost.format: x for cost, x in zip(found.costs, found.shares, strict=True)}
    predicted = predict(calibration, machine, shares, step=step)
    if renditions == 2:
        encode_seconds = sum(cost.encode_seconds for cost in found.costs) / machine.cores
        predicted = dataclasses.replace(
            predicted,
            stored_bytes=calibration.images * sum(cost.stored_bytes for cost in found.costs),
            build_seconds=calibration.images * encode_seconds,
        )
    singles = [predict(calibration, machine, cost.format, step=step) for cost in candidates]
    return Plan(
        field=field,
        renditions=renditions,
        shares=tuple(Share(format=name, share=x) for name, x in shares.items()),
        predicted=predicted,
        singles=tuple(sorted(singles, key=lambda each: (-each.rate, each.stored_bytes))),
        calibration=calibration,
        machine=machine,
        step=step,
        disk_budget=disk_budget,
    )


def _candidate_costs(calibration: Calibration, formats: Iterable[str] | None) -> list[Cost]:
    """Return the costs of the formats that a plan may use: lossless ones, and the source's own files as they are."""
    names = list(calibration.formats if formats is None else formats)
    allowed = [
        cost
        for cost in map(calibration.cost, dict.fromkeys(names))
        if cost.lossless or cost.format == calibration.source_format
    ]
    if not allowed:
        raise ValueError(
            f"at least one format must be lossless; got {', '.join(names)} for a source of "
            f"{calibration.source_format} files"
        )
    return sorted(allowed, key=lambda cost: calibration.formats.index(cost.format))


def _best_pair(
    machine: Machine,
    costs: Sequence[Cost],
    problem: Callable[[Machine, Sequence[Cost]], MixProblem],
    max_bytes: float,
) -> FormatMixture | None:
    """Return the pair closest to the best mix of all formats, on slower machines too; None if no pair fits the disk."""
    machines = [
        dataclasses.replace(machine, storage_rate=machine.storage_rate * storage, cores=machine.cores * cores)
        for storage, cores in _CHANGES
    ]
    pairs = [pair for pair in itertools.combinations(costs, 2) if sum(cost.stored_bytes for cost in pair) <= max_bytes]
    if not pairs:
        return None

    def fastest(on: Machine, among: Sequence[Cost]) -> FormatMixture:
        found = fastest_mix(problem(on, among))
        assert found is not None  # there is no disk budget
        return found

    best_times = [fastest(on, costs).time for on in machines]

    def rank(pair: Sequence[Cost]) -> tuple[float, float, float]:
        times = [fastest(on, pair).time for on in machines]
        worst = max(time / best for time, best in zip(times, best_times, strict=True))
        return round(worst, 3), times[0], sum(cost.stored_bytes for cost in pair)

    first, second = min(pairs, key=rank)
    found = fastest(machine, (first, second))
    # Both formats are stored for every sample; the shares are those that the loader starts with.
    shares = {cost.format: x for cost, x in zip(found.costs, found.shares, strict=True)}
    x = min(max(shares.get(first.format, 0.0), MIN_SHARE), 1 - MIN_SHARE)
    return FormatMixture((first, second), (round(x, 4), round(1 - x, 4)), found.time)


def _infeasible(costs: Sequence[Cost], calibration: Calibration, budget: float | None, renditions: int) -> str:
    sizes = sorted(cost.stored_bytes for cost in costs)
    if budget is None:
        return (
            f"renditions={renditions} needs at least {renditions} formats to choose from; got {costs[0].format} alone"
        )
    needed = sum(sizes[:renditions]) * calibration.images
    twice = " in two renditions" if renditions == 2 else ""
    return (
        f"the disk budget must be at least {bytes_text(needed)} for {calibration.images:,} images{twice}; "
        f"got {bytes_text(budget)}"
    )
