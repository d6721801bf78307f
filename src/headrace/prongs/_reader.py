# SPDX-License-Identifier: Apache-2.0
"""Reads prepared batches: one open, one large read past the page cache, one sum; arrays are views of what was read."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headrace.prongs._batch_file import bad, unpack_batch
from headrace.prongs._exchange import BatchName, Origin
from headrace.prongs._reader_buffers import ALIGNMENT, Buffers, Memory

_O_DIRECT = getattr(os, "O_DIRECT", 0)
# A file system that knows no direct reads says so when the file is opened, or when it is read.
_REFUSALS = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
# Linux reads no more than this at a time.
_MOST_BYTES = 0x7FFFF000


class PreparedBatch(NamedTuple):
    """A batch as the near worker made it, and what it took to read it."""

    arrays: Any
    n_bytes: int
    """Of its file."""
    seconds: float
    cpu_seconds: float
    """Of the reading thread. The finding of memory, which the first few need, is in neither."""


class Reader:
    """Reads the files of one rank. For one thread at a time; the GIL is free while it reads and sums."""

    def __init__(self, origin: Origin, *, take: Callable[[int], Memory] | None = None, direct: bool = True) -> None:
        self._origin = origin
        self._take = take or Buffers().take
        self.direct = direct and _O_DIRECT != 0
        """Whether reads go past the page cache; False once the file system has refused."""
        self._begun = (0.0, 0.0)

    def read(self, path: Path, name: BatchName) -> PreparedBatch | None:
        """Give a batch; None if there is no such file, BadPreparedBatch if it is not the batch that it should be."""
        try:
            content = self._content(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise bad("unreadable", f"{path}: it cannot be read: {error.strerror or error}") from error
        arrays = unpack_batch(content, name, self._origin, path)
        then, used = self._begun
        return PreparedBatch(arrays, content.nbytes, time.perf_counter() - then, time.thread_time() - used)

    def _content(self, path: Path) -> Memory:
        if self.direct:
            try:
                return self._read(path, _O_DIRECT)
            except OSError as error:
                if error.errno not in _REFUSALS:
                    raise
                self.direct = False
        return self._read(path, 0)

    def _read(self, path: Path, flags: int) -> Memory:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
        try:
            n_bytes = os.fstat(handle).st_size
            room = -(-n_bytes // ALIGNMENT) * ALIGNMENT  # direct reads take whole blocks, the last one too
            memory = self._take(room)
            self._begun = (time.perf_counter(), time.thread_time())
            end = 0
            while end < n_bytes:
                count = os.preadv(handle, [memory[end : min(room, end + _MOST_BYTES)].data], end)
                if count == 0:
                    break  # it was longer a moment ago; the sum will tell
                end += count
                if end % ALIGNMENT and end < n_bytes and flags:
                    raise OSError(errno.EINVAL, "a direct read has ended within a block")
            if not flags and hasattr(os, "posix_fadvise"):
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)  # it is read once
        finally:
            os.close(handle)
        return np.asarray(memory[: min(end, n_bytes)])
