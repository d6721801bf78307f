# SPDX-License-Identifier: Apache-2.0
"""Slots: files in memory that hold the fetched bytes of a batch while the engine decodes them.

The engine reads them as it reads shards. A slot that is released returns its memory to the system.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.errors import StoreError

SLOT_BYTES = 1 << 36
"""Size of a slot. It is sparse: only what is written takes memory."""
ALIGN = 64
"""Alignment of an image in a slot, as in a shard: a cache line, and every vector load of a raw image is aligned."""


class Slots:
    """A fixed number of slots. The files exist as long as this object. Not fork-safe: each process makes its own."""

    def __init__(self, count: int) -> None:
        self._handles = [_memory_file() for _ in range(count)]
        self._free = list(range(count))
        self._process = os.getpid()

    @property
    def files(self) -> list[tuple[str, int]]:
        """Path and size of each slot, for the engine."""
        return [(_path_of(handle), SLOT_BYTES) for handle in self._handles]

    def take(self) -> int | None:
        """Return the number of a free slot; None if all are in use."""
        return self._free.pop() if self._free else None

    def write(self, slot: int, offset: int, content: memoryview) -> None:
        done = 0
        while done < len(content):
            done += os.pwrite(self._handles[slot], content[done:], offset + done)

    def read(self, slot: int, offset: int, n_bytes: int) -> bytes:
        return os.pread(self._handles[slot], n_bytes, offset)

    def release(self, slot: int) -> None:
        """Free the memory of a slot, for another batch."""
        os.ftruncate(self._handles[slot], 0)
        os.ftruncate(self._handles[slot], SLOT_BYTES)
        self._free.append(slot)

    def __del__(self) -> None:
        if self.__dict__.get("_process") == os.getpid():
            for handle in self._handles:
                os.close(handle)


def pack(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the offsets at which images of these lengths lie in a slot, one after the other."""
    padded = (lengths + (ALIGN - 1)) // ALIGN * ALIGN
    offsets = np.zeros(len(lengths), np.int64)
    np.cumsum(padded[:-1], out=offsets[1:])
    if len(lengths) and int(offsets[-1] + padded[-1]) > SLOT_BYTES:
        raise StoreError(f"the images of a batch must have at most {SLOT_BYTES} bytes: use a smaller batch_size")
    return offsets


def _memory_file() -> int:
    """Return a file in memory, or an unlinked temporary one where the system has none."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("headrace", os.MFD_CLOEXEC)
    else:
        handle, name = tempfile.mkstemp(prefix="headrace-")
        Path(name).unlink()
    os.ftruncate(handle, SLOT_BYTES)
    return handle


def _path_of(handle: int) -> str:
    """Return a path under which this process can open the file again."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        if Path(folder).is_dir():
            return f"{folder}/{handle}"
    raise StoreError("datasets in object stores need a system with /dev/fd")
