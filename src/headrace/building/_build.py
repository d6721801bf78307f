# SPDX-License-Identifier: Apache-2.0
"""`headrace.build`: a source into a dataset."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from headrace.building._assemble import Effort, Provenance, assemble, finish_up, report_finished, writer_name
from headrace.building._crew import Crew, ProcessCrew, ThreadCrew
from headrace.building._feed import feed, shard_samples
from headrace.building._finished import difference
from headrace.building._options import (
    SHARD_BYTES,
    Conversion,
    OnError,
    Pages,
    describe,
    make_conversion,
)
from headrace.building._pipeline import Pipeline
from headrace.building._progress import Meter, ProgressHook
from headrace.building._report import BuildReport
from headrace.building._site import BUILDING, Site, refuse_finished, refuse_strangers, remove_building
from headrace.errors import BuildError
from headrace.records import Dataset
from headrace.records.manifest import MANIFEST
from headrace.sources import DatasetSource, Source, open_source
from headrace.units import usable_cores

# Below so many bytes an image, for each worker, processes are used. An estimate from the shares that `_hire` names:
# where exactly the two are equally fast has not been measured.
THREAD_BYTES = 50_000
PEEK_SAMPLES = 512

RESUME_HINT = "finished shards are kept: build again, with the same options, to go on"


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
    """Make a dataset of a folder, an archive, a table, another dataset or any iterable of dicts.

    Killed at any moment and called again with the same arguments, it goes on, and ends in the same bytes. Called again
    after its end, it does nothing. Finished shards are read and compared with their checksums. A file of the source
    counts as unchanged while its size and modification time are.

    Args:
        source: A path, an iterable of samples, or one of `headrace.sources`. Of a dataset the samples are stored anew.
        dest: The dataset's folder; made if need be, and refused if it holds anything else.
        kind: What the source is: `auto`, `folder`, `classes`, `segmentation`, `webdataset`, `parquet`, `coco`,
            `cityscapes` or `dataset`.
        format: For images: `hri:fast`, `hri:dense`, `png`, `jpeg`, `webp`, `raw`, or `keep` for the source's own bytes.
        mask_format: For masks; by default the same, or `hri:dense` if that would lose values.
        plan: Shares of formats, or a JSON file with them; for the fields it names it outranks `format`.
        renditions: Store each image in this many of its plan's formats, and not in as many as the plan says. With two
            or more a loader chooses among them while it runs.
        workers: How many encode at a time; one a core by default. The result does not depend on it.
        resume: Go on with an unfinished build. Otherwise what there is of it is removed.
        force: Replace a finished dataset. It stays as it is until its successor, built beside it, is complete.
        verify: Decode again what was encoded losslessly, and compare; decode what is kept.
        on_error: `raise` stops at a sample that cannot be stored; `skip` omits it and reports it.
        split: Take only this split of the source. Without it, a source of several splits (files or folders named
            train, val, test …) becomes a dataset with a field `split`.
        mask_suffix: For images and masks: what the name of a mask has after that of its image, such as `_mask`.
        apply_orientation: Turn the pixels of images as their EXIF orientation says, without loss. Boxes and masks are
            taken to belong to the upright image. Not with `format="keep"`: files are then stored as they are.
        pages: `one` refuses files of several pages or frames (TIFF, GIF, APNG); `first` takes their first.
        shard_size: Bytes of the source in a shard; of pixels, where it yields arrays. A shard of an iterable has at
            most 1024 samples.
        align: Every image starts at a multiple of this in its shard; 4096 allows direct I/O.
        progress: Called with a `Progress` now and then.

    Raises:
        BuildError: Something in the way: a bad sample, a full disk, another builder. The message names it.

    """
    start = time.perf_counter()
    opened = _open(source, kind, split, mask_suffix)
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
        raise ValueError(f"shard_size is a number of bytes, not {shard_size}")
    workers = count_workers(workers)
    folder = Path(dest)
    options = describe(conversion) | {"shard_bytes": shard_size, "shard_samples": shard_samples(opened)}
    if split is not None:
        options["split"] = split
    if mask_suffix is not None:
        options["mask_suffix"] = mask_suffix
    if isinstance(opened, DatasetSource) and opened.path.resolve() == folder.resolve():
        raise BuildError(f"{folder} cannot be built from itself: name another destination")
    name = Path(source).resolve().name if isinstance(source, str | PathLike) else type(source).__name__
    identity = options | {"source": opened.kind, "fields": dict(opened.fields), "writer": writer_name()}
    classes = None if opened.classes is None else tuple(opened.classes)
    provenance = Provenance(opened.kind, name, classes, options)
    prepare(folder, force=force or resume)
    if resume and not force and is_finished(folder):
        _refuse_other(folder, opened, conversion, provenance)
        return report_finished(folder)
    with Site(folder, identity, conversion.fields, resume=resume, force=force) as site:
        if site.is_finished:
            try:
                _refuse_other(folder, opened, conversion, provenance)
            except BuildError:
                remove_building(folder)
                raise
            return finish_up(site)
        crew = _hire(workers, conversion, opened)
        meter = Meter(progress, opened)
        pipeline = Pipeline(site, crew, meter.count)
        try:
            n_shards, kept = feed(opened, site, pipeline, meter, shard_size)
            pipeline.drain()
        except KeyboardInterrupt as error:
            error.add_note(f"{folder}: {RESUME_HINT}")
            raise
        finally:
            pipeline.close()
            meter.close()
        if not n_shards:
            raise BuildError(f"{source} holds no samples: nothing was built")
        effort = Effort(time.perf_counter() - start, meter.samples, kept)
        ignored = getattr(opened, "ignored", None)
        described = ignored.describe() if ignored is not None else ()
        return assemble(site, conversion.fields, n_shards, provenance, effort, described)


def _open(source: Any, kind: str, split: str | None, mask_suffix: str | None) -> Source:
    if hasattr(source, "items") and hasattr(source, "load"):
        if split is not None or mask_suffix is not None:
            raise ValueError("split and mask_suffix are for paths; give them to the source itself")
        opened: Source = source
        return opened
    path = Path(source) if isinstance(source, PathLike) else source
    return open_source(path, kind, split=split, mask_suffix=mask_suffix)


def is_finished(folder: Path) -> bool:
    """Whether a dataset is there, and no trace of its building."""
    return (folder / MANIFEST).exists() and not (folder / BUILDING).exists()


def _refuse_other(folder: Path, source: Source, conversion: Conversion, provenance: Provenance) -> None:
    because = difference(folder, source, conversion.fields, provenance)
    if because:
        refuse_finished(folder, because)


def prepare(folder: Path, *, force: bool) -> None:
    """Refuse a destination that is taken, before anything in it is touched."""
    refuse_strangers(folder)
    if not force and not (folder / BUILDING).exists():
        refuse_finished(folder)


def count_workers(workers: int | None) -> int:
    if workers is None:
        return usable_cores()
    if workers < 1:
        raise ValueError(f"workers is at least 1, not {workers}")
    return workers


def _hire(workers: int, conversion: Conversion, source: Source) -> Crew:
    """Choose threads or processes.

    Decoders and encoders release the GIL, so that threads do as well as processes, and start at once, as long as images
    are large. Outside of the coders a sample of 7 kB spends 0.17 of its 0.37 ms, one of 900 kB 9 % of its time.
    """
    # The samples of an iterable are in this process already; to send their pixels to another costs more than to encode.
    if source.sequential:
        return ThreadCrew(workers, conversion, None)
    first = [item.n_bytes for item in islice(source.items(), PEEK_SAMPLES)]
    few, mean = len(first) < PEEK_SAMPLES, sum(first) / max(len(first), 1)
    if workers == 1 or few or mean >= THREAD_BYTES * workers:
        return ThreadCrew(workers, conversion, source)
    return ProcessCrew(workers, conversion, source)
