# SPDX-License-Identifier: Apache-2.0
"""Open and read, measured alone: files and records, cold and warm, with the queue depth of a loader."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace.measuring import FileRange, Rate, measure_direct, measure_raw_files, measure_records
from headrace.profiling._measurements import RawAndRecords
from headrace.records import Dataset

READS_PER_WORKER, MAX_READS = 4, 32
"""Reads that a loader has in flight: so many per worker, and so many in total."""


def cold_file_rates(
    paths: Sequence[str], *, cores: Sequence[int], seconds: float
) -> tuple[tuple[Rate, ...], float | None]:
    """Measure open and read of files; also return the share of their pages that could not be dropped."""
    found = {n: measure_raw_files(paths, workers=n, seconds=seconds / len(cores)) for n in cores}
    return tuple(Rate(cores=n, rate=each.rate) for n, each in found.items()), found[cores[0]].cached


def cold_record_rates(
    extents: Sequence[FileRange], *, wanted: float, cores: Sequence[int], seconds: float
) -> tuple[Rate, ...]:
    """Measure reads of records that bypass the page cache.

    A sample needs `wanted` bytes: for a crop perhaps less than an image, for several fields more.
    """
    mean, slot = sum(extent.n_bytes for extent in extents) / len(extents), seconds / len(cores)
    depths = {n: min(MAX_READS, n * READS_PER_WORKER) for n in cores}
    rates = {n: measure_direct(extents, workers=depths[n], seconds=slot).rate * mean / wanted for n in cores}
    return tuple(Rate(cores=n, rate=rate) for n, rate in rates.items())


def compare_with_records(
    files: Sequence[FileRange], dataset: Dataset | str | Path, *, workers: int, seconds: float
) -> RawAndRecords:
    """Read the same images as single files and as records of a dataset."""
    paths, slot = [file.path for file in files], seconds / 4
    raw = [measure_raw_files(paths, cold=cold, workers=workers, seconds=slot).rate for cold in (True, False)]
    records = [measure_records(dataset, cold=cold, workers=workers, seconds=slot).rate for cold in (True, False)]
    return RawAndRecords(
        images=len(files), raw_cold=raw[0], raw_warm=raw[1], records_cold=records[0], records_warm=records[1]
    )
