# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a pipeline: stages in one place take turns, places work at once.

An image needs some seconds of each place. Stages that share a place add up there; the place that needs most seconds an
image bounds the rate, and the stage that needs most of those is the one to look at:

    rate = 1 / max over places of (sum over its stages of seconds an image)

Seconds an image are those of the whole place: of a stage that eight workers share, one eighth of what one worker
needs if it scales, and more if it does not. They come from rates measured with each stage alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from headrace.profiling._measurements import Measurements, Place, Rate, Stage

MIN_SECONDS = 1e-300
"""What takes less takes nothing: its ceiling would not be a number."""
CACHED_SHARE = 0.8
"""Of the memory that the page cache may have: a source larger than this is read from storage in every epoch."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a stage asks of a place."""

    stage: str
    """A stage of the measurements, `step`, or `wait`: time that the trainer waits and no stage explains."""
    place: Place
    seconds: float
    """An image."""
    detail: str | None = None
    waits: bool = False
    """Whether workers wait and leave their cores idle: more workers help, more cores do not."""
    rest: bool = False
    """Whether no stage shows it: what the loader took beyond the sum of its stages."""

    @property
    def ceiling(self) -> float:
        """ImageSample a second that the place could give if it did nothing else."""
        return 1 / self.seconds


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Everything that a run asks of every place."""

    loads: tuple[Load, ...]

    @property
    def places(self) -> dict[Place, float]:
        """Seconds an image of each place, the slowest first."""
        seconds: dict[Place, float] = {}
        for load in self.loads:
            seconds[load.place] = seconds.get(load.place, 0.0) + load.seconds
        return dict(sorted(seconds.items(), key=lambda item: -item[1]))

    @property
    def rate(self) -> float:
        """ImageSample a second; infinite where nothing was measured."""
        slowest = max(self.places.values(), default=0.0)
        return 1 / slowest if slowest > 0 else float("inf")

    @property
    def binding(self) -> Load | None:
        """The largest load of the slowest place."""
        for place in self.places:
            return max((load for load in self.loads if load.place == place), key=lambda load: load.seconds)
        return None

    def without(self, *, stage: str | None = None, place: Place | None = None) -> Pipeline:
        """Leave out a stage, a place, or a stage in a place."""
        return Pipeline(
            tuple(
                load
                for load in self.loads
                if not ((stage is None or load.stage == stage) and (place is None or load.place == place))
            )
        )

    def plus(self, loads: Iterable[Load]) -> Pipeline:
        return Pipeline((*self.loads, *(load for load in loads if load.seconds > MIN_SECONDS)))

    def scaled(self, factor: float, place: Place | None = None) -> Pipeline:
        """Multiply the seconds of one place, or of all."""
        return Pipeline(
            tuple(
                replace(load, seconds=load.seconds * factor) if place in (None, load.place) else load
                for load in self.loads
            )
        )


def rate_at(points: Sequence[Rate], workers: int) -> float | None:
    """Read a scaling curve: straight between its points, and beyond the last with the slope it had there."""
    curve = sorted({point.cores: point.rate for point in points if point.rate > 0}.items())
    if not curve:
        return None
    wanted = max(workers, 1)
    first_cores, first_rate = curve[0]
    if wanted <= first_cores:
        return first_rate * wanted / max(first_cores, 1)
    if len(curve) == 1:
        return first_rate * wanted / max(first_cores, 1)
    for (left, low), (right, high) in pairwise(curve):
        if wanted <= right:
            return low + (high - low) * (wanted - left) / (right - left)
    (left, low), (right, high) = curve[-2:]
    return high + max(0.0, (high - low) / (right - left)) * (wanted - right)


def reads_cold(measurements: Measurements) -> bool:
    """Whether epochs read from storage rather than from the page cache."""
    if measurements.reads_cold is not None:
        return measurements.reads_cold
    return not fits_in_memory(measurements)


def fits_in_memory(measurements: Measurements) -> bool:
    """Whether the page cache could hold all of the source. Where sizes are not known, it is taken to."""
    n_bytes, memory = measurements.source.n_bytes, measurements.machine.memory_bytes
    return n_bytes is None or memory is None or n_bytes <= CACHED_SHARE * memory


def worker_count(measurements: Measurements) -> int:
    """Workers of the run; 0 where the trainer's own thread does the work."""
    workers = measurements.recipe.workers
    return measurements.machine.cores if workers is None else workers


def stage_pipeline(measurements: Measurements, workers: int | None = None) -> Pipeline:
    """Lay out the stages with a number of workers, that of the run unless told, and without the trainer."""
    count = worker_count(measurements) if workers is None else workers
    cold = reads_cold(measurements)
    return Pipeline(()).plus(
        load
        for stage in measurements.stages
        for load in _stage_loads(stage, count, measurements.machine.cores, cold=cold)
    )


def _stage_loads(stage: Stage, workers: int, cores: int, *, cold: bool) -> Iterable[Load]:
    cold_rate = rate_at(stage.cold_rates, min(workers, _last(stage.cold_rates))) if cold else None
    if cold_rate:
        yield Load(stage.name, "storage", 1 / cold_rate, stage.detail)
    warm = _warm_rate(stage, workers, cores)
    if not warm:
        return
    waiting = _waiting_share(stage, warm, workers, cores) if stage.name == "sample" else 0.0
    yield Load(stage.name, stage.place, (1 - waiting) / warm, stage.detail)
    yield Load("read", stage.place, waiting / warm, "waits while a sample is made", waits=True)


def _warm_rate(stage: Stage, workers: int, cores: int) -> float | None:
    """ImageSample a second of a stage alone; more workers than cores help only one that waits."""
    if stage.place != "cores":
        return max((point.rate for point in stage.rates), default=None)
    if stage.name != "sample":
        return rate_at(stage.rates, min(workers, max(cores, _last(stage.rates))))
    rate = rate_at(stage.rates, workers)
    if rate and stage.cpu_seconds and workers > _last(stage.rates):
        return min(rate, cores / stage.cpu_seconds)
    return rate


def _last(points: Sequence[Rate]) -> int:
    return max((point.cores for point in points), default=0)


def _waiting_share(stage: Stage, rate: float, workers: int, cores: int) -> float:
    """Share of a worker's time that is no work: what a foreign dataset waits, it waits for its storage."""
    if stage.cpu_seconds is None:
        return 0.0
    in_a_worker = max(workers, 1) / rate
    working = stage.cpu_seconds * max(1.0, workers / max(cores, 1))
    return min(max(0.0, 1 - working / in_a_worker), 1.0)
