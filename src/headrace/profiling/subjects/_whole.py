# SPDX-License-Identifier: Apache-2.0
"""The phases that every subject has: the loader alone, the trainer alone, both together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from headrace.measuring import EnergyCounter
from headrace.profiling._measurements import Memory
from headrace.profiling.stages._batches import batch_bytes
from headrace.profiling.stages._differential import Run, run_loader, run_trainer
from headrace.profiling.subjects._course import Course, OutOfTime
from headrace.profiling.subjects._notebook import Notebook
from headrace.profiling.subjects._settings import Settings
from headrace.units import rate_text


def add_whole(
    course: Course,
    book: Notebook,
    loader: Iterable[Any],
    settings: Settings,
    *,
    warm_loader: Callable[[], AbstractContextManager[Iterable[Any]]] | None = None,
) -> None:
    """Plan the differential measurement of a loader.

    Args:
        course: Gets the phases.
        book: Gets the findings.
        loader: Anything that gives batches, epoch after epoch.
        settings: Of the profile.
        warm_loader: Makes the same loader over a few samples that stay in memory, where `loader` reads from storage.

    """
    found = book.differential
    seen: dict[str, Run] = {}

    def alone(seconds: float) -> str:
        counter = EnergyCounter()
        counter.start()
        run = seen["loader"] = run_loader(loader, seconds=seconds)
        joules = counter.joules() if counter.source else None
        book.note_energy(run, joules, counter.source, settings.watts)
        _note_run(book, run)
        return _told(run.rate)

    def warm(seconds: float) -> str:
        assert warm_loader is not None
        with warm_loader() as cached:
            rate = found["warm_loader"] = run_loader(cached, seconds=seconds).rate
        return _told(rate)

    def trainer(seconds: float) -> str | None:
        assert settings.step is not None
        batch, images = seen["loader"].batch, seen["loader"].batch_images
        if settings.stated_step is not None:
            images = max(images, book.recipe.batch_size or 0)
            found.update(trainer=images / settings.stated_step, stated=True, step_seconds=settings.stated_step)
            return _told(found["trainer"])
        run = run_trainer(settings.step, batch, images, seconds=seconds)
        rate = run.rate
        found.update(
            trainer=rate,
            trainer_spread=run.spread,
            step_seconds=images / rate if rate else None,
            trainer_cores=run.cores,
        )
        return _told(rate)

    def together(seconds: float) -> str:
        alone = seen["loader"]
        if course.spent + 2 * alone.seconds / max(1, alone.batches) > course.latest:
            raise OutOfTime
        run = run_loader(loader, seconds=seconds, step=settings.step)
        found.update(together=run.rate, together_spread=run.spread)
        return _told(run.rate)

    course.add("loader alone", 3, alone, vital=True)
    if settings.step is not None:
        course.add("trainer alone", 0.1 if settings.stated_step is not None else 1.5, trainer, vital=True)
        course.add("both together", 3, together, needed=False)
    if warm_loader is not None:
        course.add("loader alone, from memory", 1.5, warm)


def _note_run(book: Notebook, run: Run) -> None:
    book.differential.update(
        loader=run.rate,
        loader_spread=run.spread,
        loader_cores=run.cores,
        thread_busy=min(1.0, run.thread_seconds / run.seconds) if run.seconds > 0 else None,
        batches=run.batches,
    )
    size = batch_bytes(run.batch)
    book.recipe = replace(book.recipe, batch_bytes=size)
    if book.recipe.batch_size is None:
        book.recipe = replace(book.recipe, batch_size=run.batch_images)
    if run.cost.peak_bytes is not None:
        book.memory = Memory(peak_bytes=run.cost.peak_bytes)


def _told(rate: float | None) -> str:
    return "too short to measure" if rate is None else rate_text(rate)
