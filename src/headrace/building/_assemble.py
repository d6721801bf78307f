# SPDX-License-Identifier: Apache-2.0
"""From finished shards to a dataset: the index from the parts, then `dataset.json`, which makes it one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import __version__
from headrace.building._parts import Part
from headrace.building._report import BuildReport, Skipped
from headrace.building._site import Site
from headrace.records.arrays import to_numpy
from headrace.records.index.writing import write_index
from headrace.records.manifest import INDEX, MANIFEST, MAX_SKIPPED, Manifest
from headrace.records.schema import FORMAT_NAMES, Field

_MUCH_LARGER = 1.5  # from so many times the size of the source on, a dataset is worth a warning


@dataclass(frozen=True, slots=True)
class Provenance:
    """What `dataset.json` says of where the dataset came from."""

    kind: str
    name: str
    classes: tuple[str, ...] | None
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Effort:
    """What this run took."""

    seconds: float
    samples: int
    kept_shards: int
    stored_bytes: int = 0
    """Of all renditions, without padding."""
    lossy: int = 0
    """Samples that the source has in a lossy format."""


def writer_name() -> str:
    return f"headrace {__version__}"


def assemble(
    site: Site,
    fields: tuple[Field, ...],
    n_shards: int,
    provenance: Provenance,
    effort: Effort,
    ignored: Sequence[str] = (),
) -> BuildReport:
    """Write the index and `dataset.json`, and remove what served the building."""
    parts: list[Part] = []
    lengths: list[int] = []
    counts: dict[str, Any] = {field.name: np.zeros(256, np.int64) for field in fields if field.is_pixels}
    with site.whole_file(INDEX) as path:
        index = write_index(path, fields, _tables(site, n_shards, fields, parts, counts, lengths))
    skipped = [entry for part in parts for entry in part.skipped]
    manifest = Manifest(
        fields=fields,
        index=index,
        shards=tuple(part.shard for part in parts),
        formats={
            name: {FORMAT_NAMES[int(code)]: int(seen[code]) for code in np.flatnonzero(seen)}
            for name, seen in counts.items()
        },
        align=int(provenance.options["align"]),
        classes=provenance.classes,
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
    content = manifest.to_bytes()
    with site.whole_file(MANIFEST) as path:
        path.write_bytes(content)
    site.complete(len(manifest.shards))
    effort = replace(effort, stored_bytes=sum(lengths), lossy=sum(part.lossy for part in parts))
    return _report(site.dest, manifest, len(content), effort, ignored)


def finish_up(site: Site) -> BuildReport:
    """Do what is left of a build that was killed after its dataset was complete."""
    report = report_finished(site.dest)
    site.complete(report.shards)
    return report


def report_finished(folder: Path) -> BuildReport:
    """Report on a dataset that an earlier run has finished."""
    manifest = Manifest.load(folder)
    effort = Effort(0.0, 0, len(manifest.shards))
    return _report(folder, manifest, (folder / MANIFEST).stat().st_size, effort, was_finished=True)


def _report(
    folder: Path,
    manifest: Manifest,
    manifest_bytes: int,
    effort: Effort,
    ignored: Sequence[str] = (),
    *,
    was_finished: bool = False,
) -> BuildReport:
    return BuildReport(
        path=folder,
        samples=manifest.samples,
        shards=len(manifest.shards),
        kept_shards=effort.kept_shards,
        source_bytes=int(manifest.source["bytes"]),
        n_bytes=sum(shard.n_bytes for shard in manifest.shards) + manifest.index.n_bytes + manifest_bytes,
        seconds=effort.seconds,
        samples_per_second=effort.samples / effort.seconds if effort.seconds else 0.0,
        skipped_count=manifest.skipped_count,
        skipped=tuple(Skipped(entry["key"], entry["reason"]) for entry in manifest.skipped),
        fingerprint=manifest.fingerprint,
        ignored=tuple(ignored),
        warnings=tuple(_warnings(manifest, effort)),
        was_finished=was_finished,
    )


def _warnings(manifest: Manifest, effort: Effort) -> Iterator[str]:
    """What a user may not expect of a build that went well."""
    before = int(manifest.source["bytes"])
    if before and effort.lossy and effort.stored_bytes >= _MUCH_LARGER * before:
        yield (
            f"the images take {effort.stored_bytes / before:.1f} times as many bytes as in the source: "
            f"{effort.lossy} of {manifest.samples} samples are JPEG or lossy WebP files, whose pixels take more room "
            "when they are stored losslessly; --format keep (format='keep') stores the files as they are"
        )


def _tables(
    site: Site,
    n_shards: int,
    fields: tuple[Field, ...],
    parts: list[Part],
    counts: dict[str, Any],
    lengths: list[int],
) -> Iterator[pa.Table]:
    """The rows of each shard; adds to `parts`, to the `counts` of formats and to the `lengths` of renditions."""
    for number in range(n_shards):
        part, table = site.finished(number)
        parts.append(part)
        for field in fields:
            for rendition in range(field.renditions):
                codes = to_numpy(table.column(field.rendition_column(rendition, "format")))
                counts[field.name] += np.bincount(codes, minlength=256)
                lengths.append(int(to_numpy(table.column(field.rendition_column(rendition, "length"))).sum()))
        yield table
