# SPDX-License-Identifier: Apache-2.0
"""From finished shards to a dataset: the index from the parts, then `dataset.json`, which makes it one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import __version__
from headrace.building._report import BuildReport, Skipped
from headrace.building._site import Part, Site
from headrace.errors import BuildError
from headrace.records._arrays import to_numpy
from headrace.records._manifest import INDEX, MANIFEST, MAX_SKIPPED, Manifest
from headrace.records._schema import FORMAT_NAMES, Field
from headrace.records._write_index import write_index


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


def writer_name() -> str:
    return f"headrace {__version__}"


def assemble(
    site: Site, fields: tuple[Field, ...], n_shards: int, provenance: Provenance, effort: Effort
) -> BuildReport:
    """Write the index and `dataset.json`, and remove what served the building."""
    parts = [_part(site, number) for number in range(n_shards)]
    counts: dict[str, Any] = {field.name: np.zeros(256, np.int64) for field in fields if field.is_pixels}
    with site.whole_file(INDEX) as path:
        index = write_index(path, fields, _count_formats(site, n_shards, fields, counts))
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
    return _conclude(site, manifest, len(content), effort)


def finish_up(site: Site) -> BuildReport:
    """Do what is left of a build that was killed after its dataset was whole."""
    manifest = Manifest.load(site.folder)
    n_bytes = (site.folder / MANIFEST).stat().st_size
    return _conclude(site, manifest, n_bytes, Effort(0.0, 0, len(manifest.shards)))


def _conclude(site: Site, manifest: Manifest, manifest_bytes: int, effort: Effort) -> BuildReport:
    site.complete(len(manifest.shards))
    return BuildReport(
        path=site.folder,
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
    )


def _part(site: Site, number: int) -> Part:
    part = site.finished(number)
    if part is None:
        raise BuildError(
            f"{site.folder}: shard {number} or its part was changed or removed while the dataset was built; build again"
        )
    return part


def _count_formats(site: Site, n_shards: int, fields: tuple[Field, ...], counts: dict[str, Any]) -> Iterator[pa.Table]:
    for number in range(n_shards):
        table = site.rows(number)
        for field in fields:
            for rendition in range(field.renditions):
                codes = to_numpy(table.column(field.rendition_column(rendition, "format")))
                counts[field.name] += np.bincount(codes, minlength=256)
        yield table
