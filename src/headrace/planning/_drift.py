# SPDX-License-Identifier: Apache-2.0
"""Has the run drifted from its plan? Told from what the loader counts, with what a new plan would give."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.loader import LoaderStats
from headrace.planning._cost import Calibration, Cost
from headrace.planning._machine import Machine
from headrace.planning._plan import Plan, plan
from headrace.planning._predict import RESOURCES, predict_costs

TOLERANCE = 0.10
"""Of the time: what a resource's busy share may be off the plan's."""

_HELD_UP = 0.05
"""The share of the time that the trainer waits above which something before it is the bottleneck."""
_LEAST_BATCHES = 4
_NEEDED = ("samples", "wall_seconds", "cpu_seconds", "bytes_read")


class DriftWarning(UserWarning):
    """The loader's busy times are not those of its plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Busy times that are not the plan's, and what could be made of it."""

    planned: Mapping[str, float]
    """The share of the time that each resource is busy, by the plan."""
    measured: Mapping[str, float]
    rate: float
    """Samples a second as they are now."""
    replanned: Plan
    """A plan for what was measured."""
    gain: float
    """What it would give, in times of what the plan's shares can give now."""

    @property
    def largest(self) -> tuple[str, float]:
        """The resource that is furthest off, and by how much of the time."""
        return max(((r, self.measured[r] - self.planned[r]) for r in self.planned), key=lambda each: abs(each[1]))

    def __str__(self) -> str:
        resource, difference = self.largest
        mix = " + ".join(f"{each.share:.0%} {each.format}" for each in self.replanned.shares)
        remedy = (
            f"a new plan ({mix}) would give {self.gain:.2f} times the samples a second: run `headrace plan` again"
            if self.gain > 1 + TOLERANCE / 2
            else "a new plan would not be faster"
        )
        return (
            f"the run has drifted from its plan: {resource} is busy {self.measured[resource]:.0%} of the time and was "
            f"planned to be {self.planned[resource]:.0%} ({difference:+.0%}); {remedy}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "planned": dict(self.planned),
            "measured": dict(self.measured),
            "rate": self.rate,
            "gain": self.gain,
            "shares": [dataclasses.asdict(each) for each in self.replanned.shares],
        }


def drift(planned: Plan, stats: LoaderStats) -> Drift | None:
    """Compare a loader's own figures with its plan; None where every busy share is within 10 % of the time.

    Args:
        planned: The plan of the run.
        stats: What `Loader.stats` returns, or `since` of two of them.

    """
    if stats.batches < _LEAST_BATCHES or not all(getattr(stats, name) for name in _NEEDED):
        return None
    if planned.step == 0 and stats.wait_seconds <= _HELD_UP * stats.wall_seconds:
        return None  # the plan was not told of a trainer, and there is one that the loader keeps up with
    wall = stats.wall_seconds / stats.samples
    machine, calibration, step = _as_measured(planned, stats, wall)
    costs = [planned.calibration.cost(each.format, each.decode) for each in planned.shares]
    shares = [each.share for each in planned.shares]
    now = predict_costs(calibration, machine, [calibration.cost(c.format, c.place) for c in costs], shares, step=step)
    busy = {r: min(1.0, now.seconds[r] / wall) for r in RESOURCES}
    most = max(planned.predicted.seconds.values())
    expected = {r: planned.predicted.seconds[r] / most for r in RESOURCES}
    compared = [r for r in RESOURCES if r != "trainer" or planned.step > 0]
    if all(abs(busy[r] - expected[r]) <= TOLERANCE for r in compared):
        return None
    again = plan(
        calibration,
        machine,
        step=step,
        disk_budget=planned.disk_budget,
        renditions=planned.renditions,
        field=planned.field,
    )
    return Drift(planned=expected, measured=busy, rate=1 / wall, replanned=again, gain=again.predicted.rate / now.rate)


def _as_measured(planned: Plan, stats: LoaderStats, wall: float) -> tuple[Machine, Calibration, float]:
    """The plan's machine and costs, put right by what was counted.

    Storage tells its own rate only while it holds everything up: the trainer waits and the cores are not all busy.
    """
    samples = stats.samples
    machine, calibration = planned.machine, planned.calibration
    waits = stats.wait_seconds / stats.wall_seconds
    cpu = stats.cpu_seconds / samples
    of_formats = sum(
        each.share * calibration.cost(each.format, each.decode).cpu_at(machine.usable_cores, calibration.cores)
        for each in planned.shares
    )
    expected_cpu = max(of_formats - calibration.consumer_seconds, 1e-9)
    cores_busy = cpu / (machine.usable_cores * machine.efficiency) / wall
    if waits > _HELD_UP and cores_busy < 1 - TOLERANCE:
        machine = machine.replace(storage_rate=stats.bytes_read / stats.wall_seconds)
    factor = cpu / expected_cpu
    costs = tuple(_scaled(cost, factor) for cost in calibration.costs)
    consumer = calibration.consumer_seconds
    step = max(0.0, wall * (1 - waits) - consumer) * calibration.batch_size
    return machine, dataclasses.replace(calibration, costs=costs), step


def _scaled(cost: Cost, factor: float) -> Cost:
    crowded = cost.cpu_seconds_crowded
    return dataclasses.replace(
        cost,
        cpu_seconds=cost.cpu_seconds * factor,
        cpu_seconds_crowded=None if crowded is None else crowded * factor,
    )


class Counting(Protocol):
    """A loader, as far as it is watched."""

    def __iter__(self) -> Iterator[Any]: ...
    def stats(self) -> LoaderStats: ...


def watch(loader: Counting, planned: Plan, *, every: float = 10.0) -> Iterator[Any]:
    """Give the batches of an epoch as the loader does, and warn once if the run has drifted from its plan.

    Args:
        loader: The loader.
        planned: Its plan.
        every: Seconds between two looks at the loader's figures.

    """
    before, last, warned = loader.stats(), time.monotonic(), False
    for batch in loader:
        yield batch
        if warned or time.monotonic() - last < every:
            continue
        now = loader.stats()
        if now.batches - before.batches < _LEAST_BATCHES:
            continue
        found = drift(planned, now.since(before))
        if found is not None:
            warnings.warn(str(found), DriftWarning, stacklevel=2)
            warned = True
        before, last = now, time.monotonic()
