# SPDX-License-Identifier: Apache-2.0
"""The course of a profile of Headrace's own loader, made by the user or, of a dataset, by the profile itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from headrace.errors import ProfileError
from headrace.loader import Loader, limit_storage
from headrace.measuring import ImageSample, from_dataset, stored_bytes
from headrace.planning.commands import new_dataset_path
from headrace.profiling._measurements import RecipeSummary, Source, Stage
from headrace.profiling.judging._pipeline import CACHED_SHARE
from headrace.profiling.stages._instrument import Inside, Instrument, describe_transforms
from headrace.profiling.stages._loader_stages import core_stages, function_stages, own_clocks
from headrace.profiling.stages._storage import cold_record_rates
from headrace.profiling.subjects._alternatives import add_formats
from headrace.profiling.subjects._course import Course
from headrace.profiling.subjects._notebook import Notebook, describe_machine
from headrace.profiling.subjects._settings import Making, Settings
from headrace.profiling.subjects._whole import add_whole
from headrace.records import Dataset
from headrace.units import rate_text

# Batches that an epoch of a loader that the profile makes has at least, so that its start and end do not weigh.
LEAST_EPOCH = 128


def make_loader(dataset: Dataset, making: Making, settings: Settings, *, memory: int | None) -> Loader:
    """Make the loader that a trainer of this dataset would have."""
    if len(dataset) == 0:
        raise ProfileError(f"{dataset.path} has no samples: there is nothing to measure")
    # Where every epoch has to read from storage, what lies in memory just now would flatter it.
    too_large = memory is not None and stored_bytes(dataset) > CACHED_SHARE * memory
    rounds = -(-LEAST_EPOCH * making.batch_size // len(dataset))
    loader = Loader(
        dataset,
        batch_size=making.batch_size,
        transform=making.transform,
        shuffle=True,
        indices=np.tile(np.arange(len(dataset)), rounds) if rounds > 1 else None,
        num_workers=settings.cores,
        output=settings.output,
        direct_io=settings.cold or too_large,
        **making.options,
    )
    limit = settings.emulation.storage_rate
    if limit is not None:
        limit_storage(loader, limit)
    return loader


def plan_loader(course: Course, loader: Loader, dataset: Dataset | None, settings: Settings) -> Notebook:
    """Plan all phases: the loader as a whole, its stages, and other formats of its images.

    Args:
        course: Gets the phases.
        loader: The user's, or one that `make_loader` made.
        dataset: What `make_loader` was given; None if the loader is the user's.
        settings: Of the profile.

    """
    inside = Inside.of(loader)
    samples = loader.dataset if dataset is None else dataset
    images, positions = from_dataset(samples)
    instrument = Instrument(loader, samples, inside, positions)
    book = Notebook(
        machine=describe_machine(settings.cores, samples.path, settings.emulation.text),
        source=_describe_source(samples, images, "loader" if dataset is None else "dataset", repr(loader)),
        recipe=RecipeSummary(
            batch_size=loader.batch_size, workers=inside.threads, transforms=describe_transforms(inside.compiled)
        ),
    )
    cold = settings.cold or inside.direct_io or inside.storage_rate is not None
    book.reads_cold = True if cold else None
    add_whole(
        course,
        book,
        loader,
        settings,
        warm_loader=instrument.whole if cold else None,
    )
    _add_stages(course, book, instrument, images, settings)
    add_formats(course, book, samples.path, inside.compiled, loader.batch_size, settings)
    return book


def _add_stages(
    course: Course, book: Notebook, instrument: Instrument, images: ImageSample, settings: Settings
) -> None:
    """Plan the stages, each alone."""

    def core(seconds: float) -> str:
        counts = sorted({*settings.core_counts, instrument.inside.threads})
        found = core_stages(instrument, cores=counts, seconds=seconds)
        book.stages += found
        return ", ".join(f"{stage.name} {rate_text(stage.rates[-1].rate)}" for stage in found)

    def read(seconds: float) -> str:
        # What a crop needs of an image may be less than all of it: the loader knows.
        wanted = instrument.bytes_per_sample() or images.image_bytes * images.per_sample
        cold = cold_record_rates(
            images.extents,
            wanted=wanted,
            cores=settings.core_counts,
            seconds=seconds,
            limit=instrument.inside.storage_rate,
        )
        warm = next((stage for stage in book.stages if stage.name == "read"), Stage(name="read"))
        stage = replace(warm, cold_rates=cold, n_bytes=wanted, detail="records")
        book.stages[:] = [stage, *(other for other in book.stages if other.name != "read")]
        return f"{rate_text(cold[-1].rate)} from storage"

    def functions(seconds: float) -> str | None:
        found = function_stages(instrument, seconds=seconds)
        found += own_clocks(instrument, {stage.name for stage in found})
        book.stages += found
        return ", ".join(f"{stage.name} {rate_text(stage.rates[-1].rate)}" for stage in found) or None

    course.add("decode and transform, one core to all", 3, core)
    course.add("read, from storage", 1.5, read)
    course.add("functions and batches", 1.5, functions)


def _describe_source(dataset: Dataset, images: ImageSample, kind: Literal["loader", "dataset"], name: str) -> Source:
    counts: dict[str, int] = {}
    for forms in dataset.formats.values():
        for form, count in forms.items():
            counts[form] = counts.get(form, 0) + count
    whole = max(1, sum(counts.values()))
    return Source(
        kind=kind,
        name=str(dataset.path) if kind == "dataset" else name,
        path=str(dataset.path),
        build_to=new_dataset_path(dataset.path, is_dataset=True),
        samples=len(dataset),
        n_bytes=images.total_bytes,
        image_bytes=images.image_bytes,
        pixel_bytes=images.pixel_bytes,
        formats={form: count / whole for form, count in counts.items()},
        lossy="jpeg" in counts,
    )
