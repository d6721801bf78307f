# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the files of prepared batches past the page cache (O_DIRECT), where the file system allows it.

Reading: one open, one large read, one checksum; the arrays are views of the memory that was read into.

Writing: copying a batch of 19 MB to the page cache and flushing it takes 4.6 ms of CPU time on a Xeon at 2.8 GHz; a
direct write takes 0.3 ms. It needs complete blocks of aligned memory. The first and largest tensor of a batch is
aligned as the engine made it; the header before it and the rest are copied to a scratch buffer.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace._core import read_file
from headrace.offload.exchange._batch_file import CHECKSUM_PLACE, LIMITS, BatchFile, Limits, Unpacker, bad_batch
from headrace.offload.exchange._documents import TEMPORARY, BatchName, Origin, batch_file, batch_of
from headrace.offload.exchange._files import Refused, open_file, opened_folder, remove_file

Memory: TypeAlias = npt.NDArray[np.uint8]

ALIGNMENT = 4096
MAX_ADOPTED = 100_000
"""Files that are looked at in a folder that is taken over."""
# Batches of one run differ little in size; sizes are rounded up so that a buffer fits the next batch.
_SIZE_STEP = 1 << 20
_KEPT_BUFFERS = 3
_HUGE_PAGE = 2 << 20
_O_DIRECT = getattr(os, "O_DIRECT", 0)
# What a file system without direct reads and writes reports, on opening a file or on using it.
_NO_DIRECT = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
_MAX_PIECES = 1024  # per call, on Linux


# Memory.


def allocate_pages(n_bytes: int) -> Memory:
    """Return zeroed pages of memory, huge ones where they fit.

    All pages are touched: a direct read of 40 MB takes 70 ms if it has to find them first, and touching them takes 4.
    """
    pages = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if n_bytes >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel that was built without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    memory[::ALIGNMENT] = 0
    return memory


class Buffers:
    """A few aligned buffers that are used again. A buffer is free when nothing refers to its array any more."""

    def __init__(self, allocate: Callable[[int], Memory] | None = None) -> None:
        """`allocate` returns at least as many bytes as requested; None allocates pages."""
        self._allocate = allocate or allocate_pages
        # A deque, because appending to one needs no lock: finalizers do it, in any thread.
        self._free: deque[Memory] = deque(maxlen=_KEPT_BUFFERS)
        self.allocated = 0

    def take(self, n_bytes: int) -> Memory:
        """Return aligned memory of at least `n_bytes`."""
        while self._free:
            memory = self._free.popleft()
            if memory.nbytes >= n_bytes:
                return np.asarray(_Lease(memory, self._free))
        self.allocated += 1
        n_bytes = -(-max(n_bytes, 1) // _SIZE_STEP) * _SIZE_STEP
        memory = self._allocate(n_bytes)
        if memory.ctypes.data % ALIGNMENT:
            memory = self._allocate(n_bytes + ALIGNMENT)
            shift = -memory.ctypes.data % ALIGNMENT
            memory = memory[shift : shift + n_bytes]
        return np.asarray(_Lease(memory, self._free))


class _Lease:
    """The use of a buffer: NumPy makes it the base of the array, and so of all views of the array."""

    def __init__(self, memory: Memory, free: deque[Memory]) -> None:
        self._memory, self._free = memory, free

    def __del__(self) -> None:
        self._free.append(self._memory)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": self._memory.shape, "typestr": "|u1", "data": (self._memory.ctypes.data, False)}


# Reading.


class PreparedBatch(NamedTuple):
    """A batch that an offload worker made, and what reading it cost."""

    arrays: dict[str, npt.NDArray[Any]]
    n_bytes: int
    """Of its file."""
    seconds: float
    """Without allocating memory, which only the first few batches need."""
    cpu_seconds: float
    """Of the reading thread."""


class BatchReader:
    """Reads the files of one rank. For one thread at a time; the GIL is free during reads and checksums."""

    def __init__(self, origin: Origin, *, take: Callable[[int], Memory] | None = None, direct: bool = True) -> None:
        self._unpacker = Unpacker(origin)
        self._take = take or Buffers().take
        self.direct = direct and _O_DIRECT != 0
        """Whether reads bypass the page cache; False once the file system has refused."""
        self._room = ALIGNMENT  # for a file of the size of the last one

    def read(self, path: str | Path, name: BatchName, limits: Limits = LIMITS) -> PreparedBatch | None:
        """Return a batch; None if there is no such file, BadPreparedBatch if it must not be used."""
        try:
            checksum = None
            while checksum is None:
                memory = self._take(self._room)
                then, used = time.perf_counter(), time.thread_time()
                n_bytes, checksum = self._fill(memory, path)
                if n_bytes > limits.n_bytes:
                    raise bad_batch("damaged", f"{path}: must have at most {limits.n_bytes} bytes, and has {n_bytes}")
                self._room = max(1, -(-n_bytes // ALIGNMENT)) * ALIGNMENT  # direct reads need complete blocks
        except FileNotFoundError:
            return None
        except OSError as error:
            raise bad_batch("unreadable", f"{path}: it cannot be read: {error.strerror or error}") from error
        arrays = self._unpacker.unpack(memory[:n_bytes], checksum, name, path, limits)
        return PreparedBatch(arrays, n_bytes, time.perf_counter() - then, time.thread_time() - used)

    def _fill(self, memory: Memory, path: str | Path) -> tuple[int, int | None]:
        """Read a file and return its length and checksum; without checksum if the memory was too small for it."""
        if self.direct:
            try:
                return _read(memory, path, _O_DIRECT)
            except OSError as error:
                if error.errno not in _NO_DIRECT:
                    raise
                self.direct = False
        return _read(memory, path, 0)


def _read(memory: Memory, path: str | Path, flags: int) -> tuple[int, int | None]:
    handle = open_file(path, os.O_RDONLY | flags)
    try:
        return read_file(handle, memory, direct=flags != 0, blank=CHECKSUM_PLACE)
    finally:
        os.close(handle)


# Writing.


class BatchWriter:
    """Writes one file at a time. For one thread; the GIL is free during writes and syncs."""

    def __init__(self) -> None:
        self.direct = _O_DIRECT != 0
        """Whether writes bypass the page cache; False once the file system has refused."""
        self._scratch: Memory = np.empty(0, np.uint8)

    def write(self, name: str | Path, content: BatchFile, *, dir_fd: int | None = None) -> None:
        """Write a file, new or over an existing one, and sync it."""
        if self.direct:
            try:
                _write(name, _O_DIRECT, self._aligned(content), content.n_bytes, dir_fd)
            except OSError as error:
                if error.errno not in _NO_DIRECT:
                    raise
                self.direct = False
        if not self.direct:
            _write(name, 0, content.pieces, content.n_bytes, dir_fd)

    def _aligned(self, content: BatchFile) -> list[Any]:
        """Return the same bytes as aligned buffers of complete blocks."""
        head, *pieces = content.pieces
        in_place = memoryview(b"")
        if pieces:
            first = memoryview(pieces[0]).cast("B")
            if np.frombuffer(first, np.uint8).ctypes.data % ALIGNMENT == 0:
                kept = len(first) // ALIGNMENT * ALIGNMENT
                in_place, pieces[0] = first[:kept], first[kept:]
        needed = content.n_bytes - len(in_place)
        if self._scratch.nbytes < needed:
            self._scratch = allocate_pages(-(-needed // ALIGNMENT) * ALIGNMENT)
        scratch, end = self._scratch.data, 0
        for piece in (head, *pieces):
            count = len(memoryview(piece).cast("B"))
            scratch[end : end + count] = piece
            end += count
        parts = [scratch[: len(head)], in_place, scratch[len(head) : end]]
        return [part for part in parts if len(part)]


def _write(name: str | Path, flags: int, pieces: list[Any], n_bytes: int, dir_fd: int | None) -> None:
    handle = _open_to_write(name, flags, dir_fd)
    try:
        left = [memoryview(piece).cast("B") for piece in pieces]
        end = 0
        while left:
            count = os.pwritev(handle, left[:_MAX_PIECES], end)
            end += count
            while left and count >= len(left[0]):
                count -= len(left.pop(0))
            if count:
                left[0] = left[0][count:]
        if os.fstat(handle).st_size != n_bytes:
            os.ftruncate(handle, n_bytes)  # the file that was overwritten was longer
        os.fsync(handle)
    finally:
        os.close(handle)


def _open_to_write(name: str | Path, flags: int, dir_fd: int | None) -> int:
    """Open a file to write over it, or a new file if there is none or it must not be written to."""
    try:
        return open_file(name, os.O_WRONLY | flags, dir_fd=dir_fd)
    except Refused:
        os.unlink(name, dir_fd=dir_fd)
    except FileNotFoundError:
        pass
    return open_file(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, dir_fd=dir_fd)


class PublishedBatches:
    """The batch files of one rank, for the offload worker that owns them. For one thread.

    One file that is not wanted any more is kept as a spare: the next batch is written over it, which saves the file
    system freeing and finding blocks. Others are removed.
    """

    def __init__(self, folder: Path, rank: int, token: str) -> None:
        self._folder = folder
        self._temporary = f".batch.{token}{TEMPORARY}"
        self._writer = BatchWriter()
        self._spare: tuple[BatchName, int] | None = None
        self.held: dict[BatchName, int] = {}
        """The bytes of each published batch."""
        self._adopt(rank)
        self.held_bytes = sum(self.held.values())
        """The sum of them, without the spare."""

    def _adopt(self, rank: int) -> None:
        """Take over what an earlier offload worker has published, and remove its temporary files."""
        with opened_folder(self._folder, listing=True) as folder, os.scandir(folder) as entries:
            for entry in islice(entries, MAX_ADOPTED):
                name = batch_of(entry.name, rank)
                if name is not None and entry.is_file(follow_symlinks=False):
                    self.held[name] = entry.stat(follow_symlinks=False).st_size
                elif entry.name.startswith(".batch."):
                    remove_file(entry.name, dir_fd=folder)

    def write(self, name: BatchName, content: BatchFile) -> None:
        """Publish a batch: write it under a temporary name, sync, rename. An OSError leaves nothing behind."""
        spare, self._spare = self._spare, None
        with opened_folder(self._folder) as folder:
            try:
                if spare is not None:
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(batch_file(spare[0]), self._temporary, src_dir_fd=folder, dst_dir_fd=folder)
                self._writer.write(self._temporary, content, dir_fd=folder)
                os.replace(self._temporary, batch_file(name), src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    remove_file(self._temporary, dir_fd=folder)
                raise
        self.held_bytes += content.n_bytes - self.held.get(name, 0)
        self.held[name] = content.n_bytes

    def keep_only(self, wanted: Callable[[BatchName], bool]) -> None:
        """Remove all batches that are not wanted, but keep one file as a spare."""
        if self._spare is not None and wanted(self._spare[0]):
            self.held[self._spare[0]] = self._spare[1]
            self.held_bytes += self._spare[1]
            self._spare = None
        for name in [name for name in self.held if not wanted(name)]:
            n_bytes = self.held.pop(name)
            self.held_bytes -= n_bytes
            if self._spare is None:
                self._spare = (name, n_bytes)
            else:
                self._remove(name)

    def drop_spare(self) -> None:
        """Remove the spare, to free its space."""
        if self._spare is not None:
            self._remove(self._spare[0])
            self._spare = None

    def _remove(self, name: BatchName) -> None:
        with contextlib.suppress(OSError), opened_folder(self._folder) as folder:
            remove_file(batch_file(name), dir_fd=folder)
