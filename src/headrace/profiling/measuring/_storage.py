# SPDX-License-Identifier: Apache-2.0
"""The first two stages alone, of raw files and of records: open and read, cold and warm, at a queue depth.

A cold read is one whose pages were dropped just before. `measure_raw_files` and `measure_records` take as many images
as they are given, so that what a few predict can be held against what all of them give.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.profiling._measurements import Rate, RawAndRecords, Stage
from headrace.profiling.measuring import _cold
from headrace.profiling.measuring._images import Extent, extents_of
from headrace.profiling.measuring._rates import pass_over, scaling_of, timed
from headrace.records import Dataset

# A loader asks for what comes next before it needs it: this many reads a worker are under way, but not endlessly many.
DEPTH_A_WORKER = 4
MOST_DEPTH = 32


@dataclass(frozen=True, slots=True)
class ReadRate:
    """How fast images were opened and read."""

    rate: float
    """Images a second."""
    images: int
    image_bytes: float
    cached: float | None
    """Share of their pages that lay in memory when it began; near 0 if they were cold indeed. None: not known."""

    @property
    def bytes_per_second(self) -> float:
        return self.rate * self.image_bytes


def measure_raw_files(
    paths: Sequence[str | Path], *, cold: bool = True, workers: int = 1, seconds: float | None = None
) -> ReadRate:
    """Open, read and close each file once, in a random order, in threads.

    Args:
        paths: The files. A few of many predict the rate of all.
        cold: Drop their pages first.
        workers: Reads under way at a time.
        seconds: Go on for so long, dropping pages before each pass, and give the best pass; None for one pass.

    """
    extents = [Extent(os.fspath(path), 0, Path(path).stat().st_size) for path in paths]
    return _best_pass(extents, lambda extent: extent.read(), cold=cold, workers=workers, seconds=seconds)


def measure_records(
    dataset: Dataset | str | Path,
    *,
    images: int | None = None,
    cold: bool = True,
    workers: int = 1,
    seconds: float | None = None,
) -> ReadRate:
    """Read the images of neighbouring samples of a dataset once, in a random order, in threads.

    Neighbours, since what the kernel reads ahead of one record is the next ones: of samples from all over a large
    dataset each would pay for its neighbours, which in an epoch are wanted too.

    Args:
        dataset: Or its path. No loader of it should be open: pages that are mapped are not dropped.
        images: How many samples, from the middle of the dataset; None is all.
        cold: Drop their pages first.
        workers: Reads under way at a time.
        seconds: As for `measure_raw_files`.

    """
    opened = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    count = len(opened) if images is None else min(images, len(opened))
    first = (len(opened) - count) // 2
    extents = extents_of(opened, np.arange(first, first + count, dtype=np.int64))
    handles = {path: os.open(path, os.O_RDONLY) for path in {extent.path for extent in extents}}
    try:

        def read(extent: Extent) -> bytes:
            return os.pread(handles[extent.path], extent.n_bytes, extent.offset)

        return _best_pass(extents, read, cold=cold, workers=workers, seconds=seconds)
    finally:
        for handle in handles.values():
            os.close(handle)


def _best_pass(
    extents: Sequence[Extent], read: Callable[[Extent], Any], *, cold: bool, workers: int, seconds: float | None
) -> ReadRate:
    order = np.random.default_rng(0).permutation(len(extents)).tolist()
    paths = sorted({extent.path for extent in extents})
    mean = sum(extent.n_bytes for extent in extents) / len(extents)
    end = time.perf_counter() + (seconds or 0.0)
    rates: list[float] = []
    cached: float | None = None
    if not cold:
        pass_over(lambda number: read(extents[number]), len(extents), workers=workers)
    while not rates or time.perf_counter() < end:
        if cold:
            _cold.drop(paths)
        if not rates:
            cached = _cold.cached_share(paths[:64])
        rates.append(pass_over(lambda number: read(extents[order[number]]), len(extents), workers=workers))
    return ReadRate(max(rates), len(extents), mean, cached)


def depth(workers: int) -> int:
    """How many reads a loader with so many workers has under way."""
    return min(MOST_DEPTH, workers * DEPTH_A_WORKER)


def file_stages(
    extents: Sequence[Extent], *, cores: Sequence[int], seconds: float, limit: float | None
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
    extents: Sequence[Extent], *, wanted: float, cores: Sequence[int], seconds: float, limit: float | None
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
    rates = {n: _past_the_cache(extents, depth(n), slot) * mean / wanted for n in cores}
    return tuple(Rate(cores=n, rate=_limited(rate, wanted, limit)) for n, rate in rates.items())


def _past_the_cache(extents: Sequence[Extent], workers: int, seconds: float) -> float:
    """Images a second read with direct I/O; where that is refused, with pages that were dropped."""
    paths = sorted({extent.path for extent in extents})
    handles = {path: handle for path in paths if (handle := _cold.open_direct(path)) is not None}
    if len(handles) < len(paths):
        _close(handles.values())
        _cold.drop(paths)
        return pass_over(lambda number: extents[number].read(), len(extents), workers=workers)
    readers = threading.local()
    made: list[_cold.DirectReader] = []

    def read(number: int) -> int:
        if not hasattr(readers, "own"):
            readers.own = _cold.DirectReader()
            made.append(readers.own)
        extent = extents[number]
        found: int = readers.own.read(handles[extent.path], extent.offset, extent.n_bytes)
        return found

    try:
        return timed(read, len(extents), workers=workers, seconds=seconds, repeats=2).rate
    except OSError:
        # Opened, and refused when it comes to reading: some network file systems do that.
        _cold.drop(paths)
        return pass_over(lambda number: extents[number].read(), len(extents), workers=workers)
    finally:
        for reader in made:
            reader.close()
        _close(handles.values())


def compare(files: Sequence[Extent], dataset: Dataset | str | Path, *, workers: int, seconds: float) -> RawAndRecords:
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


def _close(handles: Iterable[int]) -> None:
    for handle in handles:
        os.close(handle)
