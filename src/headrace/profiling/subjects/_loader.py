# SPDX-License-Identifier: Apache-2.0
"""The profile of a `headrace.Loader`, made by the user or, for a dataset, by the profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headrace.errors import ProfileError
from headrace.loader import Loader, limit_storage, storage_limit
from headrace.measuring import ImageSample, available_memory, from_dataset, stored_bytes
from headrace.planning.commands import new_dataset_path
from headrace.profiling._measurements import CACHED_SHARE, Measurements, ProfiledSource, RecipeSummary, Stage
from headrace.profiling.stages._loader_stages import (
    Instrument,
    clocked_stages,
    core_stages,
    describe_transforms,
    function_stages,
)
from headrace.profiling.stages._storage import cold_record_rates
from headrace.profiling.subjects._phases import formats_phase, training_phases
from headrace.profiling.subjects._schedule import Findings, Phase, Schedule
from headrace.profiling.subjects._settings import BatchOptions, Settings, describe_machine
from headrace.records import Dataset
from headrace.units import rate_text

MIN_EPOCH_BATCHES = 128
"""Batches per epoch of a loader that the profile makes, so that starts and ends of epochs do not matter."""


def make_loader(dataset: Dataset, batches: BatchOptions, settings: Settings) -> Loader:
    """Make the loader that training from this dataset would use."""
    if len(dataset) == 0:
        raise ProfileError(f"a dataset to profile must have samples; {dataset.path} is empty")
    # If every epoch must read from storage, what is in memory now would make it look faster.
    memory = available_memory()
    too_large = memory is not None and stored_bytes(dataset) > CACHED_SHARE * memory
    rounds = -(-MIN_EPOCH_BATCHES * batches.batch_size // len(dataset))
    loader = Loader(
        dataset,
        batch_size=batches.batch_size,
        transform=batches.transform,
        shuffle=True,
        indices=np.tile(np.arange(len(dataset)), rounds) if rounds > 1 else None,
        num_workers=settings.cores,
        output=settings.output,
        direct_io=settings.cold or too_large,
        **batches.loader_options,
    )
    if settings.emulation.storage_rate is not None:
        limit_storage(loader, settings.emulation.storage_rate)
    return loader


def profile_loader(loader: Loader, dataset: Dataset | None, settings: Settings, schedule: Schedule) -> Measurements:
    """Measure the loader, its stages, and other formats of its images; `dataset` is None for a user's loader."""
    samples = loader.dataset if dataset is None else dataset
    images, positions = from_dataset(samples)
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
    phases = [
        *training_phases(loader, settings, schedule, warm_loader=instrument.from_memory if cold else None),
        *_stage_phases(instrument, images, settings),
        formats_phase(samples.path, compiled, loader.batch_size, settings, schedule),
    ]
    return schedule.run(phases, start)


def _stage_phases(instrument: Instrument, images: ImageSample, settings: Settings) -> list[Phase]:
    """Measure each stage alone."""

    def core(found: Findings, seconds: float) -> Findings:
        counts = sorted({*settings.core_counts, instrument.threads})
        stages = core_stages(instrument, cores=counts, seconds=seconds)
        return found.add(_summary(stages), stages=stages)

    def read(found: Findings, seconds: float) -> Findings:
        # A crop may need only a part of an image: the loader has counted its reads.
        wanted = instrument.bytes_per_sample() or images.image_bytes * images.per_sample
        cold = cold_record_rates(
            images.extents,
            wanted=wanted,
            cores=settings.core_counts,
            seconds=seconds,
            limit=storage_limit(instrument.loader),
        )
        known = found.measurements.stages
        warm = next((stage for stage in known if stage.name == "read"), Stage(name="read"))
        stage = replace(warm, cold_rates=cold, n_bytes=wanted, detail="records")
        others = (other for other in known if other.name != "read")
        changes = replace(found.measurements, stages=(stage, *others))
        return replace(found, measurements=changes, summary=f"{rate_text(cold[-1].rate)} from storage")

    def functions(found: Findings, seconds: float) -> Findings:
        stages = function_stages(instrument, seconds=seconds)
        stages += clocked_stages(instrument, {stage.name for stage in stages})
        return found.add(_summary(stages) or None, stages=stages)

    return [
        Phase("decode and transform, one core to all", 3, core),
        Phase("read, from storage", 1.5, read),
        Phase("functions and batches", 1.5, functions),
    ]


def _summary(stages: Sequence[Stage]) -> str:
    return ", ".join(f"{stage.name} {rate_text(stage.rates[-1].rate)}" for stage in stages)


def _describe_source(dataset: Dataset, images: ImageSample, loader: Loader | None) -> ProfiledSource:
    counts = sum(map(Counter, dataset.formats.values()), Counter[str]())
    return ProfiledSource(
        kind="dataset" if loader is None else "loader",
        name=str(dataset.path) if loader is None else repr(loader),
        path=str(dataset.path),
        build_to=new_dataset_path(dataset.path, is_dataset=True),
        samples=len(dataset),
        n_bytes=images.total_bytes,
        image_bytes=images.image_bytes,
        pixel_bytes=images.pixel_bytes,
        formats={name: count / max(1, counts.total()) for name, count in counts.items()},
    )
