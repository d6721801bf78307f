# SPDX-License-Identifier: Apache-2.0
"""The pipeline of a whole run: the stages' arithmetic, in agreement with the rates that were measured of the whole.

The loader alone, and loader and trainer together, were measured too, and outrank the sum of the stages. After this the
pipeline's rate is the measured rate of the run, the trainer's own load is its measured ceiling, and every figure of
the report follows from the one pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from headrace.profiling._measurements import Differential, Measurements
from headrace.profiling.judging._pipeline import MIN_SECONDS, Load, Pipeline, stage_pipeline, worker_count
from headrace.profiling.judging._rates import Rates, rates_of

BUSY = 0.85
"""A thread or a core that works more than this share of the time has nothing left to give."""
UNEXPLAINED = 0.5
"""Below this share of what its stages allow, a loader does something else that takes longer than any of them."""
SLOWED = 2.0
"""A loader that is more than this many times faster alone than beside the trainer is not what the run waits for."""
_SAME = 1e-9


def run_pipeline(measurements: Measurements) -> Pipeline:
    """Lay out the whole run, in agreement with what was measured of the loader and of the run."""
    rates = rates_of(measurements)
    loader = stage_pipeline(measurements)
    if rates.loader is not None:
        loader = _as_measured(loader, rates.loader, measurements)
    whole = loader.plus(trainer_loads(measurements, loader, worker_count(measurements)))
    if rates.run is None or not loader.loads:
        return whole
    # Without workers the trainer's thread makes the samples: then there is nothing else that it could wait for.
    limit = SLOWED if worker_count(measurements) and rates.trainer is not None else float("inf")
    return _beside_the_trainer(whole, rates, limit)


def explained_share(measurements: Measurements) -> float | None:
    """The loader's measured rate over the rate that its stages allow; None where either was not measured."""
    loader, stages = rates_of(measurements).loader, stage_pipeline(measurements)
    return None if loader is None or not stages.loads else loader / stages.rate


def trainer_loads(measurements: Measurements, loader: Pipeline, workers: int) -> Iterable[Load]:
    """Give the step's load on the trainer, and on the cores if it takes some that the workers would use."""
    found, trainer = measurements.differential, rates_of(measurements).trainer
    if found is None or trainer is None:
        return
    yield Load("step", "trainer", 1 / trainer, "as stated" if found.stated else None)
    if found.stated or not found.trainer_cores:
        return
    cores = max(measurements.machine.cores, 1)
    spare = 1 - min(workers, cores) / cores
    busy = loader.places.get("cores", 0.0)
    yield Load("step", "cores", found.trainer_cores / (cores * trainer) - busy * spare, "the trainer's own work")


def _as_measured(stages: Pipeline, loader: float, measurements: Measurements) -> Pipeline:
    """Scale the stages to the loader's measured rate, or add what the loader does beyond them."""
    found = measurements.differential
    assert found is not None
    # Stages count at their best, the whole at its median: what repeats differ by is not unexplained.
    if loader * (1 + (found.loader_spread or 0.0)) >= UNEXPLAINED * stages.rate:
        return stages.scaled(stages.rate / loader)
    return stages.plus(_unexplained(stages, loader, found, measurements))


def _unexplained(stages: Pipeline, loader: float, found: Differential, measurements: Measurements) -> Iterable[Load]:
    """Say what a loader does that no stage shows, from which of its parts were busy."""
    workers, seconds = worker_count(measurements), 1 / loader
    places = stages.places
    if found.warm_loader and found.warm_loader > loader / BUSY:
        yield Load("read", "storage", seconds - places.get("storage", 0.0), "slower than from memory", rest=True)
        if not stages.loads:
            yield Load("sample", "cores", 1 / found.warm_loader, "from memory")
    elif workers == 0:
        yield Load("sample", "trainer", seconds - places.get("trainer", 0.0), "in the trainer's own thread", rest=True)
    elif (found.thread_busy or 0.0) >= BUSY:
        yield Load(
            "batch", "thread", seconds - places.get("thread", 0.0), "the iterating thread is never idle", rest=True
        )
    elif found.loader_cores is not None and found.loader_cores < BUSY * min(workers, measurements.machine.cores):
        yield Load(
            "read", "cores", seconds - places.get("cores", 0.0), "workers wait and cores idle", waits=True, rest=True
        )
    else:
        yield Load("sample", "cores", seconds - places.get("cores", 0.0), "all workers are busy", rest=True)


def _beside_the_trainer(whole: Pipeline, rates: Rates, limit: float) -> Pipeline:
    """Make the slowest place as slow as the run was measured to be, and no place slower.

    A loader that would have to be slowed down by more than `limit` is not the cause: the rest is waiting.
    """
    assert rates.run is not None
    seconds = 1 / rates.run
    fitting = _no_slower(whole, seconds)
    if max(fitting.places.values()) >= seconds * (1 - _SAME):
        return fitting
    if rates.is_stalled is not False:
        factor = _slowdown(fitting, seconds)
        if factor <= limit and math.isfinite(factor):
            return Pipeline(
                tuple(
                    load if load.stage == "step" else replace(load, seconds=load.seconds * factor)
                    for load in fitting.loads
                )
            )
    waiting = seconds - fitting.places.get("trainer", 0.0)
    return fitting.plus([Load("wait", "trainer", waiting, "no stage alone explains it")])


def _no_slower(whole: Pipeline, seconds: float) -> Pipeline:
    """Shorten what takes longer in its place than an image took in the run; the step itself stays as measured."""
    step = sum(load.seconds for load in whole.loads if load.stage == "step" and load.place == "trainer")
    places = whole.places

    def fitting(load: Load) -> Load:
        if places[load.place] <= seconds or (load.stage == "step" and load.place == "trainer"):
            return load
        own = step if load.place == "trainer" else 0.0
        return replace(load, seconds=load.seconds * max(0.0, seconds - own) / (places[load.place] - own))

    return Pipeline(tuple(load for load in map(fitting, whole.loads) if load.seconds > MIN_SECONDS))


def _slowdown(whole: Pipeline, seconds: float) -> float:
    """How many times slower the loader is beside the trainer: until its slowest place takes as long as the run."""
    factors = []
    for place, total in whole.places.items():
        step = sum(load.seconds for load in whole.loads if load.place == place and load.stage == "step")
        if total > step * (1 + _SAME):
            factors.append((seconds - step) / (total - step))
    return min(factors, default=float("inf"))
