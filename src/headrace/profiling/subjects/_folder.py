# SPDX-License-Identifier: Apache-2.0
"""The profile of a folder of images, or of another source of them.

The images are loaded by Python threads as one would by hand. Then each stage is measured alone, and the same images as
records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from headrace import transforms
from headrace.errors import ProfileError
from headrace.measuring import (
    FILE_KINDS,
    ImageSample,
    drop,
    encoded_image,
    from_source,
    list_items,
    read_file,
    scaling_of,
    some_of,
)
from headrace.planning.commands import new_dataset_path
from headrace.profiling._measurements import CACHED_SHARE, Measurements, ProfiledSource, Rate, RecipeSummary, Stage
from headrace.profiling.stages import _files as files
from headrace.profiling.stages._files import RawLoader, RawSample, StorageThrottle
from headrace.profiling.stages._loader_stages import describe_transforms
from headrace.profiling.stages._storage import file_stages
from headrace.profiling.subjects._phases import formats_phase, records_phase, training_phases
from headrace.profiling.subjects._schedule import Findings, Phase, Schedule
from headrace.profiling.subjects._settings import BatchOptions, Settings, describe_machine
from headrace.sources import Item, Source, open_source
from headrace.transforms import Compiled
from headrace.units import rate_text

MAX_EPOCH_FILES = 8192
"""Files per epoch: more would only take longer to drop from the page cache before each epoch."""
MIN_EPOCH_BATCHES = 64
QUICK_BATCH_SECONDS = 3.0
"""With images that take seconds each, a quick profile could not wait for a complete batch."""
MAX_CACHED_SHARE = 0.05
"""If more of the files stays in the page cache, the report says that reads may not have been cold."""


@dataclass(frozen=True, slots=True)
class _Folder:
    """A source, its listed items and how they become batches."""

    source: Source
    root: str
    items: Sequence[Item]
    images: ImageSample
    compiled: Compiled
    batches: BatchOptions
    settings: Settings

    def load(self, item: Item) -> bytes:
        return bytes(encoded_image(self.source, item).data)


def profile_folder(path: Path, batches: BatchOptions, settings: Settings, schedule: Schedule) -> Measurements:
    """Measure the files, their stages, and the same images as records and in other formats."""
    source = open_source(path)
    if settings.cold and source.kind not in FILE_KINDS:
        raise ProfileError(f"cold=True needs one file per image; {path} has none: build a dataset and profile that")
    items, complete = list_items(source, min(5.0, schedule.left / 8))
    images = from_source(source, str(path), items, complete=complete)
    compiled = transforms.compile(batches.transform, **batches.compile_options)
    folder = _Folder(source, str(path), items, images, compiled, batches, settings)
    machine = describe_machine(settings, path)
    # Of a folder that was not listed to its end, the listed part may already be too large.
    listed = sum(item.n_bytes for item in items)
    too_large = machine.memory_bytes is not None and listed > CACHED_SHARE * machine.memory_bytes
    drops_pages = settings.cold or too_large
    cold = drops_pages or settings.emulation.storage_rate is not None
    loader = _raw_loader(folder, drops_pages=drops_pages)
    partly = f"only the first {len(items):,} samples were listed: whether all of them fit in memory is not known"
    start = Measurements(
        machine=machine,
        source=ProfiledSource(
            kind="folder",
            name=str(path),
            path=str(path),
            build_to=new_dataset_path(path, is_dataset=False),
            samples=images.total,
            n_bytes=images.total_bytes,
            image_bytes=listed / len(items),
            pixel_bytes=images.pixel_bytes,
            formats=images.formats,
        ),
        recipe=RecipeSummary(
            batch_size=batches.batch_size, workers=settings.cores, transforms=describe_transforms(compiled)
        ),
        reads_cold=True if cold else None,
        notes=() if complete else (partly,),
    )
    warm = (lambda: nullcontext(_memory_loader(folder))) if cold else None
    phases = [
        *training_phases(loader, settings, schedule, warm_loader=warm),
        _files_phase(folder) if images.extents else _samples_phase(folder),
        *_stage_phases(folder),
        *([records_phase(source, str(path), items, settings)] if images.extents else []),
        formats_phase(path, compiled, batches.batch_size, settings, schedule),
    ]
    found = schedule.run(phases, start)
    count = len(loader.failures)
    failed = (
        f"{count} file{'s' if count > 1 else ''} could not be loaded, such as {name}: {error}"
        for name, error in islice(loader.failures.items(), 1)
    )
    return replace(found, notes=(*found.notes, *failed))


def _raw_loader(folder: _Folder, *, drops_pages: bool) -> RawLoader:
    """Return a loader of the files; for cold reads their pages are dropped before each epoch."""
    settings, batch_size = folder.settings, folder.batches.batch_size
    chosen = some_of(folder.items, MAX_EPOCH_FILES)
    if not drops_pages:  # a file can be cold only once per epoch, and warm any number of times
        chosen = [*chosen] * max(1, MIN_EPOCH_BATCHES * batch_size // len(chosen))
    in_files = folder.source.kind in FILE_KINDS
    paths = [f"{folder.root}/{item.key}" for item in chosen] if in_files else []
    reads: list[Callable[[], bytes]] = (
        [partial(read_file, path) for path in paths] if in_files else [partial(folder.load, item) for item in chosen]
    )
    labels = _labels(folder.source, chosen)
    limit = settings.emulation.storage_rate
    return RawLoader(
        [RawSample(item.key, read, label) for item, read, label in zip(chosen, reads, labels, strict=True)],
        folder.compiled,
        batch_size=batch_size,
        workers=settings.cores,
        output=settings.output,
        throttle=None if limit is None else StorageThrottle(limit),
        max_batch_seconds=QUICK_BATCH_SECONDS if settings.quick else math.inf,
        before_epoch=partial(drop, paths) if drops_pages and paths else None,
    )


def _labels(source: Source, items: Sequence[Item]) -> Sequence[int | None]:
    """Return the class of each file, which is its folder; None if there are no classes."""
    if source.kind != "classes" or source.classes is None:
        return [None] * len(items)
    numbers = {name: number for number, name in enumerate(source.classes)}
    return [numbers[item.key.partition("/")[0]] for item in items]


def _memory_loader(folder: _Folder) -> RawLoader:
    """Return the same loader over a few images in memory."""
    contents = folder.images.contents
    samples = [RawSample(str(number), partial(contents.__getitem__, number)) for number in range(len(contents))]
    batch_size = folder.batches.batch_size
    samples *= max(1, MIN_EPOCH_BATCHES * batch_size // len(samples))
    return RawLoader(samples, folder.compiled, batch_size=batch_size, workers=folder.settings.cores)


def _files_phase(folder: _Folder) -> Phase:
    """Measure open and read of files."""
    settings, images = folder.settings, folder.images

    def read_files(found: Findings, seconds: float) -> Findings:
        limit = settings.emulation.storage_rate
        stages, cached = file_stages(images.extents, cores=settings.core_counts, seconds=seconds, limit=limit)
        share = "an unknown share" if cached is None else f"{cached:.0%}"
        note = f"{share} of the files stayed in the page cache: cold reads may not have been cold"
        read = stages[-1]
        return found.add(
            f"{rate_text(read.cold_rates[-1].rate)} cold, {read.rates[-1].rate:,.0f} warm",
            stages=stages,
            notes=[note] if cached is None or cached > MAX_CACHED_SHARE else [],
        )

    return Phase("open and read, cold and warm", 2, read_files)


def _samples_phase(folder: _Folder) -> Phase:
    """Measure reading through the source, if images are not single files."""
    settings, images = folder.settings, folder.images
    cores = settings.core_counts

    def samples(found: Findings, seconds: float) -> Findings:
        few = some_of(folder.items, len(images))
        rates, cpu = scaling_of(lambda number: folder.load(few[number]), len(few), cores=cores, seconds=seconds)
        limit, mean = settings.emulation.storage_rate, images.image_bytes
        cold = () if limit is None else tuple(Rate(cores=n, rate=limit / mean) for n in cores)
        stage = Stage(name="read", rates=rates, cold_rates=cold, cpu_seconds=cpu, n_bytes=mean)
        return found.add(rate_text(rates[-1].rate), stages=[stage])

    return Phase("read", 1, samples)


def _stage_phases(folder: _Folder) -> list[Phase]:
    """Measure the stages after reading, each alone."""

    def phase(name: str, weight: float, measure: Callable[..., Stage], **options: object) -> Phase:
        def stage(found: Findings, seconds: float) -> Findings:
            measured = measure(folder.images, folder.compiled, seconds=seconds, **options)
            return found.add(rate_text(measured.rates[-1].rate), stages=[measured])

        return Phase(name, weight, stage)

    cores = folder.settings.core_counts
    return [
        phase("decode, one core to all", 1.5, files.decode_stage, cores=cores),
        phase("transform, one core to all", 1.5, files.transform_stage, cores=cores),
        phase("batch", 0.5, files.batch_stage, batch_size=folder.batches.batch_size),
    ]
