# SPDX-License-Identifier: Apache-2.0
"""Reads that do not come from the page cache: evict the pages of a file first, or bypass the cache. Needs no root.

The kernel evicts only clean pages that nobody has mapped, and tmpfs keeps all its files in memory. So `cached_share`
checks whether a file was evicted.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from headrace import system
from headrace.files import read_at

BLOCK = 4096
"""Direct reads need offsets, lengths and memory in blocks; this size suits every disk in use."""


def drop(paths: Iterable[str | Path]) -> None:
    """Evict files from the page cache; pages that are not written yet are written first."""
    if not system.can_evict():
        return
    for path in paths:
        with Path(path).open("rb", buffering=0) as file:
            system.evict(file.fileno())
            if _cached_pages(file.fileno())[0]:
                # Only then: syncing takes milliseconds on a busy disk.
                os.fdatasync(file.fileno())
                system.evict(file.fileno())


def cached_share(paths: Iterable[str | Path]) -> float | None:
    """Return the share of these files' pages that are in memory; None if the kernel does not report it."""
    cached = total = 0
    for path in paths:
        with Path(path).open("rb", buffering=0) as file:
            found = _cached_pages(file.fileno())
        cached, total = cached + found[0], total + found[1]
    return cached / total if total and _mincore() is not None else None


def _cached_pages(handle: int) -> tuple[int, int]:
    """Return how many pages of a file are in memory, and how many it has. Reads nothing: a read would load them."""
    size, mincore = os.fstat(handle).st_size, _mincore()
    if size == 0 or mincore is None:
        return 0, 0
    pages = -(-size // mmap.PAGESIZE)
    flags = np.zeros(pages, np.uint8)
    # A private, writable map: ctypes gives the address only of writable memory.
    with mmap.mmap(handle, size, access=mmap.ACCESS_COPY) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        try:
            failed = mincore(
                ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), ctypes.c_void_p(flags.ctypes.data)
            )
        finally:
            del first  # the map cannot be closed while it is referenced
    return (0, 0) if failed else (int((flags & 1).sum()), pages)


@cache
def _mincore() -> Any:
    """Return the system call that reports which pages are in memory; None if there is none."""
    try:
        return ctypes.CDLL(None, use_errno=True).mincore
    except (AttributeError, OSError, TypeError):
        return None


def read_part(handle: int, offset: int, n_bytes: int) -> bytes:
    """Read a part of an open file, through the page cache."""
    content = bytearray(n_bytes)
    return bytes(content[: read_at(handle, offset, content)])


class DirectReader:
    """Reads files past the page cache, on any number of threads. Use it as a context manager.

    Raises OSError if the system or a file system has no direct reads; some refuse only at the first read.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        flag = system.DIRECT_FLAG
        if flag is None:
            raise OSError("this system has no direct reads")
        self._buffers = threading.local()
        self._handles: dict[str, int] = {}
        with ExitStack() as stack:
            for path in paths:
                self._handles[path] = os.open(path, os.O_RDONLY | flag)
                stack.callback(os.close, self._handles[path])
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self, path: str, offset: int, n_bytes: int) -> int:
        """Read the blocks that hold these bytes, and return how many bytes were read."""
        start = offset - offset % BLOCK
        needed = -(-(offset + n_bytes - start) // BLOCK) * BLOCK
        buffer = getattr(self._buffers, "map", None)
        if buffer is None or len(buffer) < needed:
            buffer = self._buffers.map = mmap.mmap(-1, needed)  # starts at a page boundary, as direct reads need
        with memoryview(buffer)[:needed] as view:
            return system.read_into(self._handles[path], view, start)
