# SPDX-License-Identifier: Apache-2.0
"""The course of a profile of images as people have them: files in a folder, or what else a source reads.

They are loaded as one would by hand, with threads; then each stage by itself; then the same images as records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

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
from headrace.profiling._measurements import Rate, RecipeSummary, Source, Stage
from headrace.profiling.judging._pipeline import CACHED_SHARE
from headrace.profiling.stages._instrument import describe_transforms
from headrace.profiling.stages._raw import RawLoader, RawSample, Throttle, batch_stage, decode_stage, transform_stage
from headrace.profiling.stages._storage import file_stages
from headrace.profiling.subjects._alternatives import add_formats, add_records
from headrace.profiling.subjects._course import Course
from headrace.profiling.subjects._notebook import Notebook, describe_machine
from headrace.profiling.subjects._settings import Making, Settings
from headrace.profiling.subjects._whole import add_whole
from headrace.sources import Item, open_source
from headrace.sources import Source as AnySource
from headrace.transforms import Compiled
from headrace.units import rate_text

# An epoch of the measurement: more would only take longer to drop from memory before each.
EPOCH_FILES = 8192
# With images that take seconds each, a whole batch of them would be all that a quick profile sees.
QUICK_BATCH_SECONDS = 3.0
LEAST_EPOCH = 64
"""Batches, so that the start and the end of an epoch do not weigh."""


def plan_folder(course: Course, path: Path, making: Making, settings: Settings) -> Notebook:
    """Plan all phases: the files as a whole, their stages, the same images as records and in other formats."""
    source = open_source(path)
    if settings.cold and source.kind not in FILE_KINDS:
        raise ProfileError(f"the images of {path} are no files of their own: build a dataset, and profile that cold")
    items, complete = list_items(source, min(5.0, course.left / 8))
    root = str(path)
    images = from_source(source, root, items, complete=complete)
    compiled = transforms.compile(making.transform, **_compile_options(making))
    machine = describe_machine(settings.cores, path, settings.emulation.text)
    book = Notebook(
        machine=machine,
        source=_describe_source(path, images, items),
        recipe=RecipeSummary(
            batch_size=making.batch_size, workers=settings.cores, transforms=describe_transforms(compiled)
        ),
    )
    if not complete:
        book.notes.append(
            f"only the first {len(items):,} samples were listed: whether memory holds all of them is not known"
        )
    limit = settings.emulation.storage_rate
    # Of a folder that was not listed to its end, what was listed may be too much already.
    listed = sum(item.n_bytes for item in items)
    too_large = machine.memory_bytes is not None and listed > CACHED_SHARE * machine.memory_bytes
    cold = settings.cold or too_large or limit is not None
    book.reads_cold = True if cold else None
    drops = settings.cold or too_large
    loader = _raw_loader(source, root, items, compiled, making, settings, cold=drops)
    add_whole(
        course,
        book,
        loader,
        settings,
        warm_loader=(lambda: nullcontext(_from_memory(images, compiled, making, settings))) if cold else None,
    )

    def failures(_: float) -> str | None:
        if not loader.failures:
            return None
        name, error = next(iter(loader.failures.items()))
        count = len(loader.failures)
        book.notes.append(f"{count} file{'s' if count > 1 else ''} could not be loaded, such as {name}: {error}")
        return str(count)

    course.add("files that could not be loaded", 0.01, failures, needed=False)
    _add_reading(course, book, images, partial(_load, source), items, settings)
    _add_stages(course, book, images, compiled, making, settings)
    if images.extents:
        add_records(course, book, source, root, items, settings)
    add_formats(course, book, path, compiled, making.batch_size, settings)
    return book


def _compile_options(making: Making) -> dict[str, Any]:
    return {name: value for name, value in making.options.items() if name not in ("min_area", "fields")}


def _raw_loader(
    source: AnySource,
    root: str,
    items: Sequence[Item],
    compiled: Compiled,
    making: Making,
    settings: Settings,
    *,
    cold: bool,
) -> RawLoader:
    """A loader of the files, with the pages of an epoch dropped before it where reads are to be cold."""
    chosen = some_of(items, EPOCH_FILES)
    if not cold:
        # A file that was dropped before the epoch is cold once, and one that was not is as warm any time.
        chosen = [*chosen] * max(1, LEAST_EPOCH * making.batch_size // len(chosen))
    in_files = source.kind in FILE_KINDS
    paths = [f"{root}/{item.key}" for item in chosen] if in_files else []
    reads: list[Callable[[], bytes]] = (
        [partial(read_file, path) for path in paths] if in_files else [partial(_load, source, item) for item in chosen]
    )
    labels = _labels(source, chosen)
    samples = [RawSample(item.key, read, label) for item, read, label in zip(chosen, reads, labels, strict=True)]
    limit = settings.emulation.storage_rate
    return RawLoader(
        samples,
        compiled,
        batch_size=making.batch_size,
        workers=settings.cores,
        output=settings.output,
        throttle=None if limit is None else Throttle(limit),
        patience=QUICK_BATCH_SECONDS if settings.quick else math.inf,
        before_epoch=partial(drop, paths) if cold and paths else None,
    )


def _labels(source: AnySource, items: Sequence[Item]) -> Sequence[int | None]:
    """The class of each file, which is the folder that it lies in; None where there are no classes."""
    if source.kind != "classes" or source.classes is None:
        return [None] * len(items)
    numbers = {name: number for number, name in enumerate(source.classes)}
    return [numbers[item.key.partition("/")[0]] for item in items]


def _from_memory(images: ImageSample, compiled: Compiled, making: Making, settings: Settings) -> RawLoader:
    samples = [RawSample(str(number), partial(_held, content)) for number, content in enumerate(images.contents)]
    samples *= max(1, LEAST_EPOCH * making.batch_size // len(samples))
    return RawLoader(samples, compiled, batch_size=making.batch_size, workers=settings.cores)


def _add_reading(
    course: Course,
    book: Notebook,
    images: ImageSample,
    load: Callable[[Item], bytes],
    items: Sequence[Item],
    settings: Settings,
) -> None:
    """Plan open and read: of files, or of what else a source has samples in, which is read through the source."""
    cores = settings.core_counts

    def files(seconds: float) -> str:
        found, kept = file_stages(images.extents, cores=cores, seconds=seconds, limit=settings.emulation.storage_rate)
        book.stages += found
        if kept is None or kept > 0.05:
            share = "an unknown share" if kept is None else f"{kept:.0%}"
            book.notes.append(f"{share} of the files' pages stayed in memory: cold reads may not have been cold")
        reading = found[-1]
        return f"{rate_text(reading.cold_rates[-1].rate)} cold, {reading.rates[-1].rate:,.0f} warm"

    def samples(seconds: float) -> str:
        few = some_of(items, len(images))
        rates, cpu = scaling_of(lambda number: load(few[number]), len(few), cores=cores, seconds=seconds)
        limit, mean = settings.emulation.storage_rate, images.image_bytes
        cold = () if limit is None else tuple(Rate(cores=n, rate=limit / mean) for n in cores)
        book.stages.append(Stage(name="read", rates=rates, cold_rates=cold, cpu_seconds=cpu, n_bytes=mean))
        return rate_text(rates[-1].rate)

    if images.extents:
        course.add("open and read, cold and warm", 2, files)
    else:
        course.add("read", 1, samples)


def _add_stages(
    course: Course, book: Notebook, images: ImageSample, compiled: Compiled, making: Making, settings: Settings
) -> None:
    cores = settings.core_counts

    def decode(seconds: float) -> str:
        stage = decode_stage(images, compiled, cores=cores, seconds=seconds)
        book.stages.append(stage)
        return rate_text(stage.rates[-1].rate)

    def transform(seconds: float) -> str:
        stage = transform_stage(images, compiled, cores=cores, seconds=seconds)
        book.stages.append(stage)
        return rate_text(stage.rates[-1].rate)

    def batch(seconds: float) -> str:
        stage = batch_stage(images, compiled, batch_size=making.batch_size, seconds=seconds)
        book.stages.append(stage)
        return rate_text(stage.rates[-1].rate)

    course.add("decode, one core to all", 1.5, decode)
    course.add("transform, one core to all", 1.5, transform)
    course.add("batch", 0.5, batch)


def _load(source: AnySource, item: Item) -> bytes:
    return bytes(encoded_image(source, item).data)


def _held(content: bytes) -> bytes:
    return content


def _describe_source(path: Path, images: ImageSample, items: Sequence[Item]) -> Source:
    return Source(
        kind="folder",
        name=str(path),
        path=str(path),
        build_to=new_dataset_path(path, is_dataset=False),
        samples=images.total,
        n_bytes=images.total_bytes,
        image_bytes=sum(item.n_bytes for item in items) / len(items),
        pixel_bytes=images.pixel_bytes,
        formats=images.formats,
        lossy="jpeg" in images.formats,
    )
