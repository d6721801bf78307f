# SPDX-License-Identifier: Apache-2.0
"""`headrace.add`: more samples for a dataset, as a new version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from headrace.building._assemble import shard_tables, writer_name
from headrace.building._build import count_workers, encode, open_any, start_workers
from headrace.building._feed import shard_samples
from headrace.building._options import SHARD_BYTES, OnError, Pages, conversion_like, describe
from headrace.building._parts import Part
from headrace.building._report import ProgressHook, ProgressMeter, check_progress
from headrace.building.growing._destination import GrowingDestination, growing_folder
from headrace.building.growing._publish import VersionReport, finish_version, make_report, write_added_rows
from headrace.building.growing._source import AddedSource, check_new, find_keys, has_labels, join_classes
from headrace.errors import BuildError
from headrace.records import Dataset
from headrace.records.index.reading import Index
from headrace.records.manifest import MAX_SKIPPED, Manifest
from headrace.records.schema import Field
from headrace.records.shards.layout import StoredCounts
from headrace.sources import IterableSource, Source

Existing = Literal["raise", "skip"]


def add(
    dataset: str | PathLike[str],
    source: str | PathLike[str] | Dataset | Iterable[Mapping[str, Any]] | Source,
    *,
    kind: str = "auto",
    format: str | None = None,  # noqa: A002
    existing: Existing = "raise",
    workers: int | None = None,
    resume: bool = True,
    verify: bool = True,
    on_error: OnError = "raise",
    split: str | None = None,
    mask_suffix: str | None = None,
    pages: Pages = "one",
    shard_size: int = SHARD_BYTES,
    progress: ProgressHook | None = None,
) -> VersionReport:
    """Add the samples of a source to a dataset, as a new version; the samples that are there are not touched.

    Readers of the dataset are not affected: a loader that is running keeps its version, and `photos.hr@v1` opens it
    later. The cost is that of the new samples. An addition that was killed continues when it is called again with the
    same arguments.

    Args:
        dataset: The dataset. Its newest version is extended.
        source: As for `build`. It must have the fields of the dataset. Labels are mapped by the names of the classes,
            and new classes are appended to those of the dataset; labels of an iterable are numbers of its classes.
        kind: Layout of the source, as for `build`.
        format: Format of the images; by default the formats, or the plan, that the dataset was built with.
        existing: If the dataset has a sample with the same key, `raise` stops, `skip` adds only the other samples.
        workers: Number of images to encode in parallel; one per core by default.
        resume: Continue an interrupted addition. If False, remove it and start over.
        verify: Decode every losslessly encoded image and compare the pixels.
        on_error: If a sample cannot be stored, `raise` stops, `skip` omits the sample and reports it.
        split: Add only this split of the source.
        mask_suffix: As for `build`.
        pages: As for `build`.
        shard_size: Start a new shard after this many bytes of the source.
        progress: Called with a `Progress` at most every 0.1 s.

    Raises:
        BuildError: The source does not match the dataset, or the addition cannot continue.

    """
    if existing not in ("raise", "skip"):
        raise ValueError(f"existing must be 'raise' or 'skip'; got {existing!r}")
    if shard_size < 1:
        raise ValueError(f"shard_size must be at least 1 byte; got {shard_size}")
    check_progress(progress)
    folder = growing_folder(dataset)
    newest = Manifest.load(folder)
    opened = _open(source, newest, kind, split, mask_suffix)
    _check_fields(newest.fields, opened, folder)
    conversion = conversion_like(newest, format=format, verify=verify, on_error=on_error, pages=pages)
    name = Path(source).resolve().name if isinstance(source, str | PathLike) else type(source).__name__
    # A program that makes samples knows the dataset, so its labels are numbers of the dataset's classes.
    theirs = newest.classes if opened.kind == "iterable" else opened.classes
    classes, labels = join_classes(newest.classes, theirs, name, has_labels=has_labels(newest.fields))
    options = describe(conversion) | {"shard_bytes": shard_size, "shard_samples": shard_samples(opened)}
    identity = options | {
        "source": [opened.kind, name, split, mask_suffix],
        "existing": existing,
        "writer": writer_name(),
        "classes": None if opened.classes is None else list(opened.classes),
    }
    added = AddedSource(opened, newest.fields, labels)
    with GrowingDestination(folder, identity, resume=resume) as place:
        if place.is_finished:
            return make_report(folder, place.base, n_bytes=0, was_finished=True)
        _omit_existing(added, place, existing)
        meter = ProgressMeter(progress, None if added.sequential else added)
        n_shards, _ = encode(added, place, start_workers(count_workers(workers), conversion, added), meter, shard_size)
        if not n_shards:
            if added.omitted:
                return make_report(folder, place.base, n_bytes=0, was_finished=True)
            raise BuildError(f"{source} contains no samples: nothing was added")
        return _publish(place, n_shards, classes, {"kind": opened.kind, "name": name}, options)


def _open(source: Any, newest: Manifest, kind: str, split: str | None, mask_suffix: str | None) -> Source:
    is_plain = isinstance(source, str | PathLike | Dataset) or (hasattr(source, "items") and hasattr(source, "load"))
    if is_plain or not isinstance(source, Iterable):
        return open_any(source, kind, split, mask_suffix)
    return IterableSource(source, fields={field.name: field.declared for field in newest.fields}, first=newest.rows)


def _check_fields(fields: tuple[Field, ...], source: Source, folder: Path) -> None:
    ours = {field.name: field.declared for field in fields}
    theirs = dict(source.fields)
    if ours == theirs:
        return
    wrong = [
        f"{name} (here {ours.get(name, 'missing')}, there {theirs.get(name, 'missing')})"
        for name in {**ours, **theirs}
        if ours.get(name) != theirs.get(name)
    ]
    raise BuildError(
        f"the source must have the fields of {folder}; these differ: {', '.join(wrong)}; choose another layout with "
        f"--from or a split with --split, or build a dataset of its own"
    )


def _omit_existing(source: AddedSource, place: GrowingDestination, existing: Existing) -> None:
    """Find the keys that exist already. Reads the keys of the dataset, and lists the source."""
    wanted = None if source.sequential else [item.key for item in source.items()]
    found = {key for key, _ in find_keys(Index(place.folder, place.base), wanted)}
    if existing == "raise" and not source.sequential:
        check_new(sorted(found), len(wanted or ()))
    source.omitted = frozenset(found)
    source.refuses = existing == "raise"


def _publish(
    place: GrowingDestination,
    n_shards: int,
    classes: tuple[str, ...] | None,
    source: Mapping[str, Any],
    options: Mapping[str, Any],
) -> VersionReport:
    base = place.base
    parts: list[Part] = []
    counts = StoredCounts(base.fields)
    rows = sum(
        place.finished(base_shard)[0].shard.samples
        for base_shard in range(place.first_shard, place.first_shard + n_shards)
    )
    if not rows:
        raise BuildError("none of the samples could be stored, so nothing was added; correct them and add again")
    files = write_added_rows(place, shard_tables(place, n_shards, parts, counts), rows)
    skipped = [{"key": key, "reason": reason} for part in parts for key, reason in part.skipped]
    formats = {
        name: {
            form: base.formats.get(name, {}).get(form, 0) + more.get(form, 0)
            for form in {**base.formats.get(name, {}), **more}
        }
        for name, more in counts.formats.items()
    }
    origin = {**source, "samples": sum(part.items for part in parts), "bytes": sum(part.source_bytes for part in parts)}
    manifest = replace(
        base,
        number=place.number,
        index=files[0],
        added=files[1:],
        shards=(*base.shards, *(part.shard for part in parts)),
        formats=formats,
        classes=classes,
        skipped_count=base.skipped_count + len(skipped),
        skipped=(*base.skipped, *skipped)[:MAX_SKIPPED],
        writer=writer_name(),
        change={"action": "add", "samples": rows, "source": origin, "options": options, "skipped": len(skipped)},
    )
    n_bytes = counts.n_bytes + files[-1].n_bytes
    report = finish_version(place, manifest, n_bytes)
    place.complete(len(manifest.shards))
    return report
