# SPDX-License-Identifier: Apache-2.0
"""A prepared batch as one safetensors file with one checksum (spec/exchange.md §4): what it contains, reading, writing.

Files are read and written past the page cache (O_DIRECT), where the file system allows it. Reading is one open, one
large read and one checksum; the arrays are views of the memory that was read into. Writing a batch of 19 MB through the
page cache takes 4.6 ms of CPU time on a Xeon at 2.8 GHz; a direct write takes 0.3 ms. It needs complete blocks of
aligned memory. The first and largest tensor of a batch is aligned as the engine made it; the header before it and the
rest are copied to a scratch buffer.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import mmap
import os
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace._core import crc32c, read_file
from headrace.errors import HeadraceError, ImageTooLarge
from headrace.loader.supply import Rows, Stack
from headrace.offload.exchange._batch_header import (
    CHECKSUM_PLACE,
    DATA_ALIGNMENT,
    DTYPES,
    PADDING,
    START,
    TENSOR_ALIGNMENT,
    FileLayout,
    bad_batch,
    parse_header,
)
from headrace.offload.exchange._documents import short_text
from headrace.offload.exchange._files import Refused, open_file
from headrace.offload.exchange._names import SUFFIX, VERSION, BatchName, Origin, Stretch
from headrace.records import Dataset
from headrace.records.rendition import DEFINES_COLOR
from headrace.records.schema import COLOR_DTYPE_CODES, DTYPE_NAMES
from headrace.transforms import Compiled

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]
Memory: TypeAlias = npt.NDArray[np.uint8]

ROWS_TENSOR = "_rows"
"""The rows of the dataset in the batch, so that a batch of other rows is detected."""
_LENGTH = struct.Struct("<Q")
# Each distinct stored size takes 2 µs to compute. A dataset of photographs has a few thousand.
_MAX_CACHED_SHAPES = 1 << 14
# Batches of one run differ little in size; sizes are rounded up so that a buffer fits the next batch.
_SIZE_STEP = 1 << 20
_KEPT_BUFFERS = 3
_HUGE_PAGE = 2 << 20
_O_DIRECT = getattr(os, "O_DIRECT", 0)
# What a file system without direct reads and writes reports, on opening a file or on using it.
_NO_DIRECT = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


def batch_file(name: BatchName) -> str:
    return f"{name.epoch}-{name.start}-{name.stop}-{name.number}{SUFFIX}"


def is_within(name: BatchName, stretches: Iterable[Stretch]) -> bool:
    """Whether a batch is in one of these stretches."""
    own = (name.epoch, name.start, name.stop)
    return any(each[:3] == own and each.bottom <= name.number < each.top for each in stretches)


def _labels(name: BatchName, origin: Origin) -> dict[str, Any]:
    """Return the metadata that identifies a batch in its file."""
    return {"version": VERSION, **origin._asdict(), **name._asdict()}


# What a batch must contain.


class Limits(NamedTuple):
    """The maximum size of a file. No memory is allocated for a larger one."""

    n_bytes: int
    header_bytes: int

    @classmethod
    def of(cls, data_bytes: int, tensors: int) -> Limits:
        """Return the limits for a batch, with room for padding and metadata."""
        header = 16 * DATA_ALIGNMENT + 512 * tensors
        return cls(header + data_bytes + TENSOR_ALIGNMENT * (tensors + 1) + 2 * DATA_ALIGNMENT, header)


LIMITS = Limits(2 << 30, 16 << 20)
"""For readers that do not know what to expect, and for the batches that an offload worker prepares."""


def name_arrays(stacks: Mapping[str, Stack], rows: Rows) -> dict[str, npt.NDArray[Any]]:
    """Name each array of a batch: `image.0` and so on if shapes differ, `image/0` for groups of views."""
    arrays: dict[str, npt.NDArray[Any]] = {ROWS_TENSOR: rows}
    for field, stack in stacks.items():
        if isinstance(stack, list | tuple):
            mark = "." if isinstance(stack, list) else "/"
            arrays |= name_arrays({f"{field}{mark}{at}": each for at, each in enumerate(stack)}, rows)
        else:
            arrays[field] = stack
    return arrays


class SampleShape(NamedTuple):
    """Shape and dtype of the pixels of one sample, all views of a group included."""

    sides: tuple[int, ...]
    dtype: str
    n_bytes: int


class BatchShape:
    """The shapes of the pixel fields of one batch."""

    def __init__(self, rows: Rows, fields: Mapping[str, list[SampleShape]], groups: int = 1) -> None:
        self._rows, self._fields, self._groups = rows, fields, groups
        self.n_bytes = sum(shape.n_bytes for shapes in fields.values() for shape in shapes)  # of its pixels
        self.limits = Limits.of(rows.nbytes + self.n_bytes, 1 + sum(map(len, fields.values())))

    def stacked(self, arrays: Arrays) -> list[Stack]:
        """Return the fields of a prepared batch; ValueError if its rows, shapes or dtypes are not those expected."""
        rows = arrays.get(ROWS_TENSOR)
        if rows is None or rows.dtype != self._rows.dtype or not np.array_equal(rows, self._rows):
            raise ValueError("its rows are not those of this batch")
        found, n = [self._field(name, shapes, arrays) for name, shapes in self._fields.items()], self._groups
        return found if n == 1 else [tuple(found[at : at + n]) for at in range(0, len(found), n)]

    def _field(self, name: str, shapes: list[SampleShape], arrays: Arrays) -> Stack:
        first = shapes[0]
        if all(shape is first or shape == first for shape in shapes):
            return _checked_array(arrays, name, (len(shapes), *first.sides), first.dtype)
        return [_checked_array(arrays, f"{name}.{at}", shape.sides, shape.dtype) for at, shape in enumerate(shapes)]


def _checked_array(arrays: Arrays, name: str, sides: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    array = arrays.get(name)
    if array is None:
        raise ValueError(f"it has no array {name!r}")
    if array.shape != sides or array.dtype.name != dtype:
        raise ValueError(f"{name} must be {dtype} of shape {sides}; found {array.dtype.name} of {array.shape}")
    return array


class BatchShapes:
    """Computes the shapes of batches from the index and the transform. For one thread; some 20 µs per batch.

    A shape depends on what is stored, never on random draws.
    """

    def __init__(self, dataset: Dataset, names: Sequence[str], compiled: Compiled) -> None:
        self._gather, self._n_groups = dataset.gather, len(compiled.groups)
        self._groups = compiled.named_groups({name: dataset.fields[name] for name in names})
        self._max_pixels = compiled.max_pixels
        self._cached: dict[tuple[str, int, int, int, int, int], SampleShape] = {}

    def of(self, rows: Rows) -> BatchShape | None:
        """Return the shape of the batch of these rows; None if a sample cannot be transformed.

        It is also None for an image of more than `max_pixels`, which may fail or not, depending on its crop.
        """
        try:
            return BatchShape(rows, {name: self._field(name, rows) for name in self._groups}, self._n_groups)
        except HeadraceError:
            return None

    def _field(self, name: str, rows: Rows) -> list[SampleShape]:
        columns = self._gather.pixel_columns(self._groups[name][0], 0, rows)
        stored = (columns[part].tolist() for part in ("height", "width", "channels", "dtype", "format"))
        return [self._shape(name, *each) for each in zip(*stored, strict=True)]

    def _shape(self, name: str, height: int, width: int, channels: int, dtype: int, form: int) -> SampleShape:
        key = (name, height, width, channels, dtype, form)
        found = self._cached.get(key)
        if found is None:
            if height * width > self._max_pixels or dtype not in DTYPE_NAMES:
                raise ImageTooLarge(f"{height} x {width} pixels of dtype code {dtype}")
            has_color = channels in (2, 4) and (dtype in COLOR_DTYPE_CODES or form in DEFINES_COLOR)
            sides, made = self._groups[name][1].shape(
                height, width, channels, DTYPE_NAMES[dtype], seed=0, epoch=0, sample=0, has_color=has_color
            )
            sides = sides if self._groups[name][2] == self._n_groups == 1 else (self._groups[name][2], *sides)
            found = SampleShape(sides, made, math.prod(sides) * np.dtype(made).itemsize)
            if len(self._cached) >= _MAX_CACHED_SHAPES:
                self._cached.clear()
            self._cached[key] = found
        return found


# The content of a file.


class BatchFile(NamedTuple):
    """The content of a file as buffers, in order."""

    pieces: list[Any]
    n_bytes: int


def pack_batch(name: BatchName, origin: Origin, batch: Arrays, declined: str | None = None) -> BatchFile:
    """Return the file of a batch, or of the reason why there is none (`declined`).

    The arrays are not copied and must not change until they are written. ValueError for a dtype that safetensors does
    not have.
    """
    entries, pieces, n_bytes = _lay_out(batch)
    described = {**_labels(name, origin), "declined": None if declined is None else short_text(declined)}
    header: dict[str, Any] = {
        "__metadata__": {"crc32c": "0" * CHECKSUM_PLACE.size, "headrace": json.dumps(described, separators=(",", ":"))},
        **entries,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    assert text.startswith(START)
    text = text.ljust(-(-(8 + len(text)) // DATA_ALIGNMENT) * DATA_ALIGNMENT - 8)
    head = bytearray(_LENGTH.pack(len(text)) + text)
    checksum = crc32c(head, 0)
    for piece in pieces:
        checksum = crc32c(piece, checksum)
    begin, size = CHECKSUM_PLACE
    head[begin : begin + size] = b"%08x" % checksum
    return BatchFile([head, *pieces], len(head) + n_bytes)


def _lay_out(batch: Arrays) -> tuple[dict[str, Any], list[Any], int]:
    """Return the entries of the header, the buffers of the data, and the length of the data."""
    entries: dict[str, Any] = {}
    pieces: list[Any] = []
    end = 0

    def pad(alignment: int) -> None:
        nonlocal end
        gap = -end % alignment
        if gap:
            entries[f"{PADDING}{len(entries)}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [end, end + gap]}
            pieces.append(bytes(gap))
            end += gap

    for name, array in sorted(batch.items(), key=lambda item: -item[1].nbytes):
        if not isinstance(name, str) or name.startswith(PADDING) or name == "__metadata__":
            raise ValueError(f"{name!r} must not be the name of a tensor of a prepared batch")
        if array.dtype not in DTYPES:
            raise ValueError(f"{name} has the dtype {array.dtype}, which a prepared batch cannot hold")
        pad(TENSOR_ALIGNMENT)
        offsets = [end, end + array.nbytes]
        entries[name] = {"dtype": DTYPES[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
        if array.size:
            pieces.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        end += array.nbytes
    pad(DATA_ALIGNMENT)  # direct writes need complete blocks
    return entries, pieces, end


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
    memory[::DATA_ALIGNMENT] = 0
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
        if memory.ctypes.data % DATA_ALIGNMENT:
            memory = self._allocate(n_bytes + DATA_ALIGNMENT)
            shift = -memory.ctypes.data % DATA_ALIGNMENT
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
    n_bytes: int  # of its file
    seconds: float  # without allocating memory, which only the first few batches need
    cpu_seconds: float  # of the reading thread


class BatchReader:
    """Reads the files of one rank. For one thread at a time; the GIL is free during reads and checksums.

    The headers of one stretch differ only in the batch number and the checksum. So the last header is kept, and an
    equal one is not parsed again: that would cost 0.1 ms.
    """

    def __init__(self, origin: Origin, *, take: Callable[[int], Memory] | None = None) -> None:
        self._origin = origin
        self._take = take or Buffers().take
        self.direct = _O_DIRECT != 0
        """Whether reads bypass the page cache; False once the file system has refused."""
        self._room = DATA_ALIGNMENT  # for a file of the size of the last one
        self._last: tuple[BatchName, bytes, FileLayout] | None = None

    def read(self, path: str | Path, name: BatchName, limits: Limits = LIMITS) -> PreparedBatch | None:
        """Return a batch; None if there is no such file, BadPreparedBatch if it must not be used."""
        try:
            checksum = None
            while checksum is None:
                memory = self._take(self._room)
                then, used = time.perf_counter(), time.thread_time()
                n_bytes, checksum = self._fill(memory, path)
                if n_bytes > limits.n_bytes:
                    raise bad_batch("damaged", f"{path}: must have at most {limits.n_bytes} bytes; it has {n_bytes}")
                self._room = max(1, -(-n_bytes // DATA_ALIGNMENT)) * DATA_ALIGNMENT  # direct reads need complete blocks
        except FileNotFoundError:
            return None
        except OSError as error:
            raise bad_batch("unreadable", f"{path}: it cannot be read: {error.strerror or error}") from error
        arrays = self.unpack(memory[:n_bytes], checksum, name, path, limits)
        return PreparedBatch(arrays, n_bytes, time.perf_counter() - then, time.thread_time() - used)

    def _fill(self, memory: Memory, path: str | Path) -> tuple[int, int | None]:
        """Read a file and return its length and checksum; without checksum if the memory was too small for it."""
        try:
            handle = open_file(path, os.O_RDONLY | (_O_DIRECT if self.direct else 0))
            try:
                return read_file(handle, memory, direct=self.direct, blank=CHECKSUM_PLACE)
            finally:
                os.close(handle)
        except OSError as error:
            if not self.direct or error.errno not in _NO_DIRECT:
                raise
        self.direct = False
        return self._fill(memory, path)

    def unpack(
        self, content: Memory, checksum: int, name: BatchName, path: Any, limits: Limits = LIMITS
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of a file as views, given its `checksum` with `CHECKSUM_PLACE` as zeros.

        BadPreparedBatch if it is damaged or forged, not the requested batch of this run and recipe, or declined.
        """
        text = _checked_header(content, checksum, path, limits)
        number = b'\\"number\\":%d,' % name.number
        rest = text.rstrip(b" ").replace(number, b"", 1)
        stretch = name._replace(number=0)
        if self._last is not None and self._last[:2] == (stretch, rest) and self._last[2].n_bytes == content.nbytes:
            layout = self._last[2]
        else:
            layout = parse_header(text, content.nbytes, _labels(name, self._origin), path)
            self._last = (stretch, rest, layout) if number in text else None
        return {name: np.ndarray(shape, dtype, content.data, offset) for name, shape, dtype, offset in layout.tensors}


def _checked_header(content: npt.NDArray[np.uint8], checksum: int, path: Any, limits: Limits) -> bytes:
    """Return the text of the header after the checksum."""
    n_bytes = content.nbytes
    if n_bytes < DATA_ALIGNMENT:
        raise bad_batch(
            "damaged", f"{path}: must have at least {DATA_ALIGNMENT} bytes; it has {n_bytes}: it is truncated"
        )
    (length,) = _LENGTH.unpack_from(content.data)
    if length > limits.header_bytes or 8 + length > n_bytes or (8 + length) % DATA_ALIGNMENT:
        raise bad_batch(
            "damaged", f"{path}: found a header of {length} bytes in a file of {n_bytes}: it is truncated or damaged"
        )
    text = content[8 : 8 + length].tobytes()
    if not text.startswith(START):
        raise bad_batch("foreign", f"{path}: the header must begin with {START.decode()!r}: it is not a prepared batch")
    stated, found = text[len(START) : len(START) + CHECKSUM_PLACE.size], b"%08x" % checksum
    if stated != found:
        raise bad_batch("damaged", f"{path}: the checksum must be {stated!r}; found {found.decode()}: it is damaged")
    return text[len(START) + CHECKSUM_PLACE.size :]


# Writing.


class BatchWriter:
    """Writes one file at a time. For one thread; the GIL is free during writes and syncs."""

    def __init__(self) -> None:
        self.direct = _O_DIRECT != 0
        """Whether writes bypass the page cache; False once the file system has refused."""
        self._scratch: Memory = np.empty(0, np.uint8)

    def write(self, name: str | Path, content: BatchFile, *, dir_fd: int | None = None) -> None:
        """Write a file, new or over an existing one, and sync it."""
        pieces = self._aligned(content)
        try:
            _write(name, _O_DIRECT if self.direct else 0, pieces, content.n_bytes, dir_fd)
        except OSError as error:
            if not self.direct or error.errno not in _NO_DIRECT:
                raise
            self.direct = False
            _write(name, 0, pieces, content.n_bytes, dir_fd)

    def _aligned(self, content: BatchFile) -> list[Any]:
        """Return the same bytes as aligned buffers of complete blocks."""
        head, *pieces = content.pieces
        in_place = memoryview(b"")
        if pieces:
            first = memoryview(pieces[0])
            if np.frombuffer(first, np.uint8).ctypes.data % DATA_ALIGNMENT == 0:
                kept = len(first) // DATA_ALIGNMENT * DATA_ALIGNMENT
                in_place, pieces[0] = first[:kept], first[kept:]
        needed = content.n_bytes - len(in_place)
        if self._scratch.nbytes < needed:
            self._scratch = allocate_pages(-(-needed // DATA_ALIGNMENT) * DATA_ALIGNMENT)
        scratch, end = self._scratch.data, 0
        for piece in (head, *pieces):
            begin, end = end, end + len(piece)
            scratch[begin:end] = piece
        return [part for part in (scratch[: len(head)], in_place, scratch[len(head) : end]) if len(part)]


def _write(name: str | Path, flags: int, pieces: list[Any], n_bytes: int, dir_fd: int | None) -> None:
    handle = _open_to_write(name, flags, dir_fd)
    try:
        left, end = pieces.copy(), 0
        while left:
            count = os.pwritev(handle, left, end)
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
