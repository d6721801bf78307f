# SPDX-License-Identifier: Apache-2.0
"""Write a new version: its rows of the index, and last its version file (spec/dataset.md §10).

Opening a version opens all its index files, so there are at most 64. The 65th is avoided by joining: the new file also
contains the rows of the last files, as many of them until the one before is at least twice as large. Sizes then grow
geometrically from the end, so each row is copied a few times in the life of a dataset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import pyarrow as pa

from headrace.building.growing._destination import GrowingDestination
from headrace.records.index.reading import Index
from headrace.records.index.writing import write_index
from headrace.records.manifest import MAX_INDEX_FILES, IndexFile, Manifest
from headrace.records.versions import INDEXES, address, index_name


@dataclass(frozen=True, slots=True)
class VersionReport:
    """The result of a change: the new version, or the newest if nothing had to be done."""

    path: Path
    version: int
    changed: int
    """Number of samples that were added, dropped or relabeled."""
    samples: int
    """Number of samples of the version."""
    n_bytes: int
    """Bytes that were written."""
    fingerprint: str
    was_finished: bool = False
    """True if there was nothing to do."""

    @property
    def address(self) -> str:
        """Opens this version: `photos.hr@v3`."""
        return address(self.path, self.version)


def make_report(folder: Path, manifest: Manifest, *, n_bytes: int, was_finished: bool = False) -> VersionReport:
    return VersionReport(
        path=folder,
        version=manifest.number,
        changed=0 if was_finished else int(manifest.change.get("samples", 0)),
        samples=manifest.samples,
        n_bytes=n_bytes,
        fingerprint=manifest.fingerprint,
        was_finished=was_finished,
    )


def finish_version(dest: GrowingDestination, manifest: Manifest, n_bytes: int) -> VersionReport:
    """Write the version file and remove the files of the addition, if there was one."""
    dest.publish(manifest)
    return make_report(dest.path, manifest, n_bytes=n_bytes + (dest.folder / manifest.file).stat().st_size)


def write_added_rows(dest: GrowingDestination, tables: Iterable[pa.Table], rows: int) -> tuple[IndexFile, ...]:
    """Write the index file of the new version, with `rows` new rows; return the index files of the version."""
    base, number = dest.base, dest.number
    kept = files_to_keep([file.rows for file in base.indexes], rows)
    (dest.folder / INDEXES).mkdir(exist_ok=True)
    with dest.atomic_path(index_name(number)) as path:
        file = write_index(path, base.fields, chain(_joined(dest.folder, base, kept), tables))
    return (*base.indexes[:kept], replace(file, number=number))


def files_to_keep(rows: Sequence[int], added: int) -> int:
    """Return how many index files stay as they are, given their rows; the others are joined with the new rows."""
    kept = len(rows)
    if kept < MAX_INDEX_FILES:
        return kept
    while kept and rows[kept - 1] < 2 * added:
        kept -= 1
        added += rows[kept]
    return min(kept, MAX_INDEX_FILES - 1)


def _joined(folder: Path, base: Manifest, kept: int) -> Iterator[pa.Table]:
    """Yield the rows of all index files but the first `kept`, batch by batch."""
    if kept == len(base.indexes):
        return
    index = Index(folder, base)
    owners = index.files[kept:]
    for number, (file, _) in enumerate(index.places):
        if any(file is owner for owner in owners):
            yield pa.Table.from_batches([index.record_batch(number, validate=True)])
