# SPDX-License-Identifier: Apache-2.0
"""The phases of every subject: the loader alone, the trainer alone, both together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from headrace.measuring import EnergyCounter
from headrace.profiling._measurements import Energy, Memory
from headrace.profiling.stages._runs import TimedRun, run_loader, run_trainer
from headrace.profiling.subjects._schedule import Findings, OutOfTime, Phase, Schedule
from headrace.profiling.subjects._settings import Settings
from headrace.units import rate_text


def training_phases(
    loader: Iterable[Any],
    settings: Settings,
    schedule: Schedule,
    *,
    warm_loader: Callable[[], AbstractContextManager[Iterable[Any]]] | None = None,
) -> list[Phase]:
    """Measure a loader and the trainer.

    Args:
        loader: Anything that gives batches, epoch after epoch.
        settings: Of the profile.
        schedule: Runs the phases.
        warm_loader: Makes the same loader over a few samples in memory, if `loader` reads from storage.

    """

    def loader_alone(found: Findings, seconds: float) -> Findings:
        counter = EnergyCounter()
        counter.start()
        run = run_loader(loader, seconds=seconds)
        joules = counter.joules() if counter.source else None
        recipe, peak = found.measurements.recipe, run.cost.peak_bytes
        return found.add(
            _summary(run.rate),
            loader_run=run,
            differential={
                "loader": run.rate,
                "loader_spread": run.spread,
                "loader_cores": run.cores,
                "thread_busy": min(1.0, run.thread_seconds / run.seconds) if run.seconds > 0 else None,
                "batches": run.batches,
            },
            recipe=recipe if recipe.batch_size else replace(recipe, batch_size=run.batch_images),
            memory=None if peak is None else Memory(peak_bytes=peak),
            energy=_energy(run, joules, counter.source, settings.watts),
        )

    def from_memory(found: Findings, seconds: float) -> Findings:
        assert warm_loader is not None
        with warm_loader() as cached:
            rate = run_loader(cached, seconds=seconds).rate
        return found.add(_summary(rate), differential={"warm_loader": rate})

    def trainer_alone(found: Findings, seconds: float) -> Findings:
        assert settings.step is not None
        assert found.loader_run is not None
        batch, images = found.loader_run.batch, found.loader_run.batch_images
        if settings.stated_step is not None:
            rate = max(images, found.measurements.recipe.batch_size or 0) / settings.stated_step
            stated = {"trainer": rate, "stated": True, "step_seconds": settings.stated_step}
            return found.add(_summary(rate), differential=stated)
        run = run_trainer(settings.step, batch, images, seconds=seconds)
        measured = {
            "trainer": run.rate,
            "trainer_spread": run.spread,
            "step_seconds": images / run.rate if run.rate else None,
            "trainer_cores": run.cores,
        }
        return found.add(_summary(run.rate), differential=measured)

    def both_together(found: Findings, seconds: float) -> Findings:
        alone = found.loader_run
        assert alone is not None
        if schedule.spent + 2 * alone.seconds / max(1, alone.batches) > schedule.latest:
            raise OutOfTime
        run = run_loader(loader, seconds=seconds, step=settings.step)
        return found.add(_summary(run.rate), differential={"together": run.rate, "together_spread": run.spread})

    phases = [Phase("loader alone", 3, loader_alone, "essential")]
    if settings.step is not None:
        phases.append(Phase("trainer alone", 0.1 if settings.stated_step else 1.5, trainer_alone, "essential"))
        phases.append(Phase("both together", 3, both_together, "useful"))
    if warm_loader is not None:
        phases.append(Phase("loader alone, from memory", 1.5, from_memory))
    return phases


def _energy(run: TimedRun, joules: float | None, meter: str | None, watts: float) -> Energy:
    """Return the energy per image from a counter, or estimated from the CPU time."""
    images = max(1, run.total_images)
    if joules is not None and meter is not None:
        return Energy(joules=joules / images, estimated=False, meter=meter)
    return Energy(joules=run.cost.cpu_seconds * watts / images, estimated=True, meter="cpu time", watts=watts)


def _summary(rate: float | None) -> str:
    return "too short to measure" if rate is None else rate_text(rate)
