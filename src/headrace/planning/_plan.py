# SPDX-License-Identifier: Apache-2.0
"""`headrace.plan`: which share of the samples gets which format, and what that is predicted to give (spec/plan.md)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from headrace.errors import InfeasiblePlan
from headrace.planning._cost import PLACES, Calibration, Cost, Place
from headrace.planning._machine import Machine
from headrace.planning._predict import Prediction, loads, predict_costs, trainer_seconds
from headrace.planning._search import MIN_SHARE, Mixture, Problem, search, search_thrifty, worth_its_size
from headrace.planning.documents import Document, finite, read_json, write_json
from headrace.units import bytes_text

PLAN_VERSION = 1

_CHANGES = ((1.0, 1.0), (1 / 3, 1.0), (1.0, 0.5))
"""What may become of storage and cores while a training runs: two renditions should serve there too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A format of a plan: the share of the samples that gets it, and where it is decoded."""

    format: str
    share: float
    decode: Place = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A mix of formats for a field, and how it was found."""

    field: str
    renditions: int
    shares: tuple[Share, ...]
    predicted: Prediction
    singles: tuple[Prediction, ...]
    """Each format alone, the fastest first; those that exceed the disk budget too."""
    calibration: Calibration
    machine: Machine
    step: float
    """The trainer's seconds a batch."""
    disk_budget: float | None = None

    @property
    def best_single(self) -> Prediction | None:
        """The best format alone: the fastest within the disk budget, or without one the fastest worth its size."""
        if self.disk_budget is None:
            chosen = worth_its_size([(each.rate, each.stored_bytes) for each in self.singles])
            return None if chosen is None else self.singles[chosen]
        fitting = [each for each in self.singles if each.stored_bytes <= self.disk_budget * (1 + 1e-9)]
        return fitting[0] if fitting else None

    @property
    def fastest_single(self) -> Prediction | None:
        """A format alone that is faster than the plan and not worth its size; None if there is none."""
        first = self.singles[0] if self.singles and self.disk_budget is None else None
        return first if first is not None and first.rate > self.predicted.rate * (1 + 1e-9) else None

    @property
    def gain(self) -> float:
        """How many times as fast as the best single format."""
        single = self.best_single
        return math.inf if single is None else self.predicted.rate / single.rate

    def to_json(self) -> dict[str, Any]:
        shares = [{"format": each.format, "share": each.share, "decode": each.decode} for each in self.shares]
        return {
            "version": PLAN_VERSION,
            "fields": {self.field: {"renditions": self.renditions, "shares": shares}},
            "predicted": {**self.predicted.to_json(), "singles": [each.to_json() for each in self.singles]},
            "step": self.step,
            "disk_budget": None if self.disk_budget is None else finite(self.disk_budget),
            "machine": self.machine.to_json(),
            "calibration": self.calibration.to_json(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | str | PathLike[str]) -> Plan:
        """Read a plan from a JSON object or a file. What is not as it should be is a ValueError."""
        read = Document(read_json(document, "plan"), "the plan")
        read.version(PLAN_VERSION)
        fields = read.plain("fields")
        if len(fields) != 1:
            raise ValueError(f"the plan has {len(fields)} fields; one that `headrace plan` made has one")
        name = str(next(iter(fields)))
        entry = read.inner("fields").inner(name)
        predicted = read.inner("predicted")
        budget = read.number("disk_budget", default=math.inf)
        return cls(
            field=name,
            renditions=entry.integer("renditions", least=1),
            shares=tuple(_share(each) for each in entry.items("shares")),
            predicted=Prediction.from_json(read.plain("predicted")),
            singles=tuple(Prediction.from_json(each) for each in predicted.items("singles")),
            calibration=Calibration.from_json(read.plain("calibration")),
            machine=Machine.from_json(read.plain("machine")),
            step=read.number("step"),
            disk_budget=budget if math.isfinite(budget) else None,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan as JSON, for `headrace build --plan` and `Loader(plan=…)`."""
        write_json(path, self.to_json())


def _share(document: Any) -> Share:
    read = Document(document, "a share of the plan")
    decode: Place = "device" if read.text("decode", choices=PLACES, default="cpu") == "device" else "cpu"
    return Share(format=read.text("format"), share=read.number("share"), decode=decode)


def plan(
    calibration: Calibration,
    machine: Machine,
    *,
    step: float = 0.0,
    disk_budget: float | None = None,
    formats: Iterable[str] | None = None,
    renditions: int = 1,
    field: str = "image",
) -> Plan:
    """Find the mix of formats with which a machine prepares most samples per second. Pure, and always the same.

    Without a disk budget each doubling of the dataset's size must make the run at least 10 % faster: five times the
    disk is taken for 1.25 times the speed, and not for 3 %. With a budget the fastest mix within it is taken.

    Args:
        calibration: What a sample costs in each format (`headrace.planning.calibrate`).
        machine: What there is to spend.
        step: The trainer's seconds a batch of the calibration's size; 0 for none.
        disk_budget: Bytes that the images may take in all, to be spent on speed.
        formats: Consider only these. By default all that keep the pixels, and the source's own files.
        renditions: With 2 every image is stored in two formats, and the loader chooses as it goes.
        field: The field that the plan is for.

    Raises:
        InfeasiblePlan: No format fits the disk budget.

    """
    if renditions not in (1, 2):
        raise ValueError(f"an image has 1 or 2 renditions in a plan, not {renditions}")
    candidates = candidate_costs(calibration, formats)
    base = trainer_seconds(calibration, step)
    singles = [predict_costs(calibration, machine, [cost], [1.0], step=step) for cost in candidates]
    limit = math.inf if disk_budget is None else disk_budget / calibration.images

    def problem(on: Machine, costs: Sequence[Cost], most_bytes: float = math.inf) -> Problem:
        rows = np.array([loads(cost, calibration, on) for cost in costs])
        return Problem(tuple(costs), rows, base, most_bytes)

    if renditions == 1:
        find = search_thrifty if disk_budget is None else search
        found = find(problem(machine, candidates, limit))
    else:
        pairs = [pair for pair in _pairs(candidates) if sum(cost.stored_bytes for cost in pair) <= limit]
        two = [(_in_two(problem(machine, pair)), pair) for pair in pairs]
        found = _best_pair(two, machine, candidates, problem)
    if found is None:
        raise InfeasiblePlan(_too_small(candidates, calibration, disk_budget, renditions))
    predicted = predict_costs(calibration, machine, found.costs, found.shares, step=step)
    if renditions == 2:
        predicted = _stored_twice(predicted, found.costs, calibration, machine)
    return Plan(
        field=field,
        renditions=renditions,
        shares=tuple(
            Share(format=cost.format, share=x, decode=cost.place)
            for cost, x in zip(found.costs, found.shares, strict=True)
        ),
        predicted=predicted,
        singles=tuple(sorted(singles, key=lambda each: (-each.rate, each.stored_bytes))),
        calibration=calibration,
        machine=machine,
        step=step,
        disk_budget=disk_budget,
    )


def candidate_costs(calibration: Calibration, formats: Iterable[str] | None = None) -> list[Cost]:
    """The formats that a plan may choose: what keeps the pixels, and a lossy source's own files as they are."""
    wanted = None if formats is None else list(formats)
    if wanted is not None:
        for name in wanted:
            if name not in calibration.formats:
                raise ValueError(f"{name} was not calibrated; there are {', '.join(calibration.formats)}")
    chosen = [
        cost
        for cost in calibration.costs
        if (cost.lossless or cost.format == calibration.source_format) and (wanted is None or cost.format in wanted)
    ]
    if not chosen:
        raise ValueError(
            f"none of {', '.join(wanted or calibration.formats)} keeps the pixels of a source of "
            f"{calibration.source_format} files; name a lossless format"
        )
    return chosen


def _pairs(costs: Sequence[Cost]) -> Iterable[tuple[Cost, Cost]]:
    return ((a, b) for a, b in itertools.combinations(costs, 2) if a.format != b.format)


def _in_two(problem: Problem) -> Mixture:
    """The best shares of two formats that both are there for every sample; a share is where the loader will start."""
    first, second = problem.costs
    found = search(problem)
    assert found is not None  # no budget
    shares = {cost.format: x for cost, x in zip(found.costs, found.shares, strict=True)}
    x = min(max(shares.get(first.format, 0.0), MIN_SHARE), 1 - MIN_SHARE)
    return Mixture((first, second), (round(x, 4), round(1 - x, 4)), found.time)


def _best_pair(
    pairs: Sequence[tuple[Mixture, tuple[Cost, Cost]]],
    machine: Machine,
    candidates: Sequence[Cost],
    problem: Callable[[Machine, Sequence[Cost]], Problem],
) -> Mixture | None:
    """The pair that stays nearest to what all formats could do, now and where storage or cores become slower."""
    if not pairs:
        return None

    def time(on: Machine, costs: Sequence[Cost]) -> float:
        found = search(problem(on, costs))
        assert found is not None  # no budget
        return found.time

    places = [
        machine.replace(storage_rate=machine.storage_rate * storage, cores=machine.cores * cores)
        for storage, cores in _CHANGES
    ]
    best = [time(on, candidates) for on in places]

    def rank(mixture: Mixture, pair: Sequence[Cost]) -> tuple[float, float, float]:
        worst = max(time(on, pair) / least for on, least in zip(places, best, strict=True))
        return round(worst, 3), mixture.time, sum(cost.stored_bytes for cost in pair)

    return min(pairs, key=lambda each: rank(*each))[0]


def _stored_twice(
    predicted: Prediction, costs: Sequence[Cost], calibration: Calibration, machine: Machine
) -> Prediction:
    encode = sum(cost.encode_seconds for cost in costs)
    return Prediction(
        shares=predicted.shares,
        seconds=predicted.seconds,
        rate=predicted.rate,
        preparation_rate=predicted.preparation_rate,
        binds=predicted.binds,
        stored_bytes=calibration.images * sum(cost.stored_bytes for cost in costs),
        build_seconds=calibration.images * encode / (machine.cores * machine.efficiency),
    )


def _too_small(costs: Sequence[Cost], calibration: Calibration, budget: float | None, renditions: int) -> str:
    sizes = sorted(cost.stored_bytes for cost in costs)
    if budget is None:
        return f"{renditions} renditions need {renditions} formats to choose from; there is {costs[0].format} alone"
    needed = sum(sizes[:renditions]) * calibration.images
    count = "1 image takes" if calibration.images == 1 else f"{calibration.images:,} images take"
    twice = " in two renditions" if renditions == 2 else ""
    return f"{count} at least {bytes_text(needed)}{twice}, and the disk budget is {bytes_text(budget)}; give it more"
