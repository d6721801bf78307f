# SPDX-License-Identifier: Apache-2.0
"""The course of a profile of any other loader: PyTorch's DataLoader, or whatever gives batches when iterated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.profiling._course import Course
from headrace.profiling._foreign import is_data_loader, stages_of, summary_of
from headrace.profiling._measurements import RecipeSummary, Source
from headrace.profiling._notebook import Notebook, describe_machine
from headrace.profiling._settings import Settings
from headrace.profiling._whole import add_whole


def plan_foreign(course: Course, loader: Iterable[Any], settings: Settings) -> Notebook:
    """Plan the phases: the loader as a whole, and its dataset and `collate_fn` if it has them."""
    kind = type(loader)
    book = Notebook(
        machine=describe_machine(settings.cores, None, settings.emulation.text),
        source=Source(kind="loader", name=f"{kind.__module__}.{kind.__qualname__}", samples=_samples(loader)),
        recipe=summary_of(loader) if is_data_loader(loader) else RecipeSummary(),
    )
    add_whole(course, book, loader, settings)

    def stages(seconds: float) -> str | None:
        found, notes = stages_of(loader, batch_size=book.recipe.batch_size or 1, seconds=seconds)
        book.stages += found
        book.notes += notes
        return ", ".join(f"{stage.name} {stage.rates[0].rate:,.0f} images/s by one" for stage in found) or None

    if is_data_loader(loader):
        course.add("samples and batches, one by one", 2, stages)
    else:
        book.notes.append("the loader shows nothing of its inside: only the whole was measured")
    return book


def _samples(loader: Any) -> int | None:
    try:
        return len(loader.dataset)
    except (AttributeError, TypeError, NotImplementedError):
        return None
