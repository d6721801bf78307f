# SPDX-License-Identifier: Apache-2.0
"""The model of the complete run: the stages, adjusted to the measured rates of the loader and of the run.

The measured rates of the loader alone, and of loader and trainer together, outrank the sum of the stages. Afterwards
the model's rate is the measured rate of the run, the step's load is the trainer's measured ceiling, and every number
of the report follows from this one model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from headrace.profiling._measurements import Differential, Measurements, StagePlace
from headrace.profiling.judging._model import Load, Rates, RunModel, rates_of, stage_model

BUSY = 0.85
"""A thread or core that works for a larger share of the time has no capacity left."""
MIN_EXPLAINED = 0.5
"""A loader slower than this share of what its stages allow does something else that takes longer than any stage."""
MAX_SLOWDOWN = 2.0
"""A loader that is more than this many times faster alone than with the trainer is not what the run waits for."""
_ROUNDING = 1e-9


def model_run(measurements: Measurements) -> RunModel:
    """Return the model of the run, consistent with the measured rates."""
    rates = rates_of(measurements)
    loader = stage_model(measurements)
    if rates.loader is not None:
        loader = _adjusted_to_loader(loader, rates.loader, measurements)
    run = loader.plus(trainer_loads(measurements, loader, measurements.workers))
    if rates.run is None or not loader.loads:
        return run
    # Without workers the trainer's thread makes the samples, so it cannot wait for anything else.
    limit = MAX_SLOWDOWN if measurements.workers and rates.trainer is not None else math.inf
    return _adjusted_to_run(run, rates, rates.run, limit)


def explained_share(measurements: Measurements) -> float | None:
    """The loader's measured rate over the rate that its stages allow; None if either was not measured."""
    loader, stages = rates_of(measurements).loader, stage_model(measurements)
    return None if loader is None or not stages.loads else loader / stages.rate


def trainer_loads(measurements: Measurements, loader: RunModel, workers: int) -> Iterable[Load]:
    """Yield the step's load on the trainer, and on the cores if it uses some that the workers would use.

    The second is never larger than the first: alone, the trainer reached its rate with the cores that there are.
    """
    found, trainer = measurements.differential, rates_of(measurements).trainer
    if found is None or trainer is None:
        return
    yield Load("step", "trainer", 1 / trainer, "as stated" if found.stated else None)
    if found.stated or not found.trainer_cores:
        return
    cores = measurements.machine.cores
    spare = 1 - min(workers, cores) / cores
    used = min(1.0, found.trainer_cores / cores)
    yield Load("step", "cores", used / trainer - loader.places.get("cores", 0.0) * spare, "the trainer's own work")


def _adjusted_to_loader(stages: RunModel, loader: float, measurements: Measurements) -> RunModel:
    """Scale the stages to the loader's measured rate, or add what the loader does beyond them."""
    found = measurements.differential
    assert found is not None
    # Stages count at their best repeat and the loader at its median, so they may differ by the spread of the repeats.
    if loader * (1 + (found.loader_spread or 0.0)) >= MIN_EXPLAINED * stages.rate:
        return stages.scaled(lambda _: stages.rate / loader)
    return stages.plus(_inferred_loads(stages, loader, found, measurements))


def _inferred_loads(stages: RunModel, loader: float, found: Differential, measurements: Measurements) -> Iterable[Load]:
    """Infer what a loader does beyond its stages from which of its parts were busy."""
    workers, places = measurements.workers, stages.places

    def rest(stage: str, place: StagePlace, detail: str, *, waits: bool = False) -> Load:
        return Load(stage, place, 1 / loader - places.get(place, 0.0), detail, waits=waits, inferred=True)

    if found.warm_loader and found.warm_loader > loader / BUSY:
        yield rest("read", "storage", "slower than from memory")
        if not stages.loads:
            yield Load("sample", "cores", 1 / found.warm_loader, "from memory")
    elif workers == 0:
        yield rest("sample", "trainer", "in the trainer's own thread")
    elif (found.thread_busy or 0.0) >= BUSY:
        yield rest("batch", "thread", "the iterating thread is never idle")
    elif found.loader_cores is not None and found.loader_cores < BUSY * min(workers, measurements.machine.cores):
        yield rest("read", "cores", "workers wait and cores are idle", waits=True)
    else:
        yield rest("sample", "cores", "all workers are busy")


def _adjusted_to_run(run: RunModel, rates: Rates, rate: float, max_slowdown: float) -> RunModel:
    """Make the slowest place as slow as the measured run, and no place slower; the trainer's step stays as measured.

    A loader that would need a larger slowdown than `max_slowdown` is not the cause: the difference is waiting.
    """
    seconds = 1 / rate
    step = sum(load.seconds for load in run.loads if _is_step(load))
    fixed: dict[StagePlace, float] = {"trainer": step}
    factors = {
        place: max(0.0, seconds - fixed.get(place, 0.0)) / (total - fixed.get(place, 0.0))
        for place, total in run.places.items()
        if total > fixed.get(place, 0.0) * (1 + _ROUNDING)
    }
    slowdown = min(factors.values(), default=math.inf)
    if slowdown <= 1 or (slowdown <= max_slowdown and math.isfinite(slowdown) and rates.is_stalled is not False):
        # Faster than the stages allow: shorten each place that takes too long. Slower: the loader as a whole is slower.
        return run.scaled(lambda load: 1.0 if _is_step(load) else min(factors[load.place], max(slowdown, 1.0)))
    return run.plus([Load("wait", "trainer", seconds - run.places.get("trainer", 0.0), "no stage alone explains it")])


def _is_step(load: Load) -> bool:
    return load.stage == "step" and load.place == "trainer"
