# SPDX-License-Identifier: Apache-2.0
"""Reads prepared batches: one open, one large read past the page cache, one sum; arrays are views of what was read."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from headrace._core import read_file
from headrace.offload.exchange._batch_file import BLANK, LIMITS, Limits, Unpacker, bad
from headrace.offload.exchange._buffers import ALIGNMENT, Buffers, Memory
from headrace.offload.exchange._files import open_file
from headrace.offload.exchange._names import BatchName, Origin

# A file system that knows no direct reads says so when the file is opened, or when it is read.
_REFUSALS = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


class PreparedBatch(NamedTuple):
    """A batch as the offload worker made it, and what it took to read it."""

    arrays: dict[str, npt.NDArray[Any]]
    n_bytes: int
    """Of its file."""
    seconds: float
    cpu_seconds: float
    """Of the reading thread. The finding of memory, which the first few need, is in neither."""


class Reader:
    """Reads the files of one rank. For one thread at a time; the GIL is free while it reads and sums."""

    def __init__(self, origin: Origin, *, take: Callable[[int], Memory] | None = None, direct: bool = True) -> None:
        self._unpacker = Unpacker(origin)
        self._take = take or Buffers().take
        self.direct = direct and hasattr(os, "O_DIRECT")
        """Whether reads go past the page cache; False once the file system has refused."""
        self._room = ALIGNMENT  # for a file as long as the last one

    def read(self, path: str | Path, name: BatchName, limits: Limits = LIMITS) -> PreparedBatch | None:
        """Return a batch; None if there is no such file, BadPreparedBatch if it is not the batch that it should be.

        No memory is allocated for a file that is larger than `limits` allow.
        """
        try:
            checksum = None
            while checksum is None:
                memory = self._take(self._room)
                then, used = time.perf_counter(), time.thread_time()
                n_bytes, checksum = self._fill(memory, path)
                if n_bytes > limits.n_bytes:
                    raise bad("damaged", f"{path}: it has {n_bytes} bytes; at most {limits.n_bytes} are expected")
                blocks = max(1, -(-n_bytes // ALIGNMENT))  # direct reads take whole ones, the last one too
                self._room = blocks * ALIGNMENT
        except FileNotFoundError:
            return None
        except OSError as error:
            raise bad("unreadable", f"{path}: it cannot be read: {error.strerror or error}") from error
        arrays = self._unpacker.unpack(memory[:n_bytes], checksum, name, path, limits)
        return PreparedBatch(arrays, n_bytes, time.perf_counter() - then, time.thread_time() - used)

    def _fill(self, memory: Memory, path: str | Path) -> tuple[int, int | None]:
        """Read a file and return its length and sum; no sum if the memory is too small, and it was not read."""
        if self.direct:
            try:
                return _fill(memory, path, os.O_DIRECT, direct=True)
            except OSError as error:
                if error.errno not in _REFUSALS:
                    raise
                self.direct = False
        return _fill(memory, path, 0, direct=False)


def _fill(memory: Memory, path: str | Path, flags: int, *, direct: bool) -> tuple[int, int | None]:
    handle = open_file(path, os.O_RDONLY | flags)
    try:
        return read_file(handle, memory, direct=direct, blank=BLANK)
    finally:
        os.close(handle)
