# SPDX-License-Identifier: Apache-2.0
"""The profile of a folder of images, or of another source of them.

The images are loaded by Python threads as one would by hand; then they are read as records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from headrace.errors import ProfileError
from headrace.measuring import FILE_KINDS, ImageSample, drop, encoded_image, list_items, sample_source, some_of
from headrace.planning.commands import new_dataset_path
from headrace.profiling._measurements import CACHED_SHARE, Measurements, ProfiledSource, Rate, RecipeSummary, StageName
from headrace.profiling.stages._clocks import ClockedRun
from headrace.profiling.stages._files import RawLoader, RawSample, StorageThrottle
from headrace.profiling.stages._loader_stages import describe_transforms
from headrace.profiling.stages._runs import run_loader
from headrace.profiling.stages._storage import cold_file_rates
from headrace.profiling.subjects._phases import (
    core_phase,
    formats_phase,
    records_phase,
    storage_phase,
    training_phases,
)
from headrace.profiling.subjects._schedule import Phase, Schedule
from headrace.profiling.subjects._settings import BatchOptions, Settings, describe_machine
from headrace.sources import Item, Source, open_source
from headrace.transforms import Compiled

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
    cached: list[Item]
    """The items of `images`, which are in the page cache."""
    compiled: Compiled
    batches: BatchOptions
    settings: Settings

    @property
    def has_files(self) -> bool:
        """Whether each sample is a file, and not a part of an archive."""
        return self.source.kind in FILE_KINDS

    def samples(self, items: Sequence[Item]) -> list[RawSample]:
        """Return items for a `RawLoader`; the label is the number of the item's folder, if there are classes."""
        classes = self.source.classes if self.source.kind == "classes" else None
        numbers = {name: number for number, name in enumerate(classes or ())}
        return [
            RawSample(
                item.key,
                f"{self.root}/{item.key}" if self.has_files else partial(self._load, item),
                numbers.get(item.key.partition("/")[0]),
            )
            for item in items
        ]

    def _load(self, item: Item) -> bytes:
        return bytes(encoded_image(self.source, item).data)

    def run_from_memory(self, workers: int, seconds: float) -> ClockedRun:
        """Load some images that are in the page cache; see `core_stages`."""
        samples = self.samples(self.cached)
        batch_size = self.batches.batch_size
        samples *= max(1, MIN_EPOCH_BATCHES * batch_size // len(samples))
        # Functions of a batch run in the iterating thread, and would limit the workers.
        compiled = replace(self.compiled, per_batch=())
        loader = RawLoader(samples, compiled, batch_size=batch_size, workers=workers)
        run = run_loader(loader, seconds=seconds)
        details: dict[StageName, str] = {
            "open": "one file per image",
            "read": "one file per image" if self.has_files else self.source.kind,
            "decode": ", ".join(self.images.formats),
            "transform": ", ".join(describe_transforms(self.compiled)) or "copy",
        }
        return ClockedRun(run, {(name, detail): loader.busy_seconds[name] for name, detail in details.items()})

    def storage_phases(self) -> list[Phase]:
        """Measure cold reads of files; other sources are read through the page cache, unless storage is emulated."""
        cores, limit = self.settings.core_counts, self.settings.storage_rate

        def files(seconds: float) -> tuple[tuple[Rate, ...], list[str]]:
            paths = [extent.path for extent in self.images.extents]
            rates, cached = cold_file_rates(paths, cores=cores, seconds=seconds)
            share = "an unknown share" if cached is None else f"{cached:.0%}"
            note = f"{share} of the files stayed in the page cache: cold reads may not have been cold"
            return rates, [note] if cached is None or cached > MAX_CACHED_SHARE else []

        def unlimited(_: float) -> tuple[tuple[Rate, ...], list[str]]:
            return tuple(Rate(cores=n, rate=math.inf) for n in cores), []

        if not self.has_files and limit is None:
            return []
        measure = files if self.has_files else unlimited
        return [storage_phase(measure, lambda: self.images.image_bytes, limit)]


def profile_folder(path: Path, batches: BatchOptions, settings: Settings, schedule: Schedule) -> Measurements:
    """Measure the files, their stages, and the same images as records and in other formats."""
    source = open_source(path)
    if settings.cold and source.kind not in FILE_KINDS:
        raise ProfileError(f"cold=True needs one file per image; {path} has none: build a dataset and profile that")
    items, complete = list_items(source, min(5.0, schedule.left / 8))
    images, cached = sample_source(source, str(path), items)
    compiled = batches.compile()
    folder = _Folder(source, str(path), items, images, cached, compiled, batches, settings)
    machine = describe_machine(settings, path)
    # Of a folder that was not listed to its end, the listed part may already be too large.
    listed = sum(item.n_bytes for item in items)
    too_large = machine.memory_bytes is not None and listed > CACHED_SHARE * machine.memory_bytes
    drops_pages = settings.cold or too_large
    cold = drops_pages or settings.storage_rate is not None
    loader = _raw_loader(folder, drops_pages=drops_pages)
    partly = f"only the first {len(items):,} samples were listed: whether all of them fit in memory is not known"
    start = Measurements(
        machine=machine,
        source=ProfiledSource(
            kind="folder",
            name=str(path),
            path=str(path),
            build_to=new_dataset_path(path, is_dataset=False),
            samples=len(items) if complete else None,
            n_bytes=listed if complete else None,
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
    phases = [
        *training_phases(loader, settings, schedule, thread_stages=loader.thread_stages),
        core_phase(folder.run_from_memory, settings.core_counts, settings.cores),
        *folder.storage_phases(),
        *([records_phase(source, str(path), items, settings)] if folder.has_files else []),
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
    if not drops_pages:  # a file is cold only once per epoch, so files are repeated for warm reads only
        chosen = [*chosen] * max(1, MIN_EPOCH_BATCHES * batch_size // len(chosen))
    paths = [f"{folder.root}/{item.key}" for item in chosen] if folder.has_files else []
    limit = settings.storage_rate
    return RawLoader(
        folder.samples(chosen),
        folder.compiled,
        batch_size=batch_size,
        workers=settings.cores,
        output=settings.output,
        throttle=None if limit is None else StorageThrottle(limit),
        max_batch_seconds=QUICK_BATCH_SECONDS if settings.quick else math.inf,
        before_epoch=partial(drop, paths) if drops_pages and paths else None,
    )
