# SPDX-License-Identifier: Apache-2.0
"""What storage gives: the user's own files, read past the page cache, as many at a time as a loader has under way."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from headrace.planning._calibrate import usable_cores
from headrace.planning._cost import Calibration
from headrace.planning._machine import Machine
from headrace.records import Dataset, hash64
from headrace.sources import is_dataset

QUEUE_DEPTH = 16
"""Requests under way: a loader has about as many."""

_BLOCK = 4096
_LEAST_REQUEST, _MOST_REQUEST = 64 << 10, 4 << 20
_LEAST_BYTES = 64 << 20
"""To read: of less than that, most of the time goes by with beginning and ending."""
_MOST_FILES = 2000
_MOST_LISTED = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRate:
    """A measured rate."""

    bytes_per_second: float
    direct: bool
    """Whether the page cache was bypassed; otherwise it may have been what was measured."""
    request_bytes: int
    queue_depth: int


def find_machine(
    source: Any,
    calibration: Calibration | None = None,
    *,
    storage_rate: float | None = None,
    cores: float | None = None,
    trainer_cores: float = 0.0,
    link_rate: float = math.inf,
    seconds: float = 1.0,
) -> Machine:
    """Find out what this machine can do; what is given is believed, the rest measured.

    Args:
        source: Whose files are read: a dataset or a path. Anything else has none, and storage then has no limit.
        calibration: Says how large the requests are.
        storage_rate: Bytes a second, if storage is to be taken for another.
        cores: How many, if not those that this process may use.
        trainer_cores: What the training itself keeps busy of them.
        link_rate: Bytes a second to the device.
        seconds: How long storage is measured.

    """
    provenance: dict[str, Any] = {}
    emulated = storage_rate is not None or cores is not None
    if storage_rate is None:
        files = source_files(source)
        storage_rate = math.inf
        if files:
            found = measure_storage(files, request_bytes=_request(calibration), seconds=seconds)
            storage_rate = found.bytes_per_second
            provenance = {
                "direct": found.direct,
                "request_bytes": found.request_bytes,
                "queue_depth": found.queue_depth,
            }
    return Machine(
        storage_rate=storage_rate,
        cores=usable_cores() if cores is None else cores,
        trainer_cores=trainer_cores,
        link_rate=link_rate,
        emulated=emulated,
        provenance=provenance,
    )


def _request(calibration: Calibration | None) -> int:
    if calibration is None:
        return 1 << 20
    sizes = sorted(cost.read_bytes for cost in calibration.costs)
    middle = int(sizes[len(sizes) // 2])
    return min(max(middle // _BLOCK * _BLOCK, _LEAST_REQUEST), _MOST_REQUEST)


def source_files(source: Any) -> list[Path]:
    """Some of the files that a source or dataset consists of, drawn by the hash of their names; [] if it has none."""
    if isinstance(source, Dataset):
        source = source.path
    if not isinstance(source, str | PathLike):
        return []
    path = Path(source)
    if is_dataset(path):
        return sorted((path / "shards").glob("*.hrs"))[:_MOST_FILES]
    if path.is_file():
        return [path]
    if not path.is_dir():  # a glob
        return sorted(file for file in path.parent.glob(path.name) if file.is_file())[:_MOST_FILES]
    found: list[Path] = []
    for folder, _, names in os.walk(path):
        found += [Path(folder, name) for name in names if not name.startswith(".")]
        if len(found) > _MOST_LISTED:
            break
    return sorted(found, key=lambda file: hash64(str(file)))[:_MOST_FILES]


def measure_storage(
    paths: Iterable[str | PathLike[str]],
    *,
    request_bytes: int = 1 << 20,
    queue_depth: int = QUEUE_DEPTH,
    seconds: float = 1.0,
) -> StorageRate:
    """Read files with direct I/O from several threads, and say how many bytes a second came.

    Where direct I/O is not to be had, the files' pages are dropped from the cache first, and read plainly.
    """
    opened = _open(paths)
    try:
        direct = all(file.direct for file in opened)
        # Past the cache a few small files can be read again and again; otherwise the cache would be measured.
        least = _LEAST_BYTES if direct else 0
        requests = _Requests([(file.handle, file.n_bytes) for file in opened], request_bytes, least)
        begun = time.perf_counter()
        deadline = begun + seconds
        threads = [
            threading.Thread(target=requests.work, args=(deadline,), name=f"headrace-storage-{number}")
            for number in range(queue_depth)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken = time.perf_counter() - begun
    finally:
        for file in opened:
            os.close(file.handle)
    return StorageRate(
        bytes_per_second=requests.n_bytes / taken,
        direct=direct,
        request_bytes=request_bytes,
        queue_depth=queue_depth,
    )


@dataclass(frozen=True, slots=True)
class _File:
    handle: int
    n_bytes: int
    direct: bool


def _open(paths: Iterable[str | PathLike[str]]) -> list[_File]:
    opened: list[_File] = []
    for path in paths:
        with contextlib.suppress(OSError):
            opened.append(_open_one(os.fspath(path)))
        if len(opened) >= _MOST_FILES // 4:
            break  # handles are few
    if not any(file.n_bytes >= _BLOCK for file in opened):
        for file in opened:
            os.close(file.handle)
        raise ValueError(
            "there is no file of 4 KiB or more to measure storage with: give its rate, as in storage=200MB/s"
        )
    return opened


def _open_one(path: str) -> _File:
    direct = getattr(os, "O_DIRECT", 0)
    if direct:
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | direct)
            return _File(handle, _size(handle), True)
    handle = os.open(path, os.O_RDONLY)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    return _File(handle, _size(handle), False)


def _size(handle: int) -> int:
    status = os.fstat(handle)
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


class _Requests:
    """Aligned pieces of all files, in an order that jumps about, handed out to threads; at least so many bytes."""

    def __init__(self, files: Sequence[tuple[int, int]], request_bytes: int, least_bytes: int) -> None:
        self._request = max(_BLOCK, request_bytes // _BLOCK * _BLOCK)
        pieces = [
            (handle, offset) for handle, n_bytes in files for offset in range(0, n_bytes, self._request) if n_bytes
        ]
        pieces.sort(key=lambda piece: hash64(f"{piece[0]}:{piece[1]}"))
        rounds = max(1, -(-least_bytes // max(1, sum(n_bytes for _, n_bytes in files))))
        self._pieces: Iterator[tuple[int, int]] = iter(pieces * rounds)
        self._lock = threading.Lock()
        self.n_bytes = 0

    def work(self, deadline: float) -> None:
        total = 0
        with mmap.mmap(-1, self._request) as buffer:  # page-aligned, as direct I/O wants it
            while time.perf_counter() < deadline:
                with self._lock:
                    piece = next(self._pieces, None)
                if piece is None:
                    break
                total += os.preadv(piece[0], [buffer], piece[1])
        with self._lock:
            self.n_bytes += total
