# SPDX-License-Identifier: Apache-2.0
"""`headrace.profile`: measure a loader, a dataset or a folder of images, and say what bounds it."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from headrace.errors import LoaderError, ProfileError
from headrace.loader import Loader
from headrace.measuring import WATTS_PER_CORE, NoiseMonitor, available_memory
from headrace.profiling.report._report import Report
from headrace.profiling.subjects._course import Course, ProgressHook
from headrace.profiling.subjects._folder import plan_folder
from headrace.profiling.subjects._foreign import plan_foreign
from headrace.profiling.subjects._loader import make_loader, plan_loader
from headrace.profiling.subjects._notebook import Notebook
from headrace.profiling.subjects._settings import (
    FULL_SECONDS,
    QUICK_LATEST,
    QUICK_SECONDS,
    Emulation,
    RecipeLike,
    Settings,
    core_counts,
    on_cores,
    read_recipe,
    read_step,
    refuse_needless,
)
from headrace.records import Dataset


def profile(
    subject: Loader | Dataset | str | PathLike[str] | Iterable[Any],
    step: Callable[[Any], Any] | float | None = None,
    *,
    recipe: RecipeLike | None = None,
    transform: Any = None,
    crop: int | None = None,
    batch_size: int | None = None,
    cold: bool = False,
    cores: Sequence[int] | None = None,
    emulate: str | None = None,
    quick: bool = False,
    seconds: float | None = None,
    watts: float = WATTS_PER_CORE,
    workdir: str | PathLike[str] | None = None,
    progress: ProgressHook | None = None,
) -> Report:
    """Measure what limits a training run, and what would make it faster.

    A loader is iterated for a while by itself, with the trainer, and the trainer runs on one batch by itself. Of a
    dataset, a folder of images and Headrace's own loader every stage is measured alone too. After Ctrl-C the report
    holds what was measured so far (`report.measurements.interrupted`), and names no bottleneck that was not measured.

    Args:
        subject: A loader of any kind that gives batches each time it is iterated; or a dataset, or a folder of images
            or another source, which is then loaded as `recipe` or `transform` and `batch_size` say.
        step: The training step, called with a batch, many times, also with the same one; or the seconds that it
            takes, which are then waited. Batches of a loader that the profile makes are dicts of tensors if PyTorch
            was imported, else of NumPy arrays.
        recipe: As a loader gives it, or a JSON file with it.
        transform: As for `Loader`; by default a random crop of `crop` pixels, a flip, and normalisation.
        crop: Edge of that crop; 224 by default.
        batch_size: 64 by default.
        cold: Read from storage, not from memory: pages are dropped, or bypassed.
        cores: Numbers of cores to measure stages with; from one to all by default.
        emulate: A smaller machine, as in `storage=200MB/s,cores=2`.
        quick: Take less than a minute in all.
        seconds: How long to measure, about.
        watts: That a busy core is taken to draw, where the machine has no counter of energy that can be read.
        workdir: Where a few images are stored in other formats for a while; by default the system's temporary folder.
        progress: Called with a `Progress` before each measurement and at the end.

    Raises:
        ProfileError: There is nothing to measure, or something was asked for that means nothing here.

    """
    function, stated = read_step(step)
    if seconds is not None and not seconds > 0:
        raise ProfileError(f"seconds must be > 0; got {seconds}")
    if workdir is not None and not Path(workdir).is_dir():
        raise ProfileError(f"workdir must be a folder; {workdir} is not: create it, or omit workdir")
    emulation = Emulation.parse(emulate)
    making = {"recipe": recipe, "transform": transform, "crop": crop, "batch_size": batch_size}
    with on_cores(emulation.cores) as there, ExitStack() as closing:
        course = Course(
            seconds or (QUICK_SECONDS if quick else FULL_SECONDS),
            progress,
            latest=QUICK_LATEST if quick else math.inf,
            watch=NoiseMonitor(there),
        )
        settings = Settings(
            step=function,
            stated_step=stated,
            cold=cold,
            cores=there,
            core_counts=core_counts(there, None if cores is None else tuple(cores)),
            emulation=emulation,
            quick=quick,
            output=_output(step),
            watts=watts,
            workdir=None if workdir is None else str(workdir),
        )
        missing = sorted(set(cores or ()) - set(settings.core_counts))
        if missing:
            course.notes.append(f"not measured with {', '.join(map(str, missing))} cores: this process may use {there}")
        book = _plan(subject, course, settings, making, closing)
        course.run()
        return Report(book.freeze(course))


def _output(step: Any) -> Literal["torch", "numpy"]:
    """Tensors for a trainer of PyTorch, which has imported it; a wait takes anything."""
    return "torch" if callable(step) and sys.modules.get("torch") is not None else "numpy"


def _plan(subject: Any, course: Course, settings: Settings, making: dict[str, Any], closing: ExitStack) -> Notebook:
    """Lay out the course for what was given."""
    if isinstance(subject, str | PathLike):
        path = Path(subject)
        subject = Dataset(path) if (path / "dataset.json").exists() else path
    if isinstance(subject, Dataset | Path):
        made = read_recipe(**making)
        if isinstance(subject, Path):
            book = plan_folder(course, subject, made, settings)
        else:
            loader = closing.enter_context(make_loader(subject, made, settings, memory=available_memory()))
            book = plan_loader(course, loader, subject, settings)
        book.recipe = replace(book.recipe, options=made.words)
        return book
    refuse_needless(making, "a loader", "it has its own; profile a dataset or a folder with it")
    limit = settings.emulation.storage_rate
    if isinstance(subject, Loader):
        refuse_needless({"emulated storage": limit}, "a loader", "profile its dataset instead")
        refuse_needless({"cold": settings.cold}, "a loader", "give direct_io=True to the loader")
        closing.enter_context(_where_it_was(subject))
        return plan_loader(course, subject, None, settings)
    if not isinstance(subject, Iterable) or isinstance(subject, Iterator):
        raise ProfileError(
            f"a {type(subject).__qualname__} cannot be profiled: give a loader that can be iterated again and again, "
            f"a dataset, or the path of a dataset or of a folder of images"
        )
    refuse_needless({"emulated storage": limit, "cold": settings.cold}, "a loader that is not ours", "leave it out")
    return plan_foreign(course, subject, settings)


@contextmanager
def _where_it_was(loader: Loader) -> Iterator[None]:
    """Leave the user's loader at the epoch and sample that it had."""
    state = loader.state_dict()
    try:
        yield
    finally:
        with contextlib.suppress(LoaderError):
            loader.load_state_dict(state)
