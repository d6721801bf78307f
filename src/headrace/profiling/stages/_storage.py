# SPDX-License-Identifier: Apache-2.0
"""Open and read, measured alone: files and records, cold and warm, with the queue depth of a loader."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headrace.measuring import FileRange, Rate, measure_direct, measure_raw_files, measure_records, scaling_of
from headrace.profiling._measurements import RawAndRecords, Stage
from headrace.records import Dataset

READS_PER_WORKER, MAX_READS = 4, 32
"""Reads that a loader has in flight: so many per worker, and so many in total."""


def file_stages(
    files: Sequence[FileRange], *, cores: Sequence[int], seconds: float, limit: float | None
) -> tuple[list[Stage], float | None]:
    """Measure open and read of single files; also return the share of their pages that could not be dropped.

    `limit` is the emulated storage rate in bytes per second.
    """
    opening, open_cpu = scaling_of(
        lambda number: _open_and_close(files[number].path), len(files), cores=cores, seconds=seconds / 4
    )
    reading, read_cpu = scaling_of(lambda number: files[number].read(), len(files), cores=cores, seconds=seconds / 4)
    mean, paths = _mean_bytes(files), [file.path for file in files]
    cold = {n: measure_raw_files(paths, workers=n, seconds=seconds / 2 / len(cores)) for n in cores}
    read = Stage(
        name="read",
        rates=_difference(reading, opening),
        cold_rates=tuple(Rate(cores=n, rate=_limited(found.rate, mean, limit)) for n, found in cold.items()),
        cpu_seconds=max(0.0, read_cpu - open_cpu),
        n_bytes=mean,
        detail="one file per image",
    )
    opened = Stage(name="open", rates=opening, cpu_seconds=open_cpu, detail="open, fstat, close")
    return [opened, read], cold[cores[0]].cached


def cold_record_rates(
    extents: Sequence[FileRange], *, wanted: float, cores: Sequence[int], seconds: float, limit: float | None
) -> tuple[Rate, ...]:
    """Measure reads of records that bypass the page cache; `limit` is the emulated storage rate in bytes per second.

    A sample needs `wanted` bytes: for a crop perhaps less than an image, for several fields more.
    """
    mean, slot = _mean_bytes(extents), seconds / len(cores)
    depths = {n: min(MAX_READS, n * READS_PER_WORKER) for n in cores}
    rates = {n: measure_direct(extents, workers=depths[n], seconds=slot).rate * mean / wanted for n in cores}
    return tuple(Rate(cores=n, rate=_limited(rate, wanted, limit)) for n, rate in rates.items())


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


def _mean_bytes(files: Sequence[FileRange]) -> float:
    return sum(file.n_bytes for file in files) / len(files)


def _open_and_close(path: str) -> int:
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


def _limited(rate: float, n_bytes: float, limit: float | None) -> float:
    return rate if limit is None else min(rate, limit / n_bytes)


def _difference(both: tuple[Rate, ...], first: tuple[Rate, ...]) -> tuple[Rate, ...]:
    """Subtract the time of the first stage from that of both; at least a tenth remains, since times are noisy."""
    return tuple(
        Rate(cores=each.cores, rate=1 / max(1 / each.rate - 1 / part.rate, 0.1 / each.rate))
        for each, part in zip(both, first, strict=True)
    )
