# SPDX-License-Identifier: Apache-2.0
"""Writes files of prepared batches past the page cache, straight from the memory in which they were made.

An offload worker has little CPU to spare. To copy a batch of 19 MB into the page cache and flush it takes 4.6 ms of it,
on a Xeon at 2.8 GHz; a direct write takes 0.3 ms. It wants whole blocks of aligned memory. The first and largest tensor
of a batch lies so, as the engine has made it; the header before it and what follows it are copied to a scratch memory.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np

from headrace.offload.exchange._batch_file import BatchFile
from headrace.offload.exchange._buffers import ALIGNMENT, Memory, allocate_pages
from headrace.offload.exchange._files import Refused, open_file

_O_DIRECT = getattr(os, "O_DIRECT", 0)
# A file system that knows no direct writes says so when the file is opened, or when it is written.
_REFUSALS = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
# Linux takes no more pieces than this at a time.
_MOST_PIECES = 1024


class BatchWriter:
    """Writes one file at a time. For one thread; the GIL is free while it writes and syncs."""

    def __init__(self) -> None:
        self.direct = _O_DIRECT != 0
        """Whether writes go past the page cache; False once the file system has refused."""
        self._scratch: Memory = np.empty(0, np.uint8)

    def write(self, name: str | Path, content: BatchFile, *, dir_fd: int | None = None) -> None:
        """Write a file, or another one over it, and sync it."""
        try:
            self._write(name, content, dir_fd)
        except OSError as error:
            if not self.direct or error.errno not in _REFUSALS:
                raise
            self.direct = False
            self._write(name, content, dir_fd)

    def _write(self, name: str | Path, content: BatchFile, dir_fd: int | None) -> None:
        if self.direct:
            _write(name, _O_DIRECT, self._aligned(content), content.n_bytes, dir_fd)
        else:
            _write(name, 0, content.pieces, content.n_bytes, dir_fd)

    def _aligned(self, content: BatchFile) -> list[Any]:
        """Give the same bytes as pieces that are aligned and whole blocks."""
        head, *pieces = content.pieces
        whole = memoryview(b"")
        if pieces:
            first = memoryview(pieces[0]).cast("B")
            if np.frombuffer(first, np.uint8).ctypes.data % ALIGNMENT == 0:
                kept = len(first) // ALIGNMENT * ALIGNMENT
                whole, pieces[0] = first[:kept], first[kept:]
        needed = content.n_bytes - len(whole)
        if self._scratch.nbytes < needed:
            self._scratch = allocate_pages(-(-needed // ALIGNMENT) * ALIGNMENT)
        scratch, end = self._scratch.data, 0
        for piece in (head, *pieces):
            count = len(memoryview(piece).cast("B"))
            scratch[end : end + count] = piece
            end += count
        parts = [scratch[: len(head)], whole, scratch[len(head) : end]]
        return [part for part in parts if len(part)]


def _open(name: str | Path, flags: int, dir_fd: int | None) -> int:
    """Open what is there to be written over, or a new file if there is nothing, or nothing to be written over."""
    try:
        return open_file(name, os.O_WRONLY | flags, dir_fd=dir_fd)
    except Refused:
        os.unlink(name, dir_fd=dir_fd)
    except FileNotFoundError:
        pass
    return open_file(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, dir_fd=dir_fd)


def _write(name: str | Path, flags: int, pieces: list[Any], n_bytes: int, dir_fd: int | None) -> None:
    handle = _open(name, flags, dir_fd)
    try:
        left = [memoryview(piece).cast("B") for piece in pieces]
        end = 0
        while left:
            count = os.pwritev(handle, left[:_MOST_PIECES], end)
            end += count
            while left and count >= len(left[0]):
                count -= len(left.pop(0))
            if count:
                left[0] = left[0][count:]
        if os.fstat(handle).st_size != n_bytes:
            os.ftruncate(handle, n_bytes)  # what was there before was longer
        os.fsync(handle)
    finally:
        os.close(handle)
