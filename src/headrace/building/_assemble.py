# SPDX-License-Identifier: Apache-2.0
"""Finished shards to a dataset: the index from the parts, then `dataset.json`, which makes it a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace import __version__
from headrace.building._destination import Destination, refuse_finished
from headrace.building._parts import Part
from headrace.building._report import BuildReport, Skipped
from headrace.errors import HeadraceError
from headrace.records import Dataset
from headrace.records.index.writing import write_index
from headrace.records.keypoints import Keypoints
from headrace.records.manifest import MAX_SKIPPED, Manifest
from headrace.records.schema import Field
from headrace.records.shards.layout import StoredCounts
from headrace.records.versions import INDEX, MANIFEST
from headrace.sources import Source

_WARN_RATIO = 1.5  # of the bytes of the stored images to those of the source


@dataclass(frozen=True, slots=True)
class Provenance:
    """What `dataset.json` says about the origin of the dataset."""

    kind: str
    name: str
    classes: tuple[str, ...] | None
    options: Mapping[str, Any]
    keypoints: Mapping[str, Keypoints] = field(default_factory=dict)


def writer_name() -> str:
    return f"headrace {__version__}"


def assemble(
    dest: Destination,
    fields: tuple[Field, ...],
    n_shards: int,
    provenance: Provenance,
    **run: Any,
) -> BuildReport:
    """Write the index and `dataset.json`, and remove the files of the build; `run` are the figures of this run."""
    parts: list[Part] = []
    counts = StoredCounts(fields)
    with dest.atomic_path(INDEX) as path:
        index = write_index(path, fields, shard_tables(dest, n_shards, parts, counts))
    skipped = [entry for part in parts for entry in part.skipped]
    manifest = Manifest(
        fields=fields,
        index=index,
        shards=tuple(part.shard for part in parts),
        formats=counts.formats,
        align=int(provenance.options["align"]),
        classes=provenance.classes,
        keypoints=provenance.keypoints,
        source={
            "kind": provenance.kind,
            "name": provenance.name,
            "samples": sum(part.items for part in parts),
            "bytes": sum(part.source_bytes for part in parts),
        },
        options=provenance.options,
        skipped_count=len(skipped),
        skipped=tuple({"key": key, "reason": reason} for key, reason in skipped[:MAX_SKIPPED]),
        writer=writer_name(),
    )
    with dest.atomic_path(MANIFEST) as path:
        path.write_bytes(manifest.to_bytes())
    dest.complete(len(manifest.shards))
    warnings = tuple(_warnings(manifest, counts.n_bytes, sum(part.lossy for part in parts)))
    return make_report(dest.path, manifest, warnings=warnings, **run)


def report_finished(folder: Path) -> BuildReport:
    """Report on a dataset that an earlier run finished."""
    manifest = Manifest.load(folder)
    return make_report(folder, manifest, kept_shards=len(manifest.shards), was_finished=True)


def make_report(
    folder: Path,
    manifest: Manifest,
    *,
    seconds: float = 0.0,
    new_samples: int = 0,
    kept_shards: int = 0,
    **others: Any,
) -> BuildReport:
    files = sum(shard.n_bytes for shard in manifest.shards) + manifest.index_bytes
    return BuildReport(
        path=folder,
        samples=manifest.samples,
        shards=len(manifest.shards),
        kept_shards=kept_shards,
        source_bytes=int(manifest.source["bytes"]),
        n_bytes=files + (folder / manifest.file).stat().st_size,
        seconds=seconds,
        samples_per_second=new_samples / seconds if seconds else 0.0,
        skipped_count=manifest.skipped_count,
        skipped=tuple(Skipped(entry["key"], entry["reason"]) for entry in manifest.skipped),
        fingerprint=manifest.fingerprint,
        **others,
    )


def _warnings(manifest: Manifest, stored_bytes: int, lossy: int) -> Iterator[str]:
    before = int(manifest.source["bytes"])
    if before and lossy and stored_bytes >= _WARN_RATIO * before:
        yield (
            f"the images take {stored_bytes / before:.1f} times as many bytes as in the source: "
            f"{lossy} of {manifest.samples} samples are JPEG or lossy WebP files, which are larger when their "
            "pixels are stored losslessly; use --format keep (format='keep') to store the files as they are"
        )


def shard_tables(dest: Destination, n_shards: int, parts: list[Part], counts: StoredCounts) -> Iterator[pa.Table]:
    """Yield the rows of each new shard; add to `parts` and to `counts`."""
    for number in range(dest.first_shard, dest.first_shard + n_shards):
        part, table = dest.finished(number)
        parts.append(part)
        counts.add(table)
        yield table


def refuse_other(folder: Path, source: Source, fields: tuple[Field, ...], provenance: Provenance) -> None:
    """Raise BuildError if a finished dataset differs from what this build would make.

    Compares keys, the total size and modification times. A file that changed but kept its size and an old modification
    time is not noticed.
    """
    try:
        dataset = Dataset(folder)
    except (HeadraceError, OSError) as error:
        refuse_finished(folder, f" that cannot be opened ({error})")
        raise
    options = _different_options(dataset.manifest, fields, provenance)
    if options:
        refuse_finished(folder, f" built with other options: {options}")
    if source.sequential:
        refuse_finished(folder, ", and it is unknown whether an iterable still yields the same samples")
    if not _same_samples(folder, dataset, source):
        refuse_finished(folder, ", and its source has changed since (`headrace add` adds what is new)")


def _different_options(manifest: Manifest, fields: tuple[Field, ...], provenance: Provenance) -> str:
    before = {**manifest.options, "fields": manifest.fields, "classes": manifest.classes, "writer": manifest.writer}
    before |= {"keypoints": dict(manifest.keypoints)}
    before |= {"source": (manifest.source.get("kind"), manifest.source.get("name"))}
    now = {**provenance.options, "fields": fields, "classes": provenance.classes, "writer": writer_name()}
    now |= {"keypoints": dict(provenance.keypoints)}
    now |= {"source": (provenance.kind, provenance.name)}
    # If no sample was skipped, on_error made no difference.
    same = {"on_error"} if not manifest.skipped_count else set()
    return ", ".join(
        sorted(name for name in {**before, **now} if name not in same and before.get(name) != now.get(name))
    )


def _same_samples(folder: Path, dataset: Dataset, source: Source) -> bool:
    finished = (folder / dataset.manifest.file).stat().st_mtime_ns
    row = samples = n_bytes = 0
    for item in source.items():
        samples, n_bytes = samples + 1, n_bytes + item.n_bytes
        if source.kind != "dataset" and item.stamp > finished:
            return False
        row += row < len(dataset) and dataset.key(row) == item.key
    manifest = dataset.manifest
    counted = (manifest.source.get("samples"), manifest.source.get("bytes"))
    return row == len(dataset) and samples - row == manifest.skipped_count and (samples, n_bytes) == counted
