# SPDX-License-Identifier: Apache-2.0
"""`headrace.profile`: measure a loader, a dataset or a folder of images, and find what limits it."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

from headrace.errors import LoaderError, ProfileError
from headrace.loader import Loader
from headrace.measuring import WATTS_PER_CORE, NoiseMonitor
from headrace.planning import RecipeSource, parse_emulation
from headrace.profiling._measurements import Measurements
from headrace.profiling.report._report import Report
from headrace.profiling.subjects._folder import profile_folder
from headrace.profiling.subjects._foreign import profile_foreign
from headrace.profiling.subjects._loader import make_loader, profile_loader
from headrace.profiling.subjects._schedule import ProgressHook, Schedule
from headrace.profiling.subjects._settings import (
    FULL_SECONDS,
    QUICK_LATEST,
    QUICK_SECONDS,
    Settings,
    core_counts,
    limited_cores,
    read_batches,
    read_step,
    refuse,
)
from headrace.records import Dataset
from headrace.sources import is_dataset


def profile(
    subject: Loader | Dataset | str | PathLike[str] | Iterable[Any],
    step: Callable[[Any], Any] | float | None = None,
    *,
    recipe: RecipeSource | None = None,
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

    The loader runs alone, then with the trainer, and the trainer runs alone on one batch. For a dataset, a folder of
    images and a `headrace.Loader`, every stage is measured too. After Ctrl-C the report has what was measured so
    far (`report.measurements.interrupted`), and names no bottleneck that was not measured.

    Args:
        subject: Any loader that gives batches each time it is iterated; or a dataset, or a folder of images or another
            source, which is then loaded with `recipe`, or with `transform` and `batch_size`.
        step: The training step, called with a batch, also repeatedly with the same one; or its time in seconds, which
            the profile then sleeps. Batches of a loader that the profile makes are dicts of tensors if PyTorch was
            imported, otherwise of NumPy arrays.
        recipe: `loader.recipe`, or a JSON file with it.
        transform: As for `Loader`; by default a random crop of `crop` pixels, a flip, and normalization.
        crop: Side of that crop; 224 by default.
        batch_size: Default: the recipe's, or 64.
        cold: Read from storage, not from memory: pages are dropped, or bypassed.
        cores: Numbers of cores to measure stages with; by default 1, 2, 4, … up to all.
        emulate: A slower machine, as in `storage=200MB/s,cores=2`.
        quick: Take less than a minute in total.
        seconds: Approximate duration; 150 by default.
        watts: Power of one busy core, used if the machine has no energy counter that can be read.
        workdir: Folder for a few images in other formats; by default the system's temporary folder.
        progress: Called with a `ProfileProgress` before each measurement and at the end.

    Raises:
        ProfileError: There is nothing to measure, or an argument has no meaning for this subject.

    """
    function, stated = read_step(step)
    if seconds is not None and not seconds > 0:
        raise ProfileError(f"seconds must be > 0; got {seconds}")
    if workdir is not None and not Path(workdir).is_dir():
        raise ProfileError(f"workdir must be a folder; {workdir} is not: create it, or omit workdir")
    emulated = parse_emulation(emulate or "")
    batches = {"recipe": recipe, "transform": transform, "crop": crop, "batch_size": batch_size}
    started = datetime.now(UTC).isoformat(timespec="seconds")
    with limited_cores(emulated.get("cores")) as available:
        schedule = Schedule(
            seconds or (QUICK_SECONDS if quick else FULL_SECONDS),
            progress,
            latest=QUICK_LATEST if quick else math.inf,
            monitor=NoiseMonitor(available),
        )
        settings = Settings(
            step=function,
            stated_step=stated,
            cold=cold,
            cores=available,
            core_counts=core_counts(available, None if cores is None else tuple(cores)),
            storage_rate=emulated.get("storage_rate"),
            emulated=emulate,
            quick=quick,
            # A PyTorch trainer has imported torch; a sleep accepts any batch.
            output="torch" if callable(step) and sys.modules.get("torch") is not None else "numpy",
            watts=watts,
            workdir=None if workdir is None else str(workdir),
        )
        found = _measure(subject, settings, schedule, batches)
    from headrace import __version__  # noqa: PLC0415 - the package imports this module

    missing = sorted(set(cores or ()) - set(settings.core_counts))
    if missing:
        note = f"not measured with {', '.join(map(str, missing))} cores: this process may use {available}"
        found = replace(found, notes=(*found.notes, note))
    return Report(replace(found, started=started, headrace=__version__))


def _measure(subject: Any, settings: Settings, schedule: Schedule, batches: dict[str, Any]) -> Measurements:
    """Run the phases for this kind of subject."""
    if isinstance(subject, str | PathLike):
        path = Path(subject)
        subject = Dataset(path) if is_dataset(path) else path
    if isinstance(subject, Dataset | Path):
        options = read_batches(**batches)
        if isinstance(subject, Path):
            found = profile_folder(subject, options, settings, schedule)
        else:
            with make_loader(subject, options, settings) as loader:
                found = profile_loader(loader, subject, settings, schedule)
        return replace(found, recipe=replace(found.recipe, options=options.cli_options))
    refuse(batches, "a loader", "it has its own; profile a dataset or a folder with it")
    limit = settings.storage_rate
    if isinstance(subject, Loader):
        refuse({"emulated storage": limit}, "a loader", "profile its dataset instead")
        refuse({"cold": settings.cold}, "a loader", "pass direct_io=True to the loader")
        state = subject.state_dict()
        try:
            return profile_loader(subject, None, settings, schedule)
        finally:
            with contextlib.suppress(LoaderError):
                subject.load_state_dict(state)
    if not isinstance(subject, Iterable) or isinstance(subject, Iterator):
        raise ProfileError(
            f"subject must be a loader that can be iterated repeatedly, a dataset, or the path of a dataset or of a "
            f"folder of images; got {type(subject).__qualname__}"
        )
    refuse({"emulated storage": limit, "cold": settings.cold}, "a loader that is not Headrace's", "omit it")
    return profile_foreign(subject, settings, schedule)
