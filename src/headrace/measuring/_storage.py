# SPDX-License-Identifier: Apache-2.0
"""How fast storage is read: the user's files or records, cold or warm, with as many reads in flight as a loader has.

A cold read is one whose pages were evicted just before, or one that bypasses the page cache.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from headrace.measuring import _cold
from headrace.measuring._images import FileRange, file_ranges
from headrace.measuring._stopwatch import pass_over, timed
from headrace.records import Dataset, hash64
from headrace.records.versions import split_address
from headrace.sources import is_dataset

QUEUE_DEPTH = 16
"""Reads in flight: a loader has about as many."""

_MIN_FILE_BYTES = 4096
_MAX_FILES = 2000
_MAX_LISTED = 50_000
_MAX_OPEN = 500


@dataclass(frozen=True, slots=True)
class ReadRate:
    """How fast parts of files were read."""

    rate: float  # reads per second; one image per read where images are read
    images: int
    image_bytes: float  # mean size of a read
    cached: float | None = None
    """Share of their pages that were in memory at the start, near 0 for cold reads; None: not known."""
    direct: bool = False  # whether the page cache was bypassed

    @property
    def bytes_per_second(self) -> float:
        return self.rate * self.image_bytes


def measure_raw_files(
    paths: Sequence[str | Path], *, cold: bool = True, workers: int = 1, seconds: float | None = None
) -> ReadRate:
    """Open, read and close each file once, in random order, in threads; cold: evict their pages first.

    With `seconds`, repeat for this long and return the best pass.
    """
    ranges = [FileRange(os.fspath(path), 0, Path(path).stat().st_size) for path in paths]
    return _best_pass(ranges, FileRange.read, cold=cold, workers=workers, seconds=seconds)


def measure_records(
    dataset: Dataset | str | Path, *, cold: bool = True, workers: int = 1, seconds: float | None = None
) -> ReadRate:
    """Read the images of a dataset once, in random order, in threads; options as for `measure_raw_files`.

    Close the dataset's loaders first: mapped pages cannot be evicted.
    """
    opened = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    ranges = file_ranges(opened, np.arange(len(opened), dtype=np.int64))
    with ExitStack() as stack:
        paths = {part.path for part in ranges}
        handles = {path: stack.enter_context(Path(path).open("rb", buffering=0)).fileno() for path in paths}

        def read(part: FileRange) -> bytes:
            return _cold.read_part(handles[part.path], part.offset, part.n_bytes)

        return _best_pass(ranges, read, cold=cold, workers=workers, seconds=seconds)


def measure_storage(
    paths: Iterable[str | PathLike[str]], *, request_bytes: int = 1 << 20, seconds: float = 1.0
) -> ReadRate:
    """Read pieces of `request_bytes` from these files past the page cache, and return the rate."""
    return measure_direct(_pieces(paths, max(_cold.BLOCK, request_bytes)), workers=QUEUE_DEPTH, seconds=seconds)


def measure_direct(ranges: Sequence[FileRange], *, workers: int, seconds: float) -> ReadRate:
    """Read parts of files repeatedly with direct I/O, in threads; if that is refused, once with their pages evicted."""
    mean = sum(part.n_bytes for part in ranges) / len(ranges)
    paths = sorted({part.path for part in ranges})
    with suppress(OSError), _cold.DirectReader(paths) as reader:

        def read(number: int) -> int:
            part = ranges[number]
            return reader.read(part.path, part.offset, part.n_bytes)

        rate = timed(read, len(ranges), workers=workers, seconds=seconds, repeats=2).rate
        return ReadRate(rate, len(ranges), mean, direct=True)
    return _best_pass(ranges, FileRange.read, cold=True, workers=workers, seconds=None)


def source_files(source: Any) -> list[Path]:
    """Return some files of a source or dataset, chosen by the hash of their names; [] if it has none."""
    if isinstance(source, Dataset):
        source = source.path
    if not isinstance(source, str | PathLike):
        return []
    path = Path(source)
    if is_dataset(path):
        return sorted((split_address(path)[0] / "shards").glob("*.hrs"))[:_MAX_FILES]
    if path.is_file():
        return [path]
    if not path.is_dir():  # a glob
        return sorted(file for file in path.parent.glob(path.name) if file.is_file())[:_MAX_FILES]
    found: list[Path] = []
    for folder, _, names in os.walk(path):
        found += [Path(folder, name) for name in names if not name.startswith(".")]
        if len(found) > _MAX_LISTED:
            break
    return sorted(found, key=lambda file: hash64(str(file)))[:_MAX_FILES]


def _pieces(paths: Iterable[str | PathLike[str]], request_bytes: int) -> list[FileRange]:
    """Cut files into aligned pieces, in an order that jumps between files."""
    step = request_bytes // _cold.BLOCK * _cold.BLOCK
    found: list[FileRange] = []
    for path in list(paths)[:_MAX_OPEN]:
        with suppress(OSError):
            status = Path(path).stat()
            size = status.st_size if stat.S_ISREG(status.st_mode) and os.access(path, os.R_OK) else 0
            found += [FileRange(os.fspath(path), at, min(step, size - at)) for at in range(0, size, step)]
    if not any(part.n_bytes >= _MIN_FILE_BYTES for part in found):
        raise ValueError(
            "storage can only be measured with a file of 4 KiB or more; found none. "
            "State its rate instead, as in storage=200MB/s"
        )
    return sorted(found, key=lambda part: hash64(f"{part.path}:{part.offset}"))


def _best_pass(
    ranges: Sequence[FileRange], read: Callable[[FileRange], Any], *, cold: bool, workers: int, seconds: float | None
) -> ReadRate:
    order = np.random.default_rng(0).permutation(len(ranges)).tolist()
    paths = sorted({part.path for part in ranges})
    mean = sum(part.n_bytes for part in ranges) / len(ranges)
    end = time.perf_counter() + (seconds or 0.0)
    rates: list[float] = []
    cached: float | None = None
    if not cold:
        pass_over(lambda number: read(ranges[number]), len(ranges), workers=workers)
    while not rates or time.perf_counter() < end:
        if cold:
            _cold.drop(paths)
        if not rates:
            cached = _cold.cached_share(paths[:64])
        rates.append(pass_over(lambda number: read(ranges[order[number]]), len(ranges), workers=workers))
    return ReadRate(max(rates), len(ranges), mean, cached)
