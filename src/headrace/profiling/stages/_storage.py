# SPDX-License-Identifier: Apache-2.0
"""The first two stages alone, of raw files and of records: open and read, cold and warm, at a queue depth."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headrace.measuring import FileRange, Rate, measure_direct, measure_raw_files, measure_records, scaling_of
from headrace.profiling._measurements import RawAndRecords, Stage
from headrace.records import Dataset

# A loader asks for what comes next before it needs it: this many reads a worker are under way, but not endlessly many.
DEPTH_A_WORKER = 4
MOST_DEPTH = 32


def depth(workers: int) -> int:
    """How many reads a loader with so many workers has under way."""
    return min(MOST_DEPTH, workers * DEPTH_A_WORKER)


def file_stages(
    extents: Sequence[FileRange], *, cores: Sequence[int], seconds: float, limit: float | None
) -> tuple[list[Stage], float | None]:
    """Measure open and read of files of their own, and say which share of their pages could not be dropped.

    `limit` is the emulated storage's bytes a second.
    """
    opening, open_cpu = scaling_of(
        lambda number: _open_and_close(extents[number].path), len(extents), cores=cores, seconds=seconds / 4
    )
    reading, read_cpu = scaling_of(
        lambda number: extents[number].read(), len(extents), cores=cores, seconds=seconds / 4
    )
    mean = sum(extent.n_bytes for extent in extents) / len(extents)
    paths = [extent.path for extent in extents]
    cold = {n: measure_raw_files(paths, workers=n, seconds=seconds / 2 / len(cores)) for n in cores}
    read = Stage(
        name="read",
        rates=_without(reading, opening),
        cold_rates=tuple(Rate(cores=n, rate=_limited(found.rate, mean, limit)) for n, found in cold.items()),
        cpu_seconds=max(0.0, read_cpu - open_cpu),
        n_bytes=mean,
        detail="one file an image",
    )
    opened = Stage(name="open", rates=opening, cpu_seconds=open_cpu, detail="open, size, close")
    return [opened, read], cold[cores[0]].cached


def cold_record_rates(
    extents: Sequence[FileRange], *, wanted: float, cores: Sequence[int], seconds: float, limit: float | None
) -> tuple[Rate, ...]:
    """Measure records read past the page cache, as deep as a loader with so many workers asks ahead.

    Args:
        extents: Some images of the dataset.
        wanted: Bytes that a sample needs, which may be less than an image has, or more than one image.
        cores: Numbers of workers.
        seconds: For all of them.
        limit: The emulated storage's bytes a second.

    """
    mean = sum(extent.n_bytes for extent in extents) / len(extents)
    slot = seconds / len(cores)
    rates = {n: measure_direct(extents, workers=depth(n), seconds=slot).rate * mean / wanted for n in cores}
    return tuple(Rate(cores=n, rate=_limited(rate, wanted, limit)) for n, rate in rates.items())


def compare(
    files: Sequence[FileRange], dataset: Dataset | str | Path, *, workers: int, seconds: float
) -> RawAndRecords:
    """Read the same images as files of their own and as records of a dataset."""
    paths = [extent.path for extent in files]
    slot = seconds / 4

    def raw(cold: bool) -> float:
        return measure_raw_files(paths, cold=cold, workers=workers, seconds=slot).rate

    def records(cold: bool) -> float:
        return measure_records(dataset, cold=cold, workers=workers, seconds=slot).rate

    return RawAndRecords(
        images=len(files),
        raw_cold=raw(cold=True),
        raw_warm=raw(cold=False),
        records_cold=records(cold=True),
        records_warm=records(cold=False),
        image_bytes=sum(extent.n_bytes for extent in files) / len(files),
    )


def _open_and_close(path: str) -> int:
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


def _limited(rate: float, n_bytes: float, limit: float | None) -> float:
    return rate if limit is None else min(rate, limit / n_bytes)


def _without(whole: tuple[Rate, ...], part: tuple[Rate, ...]) -> tuple[Rate, ...]:
    """Take the time of one stage out of another's that includes it; at least a tenth is left, as times are noisy."""
    return tuple(
        Rate(cores=both.cores, rate=1 / max(1 / both.rate - 1 / first.rate, 0.1 / both.rate))
        for both, first in zip(whole, part, strict=True)
    )
