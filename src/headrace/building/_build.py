# SPDX-License-Identifier: Apache-2.0
"""`headrace.build`: a dataset from a source."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from headrace.building._assemble import Provenance, assemble, refuse_other, report_finished, writer_name
from headrace.building._destination import BUILDING, Destination, check_destination, is_finished, remove_building
from headrace.building._feed import feed, shard_samples
from headrace.building._options import SHARD_BYTES, Conversion, OnError, Pages, describe, make_conversion
from headrace.building._pipeline import EncodePipeline
from headrace.building._report import BuildReport, ProgressHook, ProgressMeter, check_progress
from headrace.building._workers import ProcessWorkers, ThreadWorkers, Workers
from headrace.errors import BuildError
from headrace.records import Dataset
from headrace.sources import DatasetSource, Source, open_source
from headrace.units import usable_cores

# With smaller images than this, per worker, processes are used. Estimated from the shares that `start_workers` gives;
# the exact break-even point was not measured.
THREAD_BYTES = 50_000
PEEK_SAMPLES = 512


def build(
    source: str | PathLike[str] | Dataset | Iterable[Mapping[str, Any]] | Source,
    dest: str | PathLike[str],
    *,
    kind: str = "auto",
    format: str = "hri:dense",  # noqa: A002
    mask_format: str | None = None,
    plan: Mapping[str, Any] | str | PathLike[str] | None = None,
    renditions: int | None = None,
    workers: int | None = None,
    resume: bool = True,
    force: bool = False,
    verify: bool = True,
    on_error: OnError = "raise",
    split: str | None = None,
    mask_suffix: str | None = None,
    apply_orientation: bool = False,
    pages: Pages = "one",
    shard_size: int = SHARD_BYTES,
    align: int = 64,
    progress: ProgressHook | None = None,
) -> BuildReport:
    """Build a dataset from a folder, an archive, a table, another dataset or any iterable of dicts.

    A build that was killed continues when it is called again with the same arguments, and makes the same bytes. A build
    that is finished does nothing when it is called again. Finished shards are checked against their checksums. A file
    of the source counts as unchanged if its size and modification time are.

    Args:
        source: A path, an iterable of samples, or one of `headrace.sources`. A dataset is stored again.
        dest: Folder of the dataset. It is created if needed, and refused if it contains other files.
        kind: Layout of the source: `auto`, `folder`, `classes`, `segmentation`, `webdataset`, `parquet`, `coco`,
            `cityscapes`, `dataset`, `npy`, `dicom`, `nifti`, `tiff`, `yolo` or `huggingface`.
        format: Format of the images: `hri:fast`, `hri:dense`, `png`, `jpeg`, `webp`, `raw`, or `keep` to store the
            files of the source as they are.
        mask_format: Format of the masks. Default: that of the images if it is lossless, else `hri:dense`.
        plan: Share of each format, or a JSON file with them. For the fields in the plan, `format` is not used.
        renditions: Store each image in this many of the plan's formats; overrides the plan. With two or more, a loader
            chooses among them while it runs.
        workers: Number of images to encode in parallel; one per core by default. The result does not depend on it.
        resume: Continue an unfinished build. If False, remove it and start over.
        force: Replace a finished dataset. It stays in place until the new one is complete.
        verify: Decode every losslessly encoded image and compare the pixels; decode every kept file.
        on_error: If a sample cannot be stored, `raise` stops the build, `skip` omits the sample and reports it.
        split: Build only this split. By default, a source with several splits (files or folders named train, val,
            test …) becomes a dataset with a field `split`.
        mask_suffix: For images and masks: the text that a mask's name has after its image's, such as `_mask`.
        apply_orientation: Rotate and flip images as their EXIF orientation says, losslessly. Boxes and masks must
            already match the upright image. Not possible with `format="keep"`.
        pages: `one` refuses files with several pages or frames (TIFF, GIF, APNG); `first` takes the first page.
        shard_size: Start a new shard after this many bytes of the source; bytes of pixels if the source yields arrays.
            A shard of an iterable has at most 1024 samples.
        align: Every image starts at a multiple of this many bytes in its shard; 4096 allows direct I/O.
        progress: Called with a `Progress` at most every 0.1 s.

    Raises:
        BuildError: The build cannot continue, because of a bad sample, a full disk, another builder or the like.

    """
    start = time.perf_counter()
    opened = open_any(source, kind, split, mask_suffix)
    conversion = make_conversion(
        opened.fields,
        format=format,
        mask_format=mask_format,
        plan=plan,
        renditions=renditions,
        align=align,
        verify=verify,
        on_error=on_error,
        apply_orientation=apply_orientation,
        pages=pages,
    )
    if shard_size < 1:
        raise ValueError(f"shard_size must be at least 1 byte; got {shard_size}")
    check_progress(progress)
    n_workers = count_workers(workers)
    folder = Path(dest)
    options = describe(conversion) | {"shard_bytes": shard_size, "shard_samples": shard_samples(opened)}
    options |= {} if split is None else {"split": split}
    options |= {} if mask_suffix is None else {"mask_suffix": mask_suffix}
    options |= getattr(opened, "options", {})  # of a source whose samples depend on them
    if isinstance(opened, DatasetSource) and opened.path.resolve() == folder.resolve():
        raise BuildError(f"{folder} cannot be built from itself: name another destination")
    name = Path(source).resolve().name if isinstance(source, str | PathLike) else type(source).__name__
    identity = options | {"source": opened.kind, "fields": dict(opened.fields), "writer": writer_name()}
    classes = None if opened.classes is None else tuple(opened.classes)
    provenance = Provenance(opened.kind, name, classes, options, getattr(opened, "keypoints", {}))
    check_destination(folder, force=force or resume)
    if resume and not force and is_finished(folder) and not (folder / BUILDING).exists():
        refuse_other(folder, opened, conversion.fields, provenance)
        return report_finished(folder)
    with Destination(folder, identity, conversion.fields, resume=resume, force=force) as place:
        if place.is_finished:
            try:
                refuse_other(folder, opened, conversion.fields, provenance)
            except BuildError:
                remove_building(folder)
                raise
            report = report_finished(folder)
            place.complete(report.shards)  # the earlier run was killed before it did this
            return report
        started = start_workers(n_workers, conversion, opened)
        meter = ProgressMeter(progress, opened)
        n_shards, kept = encode(opened, place, started, meter, shard_size)
        if not n_shards:
            raise BuildError(f"{source} contains no samples: nothing was built")
        ignored = getattr(opened, "ignored", None)
        return assemble(
            place,
            conversion.fields,
            n_shards,
            provenance,
            seconds=time.perf_counter() - start,
            new_samples=meter.samples,
            kept_shards=kept,
            ignored=() if ignored is None else tuple(ignored.describe()),
        )


def encode(
    source: Source, place: Destination, workers: Workers, meter: ProgressMeter, shard_size: int
) -> tuple[int, int]:
    """Encode the samples of a source to shards of the destination; return their number, and of those kept."""
    pipeline = EncodePipeline(place, workers, meter.count)
    try:
        counts = feed(source, place, pipeline, meter, shard_size)
        pipeline.drain()
    except KeyboardInterrupt as error:
        error.add_note(f"{place.path}: finished shards are kept; build again with the same options to continue")
        raise
    finally:
        pipeline.close()
        meter.close()
    return counts


def open_any(source: Any, kind: str, split: str | None, mask_suffix: str | None) -> Source:
    if hasattr(source, "items") and hasattr(source, "load"):
        if split is not None or mask_suffix is not None:
            raise ValueError("split and mask_suffix need a path; pass them to the source object instead")
        opened: Source = source
        return opened
    path = Path(source) if isinstance(source, PathLike) else source
    return open_source(path, kind, split=split, mask_suffix=mask_suffix)


def count_workers(workers: int | None) -> int:
    if workers is None:
        return usable_cores()
    if workers < 1:
        raise ValueError(f"workers must be at least 1; got {workers}")
    return workers


def start_workers(count: int, conversion: Conversion, source: Source) -> Workers:
    """Start threads or processes.

    Codecs release the GIL, so with large images threads are as fast as processes, and they start at once. Outside of
    the codecs, a sample of 7 kB spends 0.17 of its 0.37 ms, one of 900 kB spends 9 % of its time.
    """
    # The samples of an iterable are already in this process; sending their pixels costs more than encoding them.
    if source.sequential:
        return ThreadWorkers(count, conversion, None)
    first = [item.n_bytes for item in islice(source.items(), PEEK_SAMPLES)]
    few, mean = len(first) < PEEK_SAMPLES, sum(first) / max(len(first), 1)
    if count == 1 or few or mean >= THREAD_BYTES * count:
        return ThreadWorkers(count, conversion, source)
    return ProcessWorkers(count, conversion, source)
