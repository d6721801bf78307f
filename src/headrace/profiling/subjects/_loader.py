# SPDX-License-Identifier: Apache-2.0
"""The profile of a `headrace.Loader`, made by the user or, for a dataset, by the profile."""

from __future__ import annotations

from collections import Counter

import numpy as np

from headrace.errors import ProfileError
from headrace.loader import Loader, limit_storage, storage_limit
from headrace.measuring import ImageSample, available_memory, sample_dataset, stored_bytes
from headrace.planning.commands import new_dataset_path
from headrace.profiling._measurements import CACHED_SHARE, Measurements, ProfiledSource, Rate, RecipeSummary
from headrace.profiling.stages._loader_stages import Instrument, describe_transforms
from headrace.profiling.stages._storage import cold_record_rates
from headrace.profiling.subjects._phases import core_phase, formats_phase, storage_phase, training_phases
from headrace.profiling.subjects._schedule import Schedule
from headrace.profiling.subjects._settings import BatchOptions, Settings, describe_machine
from headrace.records import Dataset

MIN_EPOCH_BATCHES = 128
"""Batches per epoch of a loader that the profile makes, so that starts and ends of epochs do not matter."""


def make_loader(dataset: Dataset, batches: BatchOptions, settings: Settings) -> Loader:
    """Make the loader that training from this dataset would use."""
    if len(dataset) == 0:
        raise ProfileError(f"a dataset must have samples to be profiled; {dataset.path} has none")
    # If every epoch must read from storage, what is in memory now would make it look faster.
    memory = available_memory()
    too_large = memory is not None and stored_bytes(dataset) > CACHED_SHARE * memory
    rounds = -(-MIN_EPOCH_BATCHES * batches.batch_size // len(dataset))
    loader = Loader(
        dataset,
        shuffle=True,
        indices=np.tile(np.arange(len(dataset)), rounds) if rounds > 1 else None,
        num_workers=settings.cores,
        output=settings.output,
        direct_io=settings.cold or too_large,
        **batches.loader,
    )
    if settings.storage_rate is not None:
        limit_storage(loader, settings.storage_rate)
    return loader


def profile_loader(loader: Loader, dataset: Dataset | None, settings: Settings, schedule: Schedule) -> Measurements:
    """Measure the loader, its stages, and other formats of its images; `dataset` is None for a user's loader."""
    samples = loader.dataset if dataset is None else dataset
    images, positions = sample_dataset(samples)
    instrument = Instrument(loader, samples, positions)
    compiled = instrument.compiled
    cold = settings.cold or loader.direct_io or storage_limit(loader) is not None
    start = Measurements(
        machine=describe_machine(settings, samples.path),
        source=_describe_source(samples, images, None if dataset is not None else loader),
        recipe=RecipeSummary(
            batch_size=loader.batch_size, workers=instrument.threads, transforms=describe_transforms(compiled)
        ),
        reads_cold=True if cold else None,
    )

    def cold_rates(seconds: float) -> tuple[tuple[Rate, ...], list[str]]:
        return cold_record_rates(images.extents, wanted=n_bytes(), cores=settings.core_counts, seconds=seconds), []

    def n_bytes() -> float:
        # A crop may need only a part of an image: the loader has counted its reads.
        return instrument.bytes_per_sample() or stored_bytes(samples) / len(samples)

    phases = [
        *training_phases(loader, settings, schedule, thread_stages=instrument.thread_stages),
        core_phase(instrument.run_from_memory, settings.core_counts, instrument.threads),
        storage_phase(cold_rates, n_bytes, storage_limit(loader)),
        formats_phase(samples.path, compiled, loader.batch_size, settings, schedule),
    ]
    return schedule.run(phases, start)


def _describe_source(dataset: Dataset, images: ImageSample, loader: Loader | None) -> ProfiledSource:
    counts = sum(map(Counter, dataset.formats.values()), Counter[str]())
    return ProfiledSource(
        kind="dataset" if loader is None else "loader",
        name=dataset.location if loader is None else repr(loader),
        path=dataset.location,
        build_to=new_dataset_path(dataset.path, is_dataset=True),
        samples=len(dataset),
        n_bytes=stored_bytes(dataset),
        image_bytes=images.image_bytes,
        pixel_bytes=images.pixel_bytes,
        formats={name: count / max(1, counts.total()) for name, count in counts.items()},
    )
