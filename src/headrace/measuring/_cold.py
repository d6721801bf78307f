# SPDX-License-Identifier: Apache-2.0
"""Files as if they had never been read: their pages are dropped one file at a time, or bypassed. Needs no root.

The kernel drops what it is asked to drop only if it is clean and nobody has it mapped, and some file systems (tmpfs)
have nothing else than the page cache. So whether a file is cold is looked at, not assumed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

# Direct reads need memory and lengths of whole blocks; this suits every disk that is in use.
BLOCK = 4096


def drop(paths: Iterable[str | Path]) -> None:
    """Drop the pages of these files from the page cache; those that are not written yet are written first."""
    if not hasattr(os, "posix_fadvise"):
        return
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            if _pages(handle)[0]:
                # Written just now, or read a moment ago. Not done at once: it takes milliseconds on a busy disk.
                os.fdatasync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def cached_share(paths: Iterable[str | Path]) -> float | None:
    """Which share of these files' pages lies in memory; None where the kernel does not tell."""
    found = total = 0
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            cached, pages = _pages(handle)
        finally:
            os.close(handle)
        found += cached
        total += pages
    return found / total if total and _mincore() is not None else None


def _pages(handle: int) -> tuple[int, int]:
    """How many pages of a file lie in memory, and how many it has. Asks, and reads nothing: a read would fetch them."""
    size, mincore = os.fstat(handle).st_size, _mincore()
    if size == 0 or mincore is None:
        return 0, 0
    pages = -(-size // mmap.PAGESIZE)
    flags = np.zeros(pages, np.uint8)
    # A private map that may be written to: only of such a one ctypes gives the address.
    with mmap.mmap(handle, size, access=mmap.ACCESS_COPY) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        try:
            failed = mincore(
                ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), ctypes.c_void_p(flags.ctypes.data)
            )
        finally:
            del first  # it keeps the map from being closed
    return (0, 0) if failed else (int((flags & 1).sum()), pages)


@cache
def _mincore() -> Any:
    """The system call that tells which pages are in memory; None where there is none."""
    try:
        return ctypes.CDLL(None, use_errno=True).mincore
    except (AttributeError, OSError, TypeError):
        return None


def read_file(path: str, offset: int = 0, n_bytes: int | None = None) -> bytes:
    """Read a file, or a part of it, through the page cache, as a program would."""
    handle = os.open(path, os.O_RDONLY)
    try:
        wanted = os.fstat(handle).st_size - offset if n_bytes is None else n_bytes
        return os.pread(handle, wanted, offset)
    finally:
        os.close(handle)


class DirectReader:
    """Reads past the page cache into a buffer of its own. One a thread.

    Where the file system refuses, `open_direct` gives None and the caller drops pages instead.
    """

    def __init__(self) -> None:
        self._buffer = mmap.mmap(-1, BLOCK)  # maps start at a page, which is what direct reads ask for

    def read(self, handle: int, offset: int, n_bytes: int) -> int:
        """Read the blocks that hold these bytes; give how many bytes came."""
        start = offset - offset % BLOCK
        wanted = -(-(offset + n_bytes - start) // BLOCK) * BLOCK
        if len(self._buffer) < wanted:
            self._buffer.close()
            self._buffer = mmap.mmap(-1, wanted)
        view = memoryview(self._buffer)[:wanted]
        try:
            return os.preadv(handle, [view], start)
        finally:
            view.release()

    def close(self) -> None:
        self._buffer.close()


def open_direct(path: str) -> int | None:
    """Open a file for direct reads; None where that is not to be had."""
    flag = getattr(os, "O_DIRECT", None)
    if flag is None:
        return None
    try:
        return os.open(path, os.O_RDONLY | flag)
    except OSError:
        return None
