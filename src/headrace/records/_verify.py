# SPDX-License-Identifier: Apache-2.0
"""Check every byte of a dataset and report what is damaged (spec/dataset.md §8)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.errors import CorruptDataset, UnsupportedDataset
from headrace.records.checksum import sum_blocks
from headrace.records.index.arrays import to_numpy
from headrace.records.index.columns import Batch
from headrace.records.index.reading import Index
from headrace.records.manifest import IndexFile, Manifest, shard_name
from headrace.records.schema import DTYPE_NAMES, FORMAT_NAMES, MAX_CHANNELS, MAX_SIDE
from headrace.records.shards.layout import Damage, Extents, StoredCounts, check_shard, shard_extents
from headrace.records.versions import (
    FIRST,
    change_name,
    index_name,
    split_address,
    version_name,
    version_numbers,
)
from headrace.storage import is_url


@dataclass(frozen=True, slots=True)
class Problem:
    """A damaged sample, or damage outside of samples."""

    file: str
    offset: int
    what: str
    key: str | None = None
    row: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        where = f"{self.file}, offset {self.offset}: {self.what}"
        if self.key is None:
            return where
        row = "dropped" if self.row is None else f"row {self.row}"
        return f"sample {self.key!r} ({row}), field {self.field!r}: {where}"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of `verify`. True if there are no problems."""

    samples: int
    n_bytes: int
    seconds: float
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok


def verify(
    path: str | PathLike[str],
    *,
    workers: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> VerifyReport:
    """Check all checksums, padding and the layout of a dataset.

    Files are read, not mapped, so a failing disk is reported like any other damage. Raises FileNotFoundError if there
    is no dataset.

    Args:
        path: The dataset's folder, for its newest version, or `photos.hr@v3`.
        workers: Number of threads; one per core by default.
        on_progress: Called with the bytes of shards checked so far, and in total.

    """
    if is_url(path):
        raise ValueError(
            f"verify needs a local folder; got {path}: download the dataset, or verify it before the upload"
        )
    (folder, number), start = split_address(path), time.perf_counter()
    try:
        manifest = Manifest.load(folder, number)
    except FileNotFoundError:
        raise  # not a dataset
    except (CorruptDataset, UnsupportedDataset, OSError) as error:
        name = version_name(number or max(version_numbers(folder), default=FIRST))
        return VerifyReport(0, 0, time.perf_counter() - start, (Problem(name, 0, str(error)),))
    problems = [problem for name, file in _index_files(manifest) for problem in _check_sums(folder, name, file)]
    index: Index | None = None
    if not problems:
        try:
            index = Index(folder, manifest, mapped=False)
            problems += _check_index(index, manifest)
        except CorruptDataset as error:
            problems.append(Problem(index_name(manifest.index.number), 0, str(error)))
            index = None
    total = sum(shard.n_bytes for shard in manifest.shards)
    done = 0
    try:
        for number, found in _check_shards(folder, manifest, index, workers or os.cpu_count() or 1):
            problems += found
            done += manifest.shards[number].n_bytes
            if on_progress is not None:
                on_progress(done, total)
    except CorruptDataset as error:  # the index changed, or its disk failed, since it was checked
        problems.append(Problem(index_name(manifest.index.number), 0, str(error)))
    n_bytes = total + manifest.index_bytes + (folder / manifest.file).stat().st_size
    return VerifyReport(manifest.samples, n_bytes, time.perf_counter() - start, tuple(problems))


def _index_files(manifest: Manifest) -> Iterator[tuple[str, IndexFile]]:
    """Yield the name and description of each index file and change file."""
    for file in manifest.indexes:
        yield index_name(file.number), file
    for change in (manifest.dropped, *manifest.relabeled.values()):
        if change is not None:
            yield change_name(change.number), change


def _check_sums(folder: Path, name: str, expected: IndexFile) -> Iterator[Problem]:
    try:
        n_bytes, checksums = sum_blocks(folder / name, expected.block_bytes, len(expected.checksums) // 8)
    except OSError as error:
        yield Problem(name, 0, f"cannot be read: {error.strerror or error}")
        return
    for at in range(0, len(checksums), 8):
        if checksums[at : at + 8] != expected.checksums[at : at + 8]:
            first = at // 8 * expected.block_bytes
            last = min(first + expected.block_bytes, expected.n_bytes) - 1
            yield Problem(name, first, f"damaged between offsets {first} and {last}")
    if n_bytes != expected.n_bytes:
        what = f"the file must have {expected.n_bytes} bytes; it has {n_bytes}"
        yield Problem(name, min(n_bytes, expected.n_bytes), what)


def _check_index(index: Index, manifest: Manifest) -> Iterator[Problem]:
    """Check every value of the index, and compare its formats with the counts in dataset.json."""
    counts = StoredCounts(manifest.fields)
    for number, (file, place) in enumerate(index.places):
        batch = index.record_batch(number, validate=True)
        name = str(file.path.relative_to(index.folder))
        yield from _check_values(batch, name, place, sum(manifest.batches[:number]), manifest)
        counts.add(batch)
    yield from _check_changes(index, manifest)
    for name, found in counts.formats.items():
        if found != dict(manifest.formats.get(name, {})):
            yield Problem(manifest.file, 0, f"the index has the formats {found} of field {name!r}, this file others")


def _check_changes(index: Index, manifest: Manifest) -> Iterator[Problem]:
    """Check the change files, and compare the dropped rows with their counts in the version file."""
    assert index.changed is not None  # reads and checks the files
    if index.dropped is not None:
        ends = np.cumsum([shard.samples for shard in manifest.shards])
        counts = np.bincount(ends.searchsorted(index.dropped.rows, side="right"), minlength=len(manifest.shards))
        wrong = np.flatnonzero(counts != [shard.dropped for shard in manifest.shards])
        if len(wrong):
            yield Problem(manifest.file, 0, f"{counts[wrong[0]]} rows of shard {wrong[0]} are dropped, not as listed")


def _check_values(
    batch: pa.RecordBatch, name: str, number: int, first_row: int, manifest: Manifest
) -> Iterator[Problem]:
    """Report rows with values out of range, and columns of a field that do not agree."""
    for field in manifest.fields:
        size = field.tensor.n_bytes if field.is_tensor else 0
        limits = (("length", size, size),) if field.is_tensor else _LIMITS
        for rendition in range(field.renditions):
            for part, low, high in limits:
                values = to_numpy(batch.column(field.rendition_column(rendition, part)))
                wrong = np.flatnonzero((values < low) | (values > high))
                if len(wrong):
                    which = f"{len(wrong)} samples, the first in row {first_row + wrong[0]}"
                    must = f"must have a {part} from {low} to {high}; it has {values[wrong[0]]}"
                    yield Problem(name, 0, f"{which}: {field.name!r} {must}")
    try:
        Batch(batch, manifest.fields)
    except ValueError as error:
        yield Problem(name, 0, f"record batch {number}: {error}")


_LIMITS = (
    *(("height", 1, MAX_SIDE), ("width", 1, MAX_SIDE), ("channels", 1, MAX_CHANNELS)),
    *(("format", min(FORMAT_NAMES), max(FORMAT_NAMES)), ("dtype", min(DTYPE_NAMES), max(DTYPE_NAMES))),
)


def _check_shards(
    folder: Path, manifest: Manifest, index: Index | None, workers: int
) -> Iterator[tuple[int, list[Problem]]]:
    """Check shards in parallel; at most 2 per worker are in progress."""
    extents: Iterator[Extents | str | None]
    extents = (None for _ in manifest.shards) if index is None else shard_extents(index, manifest)
    waiting: list[tuple[int, Extents | str | None, Future[list[Damage]]]] = []

    def settle() -> tuple[int, list[Problem]]:
        number, extent, future = waiting.pop(0)
        wrong = [Problem(index_name(manifest.index.number), 0, extent)] if isinstance(extent, str) else []
        return number, wrong + [_named(damage, number, index) for damage in future.result()]

    with ThreadPoolExecutor(workers) as pool:
        for number, (shard, extent) in enumerate(zip(manifest.shards, extents, strict=True)):
            path = folder / shard_name(number)
            if 0 < shard.samples == shard.dropped and not path.exists():
                continue  # removed: all its samples are dropped
            known = extent if isinstance(extent, Extents) else None
            waiting.append((number, extent, pool.submit(check_shard, path, shard, known, manifest.align)))
            if len(waiting) > 2 * workers:
                yield settle()
        while waiting:
            yield settle()


def _named(damage: Damage, shard: int, index: Index | None) -> Problem:
    key, row = None, damage.row
    if row is not None and index is not None:
        batch, at = index.locate_stored(row)
        key = str(batch.key[at])
        row = row if index.dropped is None else index.dropped.sample(row)
    return Problem(shard_name(shard), damage.offset, damage.what, key, row, damage.field)
