# SPDX-License-Identifier: Apache-2.0
"""The model of a run: stages in one place take turns, places work at the same time.

Each image needs some seconds of each place. Stages in one place add up there. The place that needs most seconds per
image limits the rate, and the stage that needs most of those seconds is the bottleneck:

    rate = 1 / max over places of (sum over its stages of seconds per image)

Seconds per image are those of the place with all its workers: of a stage that eight workers share, one eighth of what
one worker needs if the stage scales perfectly, and more if it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from headrace.profiling._measurements import Measurements, Rate, Stage, StagePlace

MIN_SECONDS = 1e-300
"""Loads below this are dropped: their ceiling would not be a finite number."""
SIMILAR = 0.9
"""Places whose times have at least this ratio count as equally slow: fixing only one of them gains little."""
MAX_STALL = 0.05
"""A trainer that waits for a larger share of its time is stalled."""


@dataclass(frozen=True, slots=True)
class Load:
    """The time that a stage needs of a place."""

    stage: str
    """A stage of the measurements, `step`, or `wait`: the trainer waits and no stage explains it."""
    place: StagePlace
    seconds: float
    """Per image."""
    detail: str | None = None
    waits: bool = False
    """True if workers wait and their cores idle: more workers help, more cores do not."""
    inferred: bool = False
    """True for the loader's time beyond the sum of its stages."""

    @property
    def ceiling(self) -> float:
        """Images per second if the place did nothing else."""
        return 1 / self.seconds


@dataclass(frozen=True, slots=True)
class RunModel:
    """All loads of a run."""

    loads: tuple[Load, ...] = ()

    @property
    def places(self) -> dict[StagePlace, float]:
        """Seconds per image of each place, the slowest first."""
        seconds: dict[StagePlace, float] = {}
        for load in self.loads:
            seconds[load.place] = seconds.get(load.place, 0.0) + load.seconds
        return dict(sorted(seconds.items(), key=lambda item: -item[1]))

    @property
    def rate(self) -> float:
        """Images per second; infinite if there are no loads."""
        slowest = max(self.places.values(), default=0.0)
        return 1 / slowest if slowest > 0 else float("inf")

    @property
    def slowest(self) -> list[Load]:
        """The loads of the slowest place, the largest first."""
        place = next(iter(self.places), None)
        return sorted((load for load in self.loads if load.place == place), key=lambda load: -load.seconds)

    @property
    def bottleneck(self) -> Load | None:
        """The largest load of the slowest place except the step; an unexplained wait only if it is larger than all."""
        loads = [load for load in self.slowest if load.stage not in ("step", "wait")]
        waiting = next((load for load in self.slowest if load.stage == "wait"), None)
        if waiting is not None and sum(load.seconds for load in loads) < waiting.seconds:
            return waiting
        return next(iter(loads), None)

    @property
    def trainer_ceiling(self) -> float:
        """Images per second that the trainer can process; infinite if it was not measured."""
        steps = (load.ceiling for load in self.loads if load.stage == "step" and load.place == "trainer")
        return min(steps, default=float("inf"))

    def only(self, keep: Callable[[Load], bool]) -> RunModel:
        return RunModel(tuple(filter(keep, self.loads)))

    def without(self, stage: str, place: StagePlace | None = None) -> RunModel:
        """Remove a stage from one place, or from all."""
        return self.only(lambda load: load.stage != stage or place not in (None, load.place))

    def plus(self, loads: Iterable[Load]) -> RunModel:
        return RunModel((*self.loads, *(load for load in loads if load.seconds > MIN_SECONDS)))

    def scaled(self, factor: Callable[[Load], float]) -> RunModel:
        """Multiply the seconds of each load by its factor."""
        return RunModel().plus(replace(load, seconds=load.seconds * factor(load)) for load in self.loads)


@dataclass(frozen=True, slots=True)
class Rates:
    """The measured rates of a run in images per second; None if not measured.

    A ceiling is at least what was reached: if both together were faster than the loader or the trainer alone, the
    machine was slower at that time, and the higher rate is the ceiling.
    """

    trainer: float | None = None
    loader: float | None = None
    run: float | None = None
    """Both together."""
    uncertainty: float | None = None
    """How far repeats of these measurements differ: 0.04 is ± 4 %."""
    stall_uncertainty: float | None = None
    """The same for trainer and run only, from which the stall is computed."""

    @property
    def is_stalled(self) -> bool | None:
        """Whether the trainer was measured to wait for data, by more than the uncertainty."""
        if self.trainer is None or self.run is None:
            return None
        return self.run < self.trainer * (1 - max(MAX_STALL, self.stall_uncertainty or 0.0))


def rates_of(measurements: Measurements) -> Rates:
    """Derive the rates from the differential measurement."""
    found = measurements.differential
    if found is None:
        return Rates()
    run = found.together or None
    of_trainer = None if found.stated else found.trainer_spread
    return Rates(
        trainer=max(found.trainer, run or 0.0) if found.trainer else None,
        loader=max(found.loader, run or 0.0) if found.loader else None,
        run=run,
        uncertainty=_largest(of_trainer, found.loader_spread, found.together_spread),
        stall_uncertainty=_largest(of_trainer, found.together_spread),
    )


def _largest(*spreads: float | None) -> float | None:
    known = [spread for spread in spreads if spread is not None]
    return min(max(known), 1.0) if known else None


def stage_model(measurements: Measurements, workers: int | None = None) -> RunModel:
    """Model the stages without the trainer, with `workers` workers (default: those of the run)."""
    count, cores = measurements.workers if workers is None else workers, measurements.machine.cores
    cold = measurements.reads_from_storage
    return RunModel().plus(load for stage in measurements.stages for load in _stage_loads(stage, count, cores, cold))


def _stage_loads(stage: Stage, workers: int, cores: int, cold: bool) -> Iterable[Load]:
    cold_rate = _rate_at(stage.cold_rates, min(workers, _last_cores(stage.cold_rates))) if cold else None
    if cold_rate:
        yield Load(stage.name, "storage", 1 / cold_rate, stage.detail)
    warm = _warm_rate(stage, workers, cores)
    if not warm:
        return
    waiting = _waiting_share(stage, warm, workers, cores) if stage.name == "sample" else 0.0
    yield Load(stage.name, stage.place, (1 - waiting) / warm, stage.detail)
    yield Load("read", stage.place, waiting / warm, "waits while a sample is made", waits=True)


def _warm_rate(stage: Stage, workers: int, cores: int) -> float | None:
    """Images per second of a stage; more workers than cores help only a stage that waits."""
    if stage.place != "cores":
        return max((point.rate for point in stage.rates), default=None)
    if stage.name != "sample":
        return _rate_at(stage.rates, min(workers, max(cores, _last_cores(stage.rates))))
    rate = _rate_at(stage.rates, workers)
    if rate and stage.cpu_seconds and workers > _last_cores(stage.rates):
        return min(rate, cores / stage.cpu_seconds)
    return rate


def _rate_at(points: Sequence[Rate], workers: int) -> float | None:
    """Interpolate a scaling curve from 0 linearly; beyond its last point, continue with the last slope."""
    curve = sorted({0: 0.0, **{point.cores: point.rate for point in points if point.rate > 0}}.items())
    if len(curve) == 1:
        return None
    wanted = max(workers, 1)
    segments = list(pairwise(curve))
    (left, low), (right, high) = next((each for each in segments if wanted <= each[1][0]), segments[-1])
    slope = (high - low) / (right - left)
    return high + (slope if wanted <= right else max(0.0, slope)) * (wanted - right)


def _last_cores(points: Sequence[Rate]) -> int:
    return max((point.cores for point in points), default=0)


def _waiting_share(stage: Stage, rate: float, workers: int, cores: int) -> float:
    """Share of a worker's time without CPU work: a dataset that is not Headrace's waits for its storage then."""
    if stage.cpu_seconds is None:
        return 0.0
    elapsed = max(workers, 1) / rate
    working = stage.cpu_seconds * max(1.0, workers / max(cores, 1))
    return min(max(0.0, 1 - working / elapsed), 1.0)
