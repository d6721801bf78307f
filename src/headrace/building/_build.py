# SPDX-License-Identifier: Apache-2.0
"""`headrace.build`: a source into a dataset."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from headrace.building._assemble import Effort, Provenance, assemble, finish_up, writer_name
from headrace.building._crew import Crew, ProcessCrew, ThreadCrew
from headrace.building._options import (
    MAX_SHARD_SAMPLES,
    SHARD_BYTES,
    SHARD_SAMPLES,
    Conversion,
    OnError,
    describe,
    make_conversion,
)
from headrace.building._pipeline import Pipeline, Unit
from headrace.building._progress import Meter, ProgressHook
from headrace.building._report import BuildReport
from headrace.building._site import BUILDING, Site, refuse_finished, refuse_strangers
from headrace.errors import BuildError
from headrace.records import Dataset
from headrace.sources import DatasetSource, Source, open_source

# A chunk is what a worker takes at a time: enough to make messages cheap, little enough to share out evenly.
CHUNK_BYTES = 1 << 20
CHUNK_SAMPLES = 128

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
    shard_size: int = SHARD_BYTES,
    align: int = 64,
    progress: ProgressHook | None = None,
) -> BuildReport:
    """Make a dataset of a folder, an archive, a table, another dataset or any iterable of dicts.

    Killed at any moment and called again with the same arguments, it goes on, and ends in the same bytes.

    Args:
        source: A path, an iterable of samples, or one of `headrace.sources`. Of a dataset the samples are stored anew.
        dest: The dataset's folder; made if need be, and refused if it holds anything else.
        kind: What the source is: `auto`, `folder`, `classes`, `webdataset`, `parquet`, `coco`, `cityscapes`
            or `dataset`.
        format: For images: `hri:fast`, `hri:dense`, `png`, `jpeg`, `webp`, `raw`, or `keep` for the source's own bytes.
        mask_format: For masks; by default the same, or `hri:dense` if that would lose values.
        plan: Shares of formats, or a JSON file with them; for the fields it names it outranks `format`.
        renditions: Store each image in this many of its plan's formats, and not in as many as the plan says. With two
            or more a loader chooses among them while it runs.
        workers: How many encode at a time; one a core by default. The result does not depend on it.
        resume: Go on with an unfinished build. Otherwise what there is of it is removed.
        force: Replace a finished dataset.
        verify: Decode again what was encoded losslessly, and compare; decode what is kept.
        on_error: `raise` stops at a sample that cannot be stored; `skip` leaves it out and reports it.
        shard_size: Bytes of the source in a shard; of pixels, where it yields arrays. A shard of an iterable has at
            most 1024 samples.
        align: Every image starts at a multiple of this in its shard; 4096 allows direct I/O.
        progress: Called with a `Progress` now and then.

    Raises:
        BuildError: Something in the way: a bad sample, a full disk, another builder. The message names it.

    """
    start = time.perf_counter()
    opened = _open(source, kind)
    conversion = make_conversion(
        opened.fields,
        format=format,
        mask_format=mask_format,
        plan=plan,
        renditions=renditions,
        align=align,
        verify=verify,
        on_error=on_error,
    )
    if shard_size < 1:
        raise ValueError(f"shard_size is a number of bytes, not {shard_size}")
    workers = count_workers(workers)
    folder = Path(dest)
    options = describe(conversion) | {"shard_bytes": shard_size, "shard_samples": _shard_samples(opened)}
    if isinstance(opened, DatasetSource) and opened.path.resolve() == folder.resolve():
        raise BuildError(f"{folder} cannot be built from itself: name another destination")
    name = Path(source).resolve().name if isinstance(source, str | PathLike) else type(source).__name__
    identity = options | {"source": opened.kind, "fields": dict(opened.fields), "writer": writer_name()}
    prepare(folder, force=force)
    with Site(folder, identity, conversion.fields, resume=resume, force=force) as site:
        if site.is_finished:
            return finish_up(site)
        crew = _hire(workers, conversion, opened)
        meter = Meter(progress, opened)
        pipeline = Pipeline(site, crew, meter.count)
        try:
            n_shards, kept = _run(opened, site, pipeline, meter, shard_size)
            pipeline.drain()
        except KeyboardInterrupt as error:
            error.add_note(f"{folder}: {RESUME_HINT}")
            raise
        finally:
            pipeline.close()
            meter.close()
        if not n_shards:
            raise BuildError(f"{source} holds no samples: nothing was built")
        classes = None if opened.classes is None else tuple(opened.classes)
        provenance = Provenance(opened.kind, name, classes, options)
        effort = Effort(time.perf_counter() - start, meter.samples, kept)
        return assemble(site, conversion.fields, n_shards, provenance, effort)


def _open(source: Any, kind: str) -> Source:
    if hasattr(source, "items") and hasattr(source, "load"):
        opened: Source = source
        return opened
    return open_source(Path(source) if isinstance(source, PathLike) else source, kind)


def prepare(folder: Path, *, force: bool) -> None:
    """Refuse a destination that is taken, before anything in it is touched."""
    refuse_strangers(folder)
    if not force and not (folder / BUILDING).exists():
        refuse_finished(folder)


def _run(source: Source, site: Site, pipeline: Pipeline, meter: Meter, shard_bytes: int) -> tuple[int, int]:
    """Cut the source into units and have those encoded that are not finished; return how many there are, and were."""
    limit = _shard_samples(source)
    unit: Unit | None = None
    kept = number = 0
    batch = _Batch(pipeline)
    for item in source.items():
        if unit is None:
            unit, part = Unit(number), site.finished(number)
        unit.count(item.key, item.n_bytes)
        if part is None:
            batch.add(unit, item, source.load(item) if source.sequential else None)
        if unit.items >= limit or unit.source_bytes >= shard_bytes:
            batch.flush()
            kept += _end(unit, part, pipeline, meter, site)
            number, unit = number + 1, None
    if unit is not None:
        batch.flush()
        kept += _end(unit, part, pipeline, meter, site)
        number += 1
    return number, kept


def _end(unit: Unit, part: Any, pipeline: Pipeline, meter: Meter, site: Site) -> bool:
    if part is None:
        pipeline.end_unit()
        return False
    if part.digest != unit.digest or part.items != unit.items:
        raise BuildError(
            f"the source has changed since {site.folder} was begun: the {unit.items} samples of shard {unit.number} "
            f"have other keys or sizes; restore the source, or use --no-resume (resume=False) to start over"
        )
    meter.keep(unit.items, unit.source_bytes, part.shard.n_bytes)
    return True


class _Batch:
    """Items on their way to becoming a chunk."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._clear()

    def _clear(self) -> None:
        self._unit: Unit | None = None
        self._items: list[Any] = []
        self._samples: list[tuple[str, Mapping[str, Any]]] = []
        self._source_bytes = self._size = 0

    def add(self, unit: Unit, item: Any, sample: Mapping[str, Any] | None) -> None:
        self._unit = unit
        if sample is None:
            self._items.append(item)
            self._size += item.n_bytes
        else:
            self._samples.append((item.key, sample))
            self._size += sample_bytes(sample)
        self._source_bytes += item.n_bytes
        if self._size >= CHUNK_BYTES or len(self._items) + len(self._samples) >= CHUNK_SAMPLES:
            self.flush()

    def flush(self) -> None:
        if self._unit is not None:
            self._pipeline.put(self._unit, self._source_bytes, items=self._items, samples=self._samples)
        self._clear()


def sample_bytes(sample: Mapping[str, Any]) -> int:
    """Estimate the memory of a loaded sample's images."""
    return sum(getattr(value, "nbytes", 0) or len(getattr(value, "data", b"")) for value in sample.values())


def _shard_samples(source: Source) -> int:
    return SHARD_SAMPLES if source.sequential else MAX_SHARD_SAMPLES


def count_workers(workers: int | None) -> int:
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
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
