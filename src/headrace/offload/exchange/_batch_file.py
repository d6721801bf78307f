# SPDX-License-Identifier: Apache-2.0
"""A prepared batch as one safetensors file with one checksum (spec/exchange.md §4), and what a batch must contain.

The header is padded with spaces so that the data begins at a multiple of 4096. Each tensor begins at a multiple of 64,
the largest first. The gaps, and the space after the last tensor up to a multiple of 4096, are listed as `_padding.N`,
because safetensors allows no holes. The checksum covers all bytes of the file, with its own eight digits as zeros.

The checksum protects against damage, not against a forged file. So every number of the header is checked before it is
used, and the host compares rows, shapes and dtypes with those that its own index and transform lead to.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace._core import crc32c
from headrace.errors import BadPreparedBatch, HeadraceError, ImageTooLarge
from headrace.loader.supply import Rows, Stack
from headrace.offload.exchange._documents import (
    MALFORMED,
    VERSION,
    BatchName,
    Origin,
    check_integer,
    parse_object,
    short_text,
    show,
)
from headrace.records import Dataset
from headrace.records.rendition import DEFINES_COLOR
from headrace.records.schema import COLOR_DTYPE_CODES, DTYPE_NAMES
from headrace.transforms import Compiled

DATA_ALIGNMENT = 4096
TENSOR_ALIGNMENT = 64
PADDING = "_padding."
ROWS_TENSOR = "_rows"
"""The rows of the dataset in the batch, so that a batch of other rows is detected."""
MAX_DIMENSIONS = 8

DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
}
"""The names of dtypes in safetensors."""
NAMES = {name: np.dtype(dtype) for dtype, name in DTYPES.items()}

_START = b'{"__metadata__":{"crc32c":"'
_LENGTH = struct.Struct("<Q")
# Each distinct stored size takes 2 µs to compute. A dataset of photographs has a few thousand.
_MAX_CACHED_SHAPES = 1 << 14


class ChecksumPlace(NamedTuple):
    """Where a file has its own checksum, whose digits count as zeros."""

    begin: int
    size: int


CHECKSUM_PLACE = ChecksumPlace(8 + len(_START), 8)


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


@dataclass(frozen=True, slots=True)
class BatchFile:
    """The content of a file as buffers, in order."""

    pieces: list[Any]
    n_bytes: int


def pack_batch(
    name: BatchName, origin: Origin, batch: Mapping[str, npt.NDArray[Any]], declined: str | None = None
) -> BatchFile:
    """Return the file of a batch. The arrays are not copied and must not change until they are written.

    Args:
        name: Which batch it is.
        origin: The run, session and recipe that it belongs to.
        batch: Arrays by name; ValueError for a dtype that safetensors does not have.
        declined: Why there is no batch.

    """
    entries, pieces, n_bytes = _lay_out(batch)
    described = {**origin.labels(name), "declined": None if declined is None else short_text(declined)}
    header: dict[str, Any] = {
        "__metadata__": {"crc32c": "0" * CHECKSUM_PLACE.size, "headrace": json.dumps(described, separators=(",", ":"))},
        **entries,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    assert text.startswith(_START)
    text = text.ljust(-(-(8 + len(text)) // DATA_ALIGNMENT) * DATA_ALIGNMENT - 8)
    head = bytearray(_LENGTH.pack(len(text)) + text)
    checksum = crc32c(head, 0)
    for piece in pieces:
        checksum = crc32c(piece, checksum)
    begin, size = CHECKSUM_PLACE
    head[begin : begin + size] = b"%08x" % checksum
    return BatchFile([head, *pieces], len(head) + n_bytes)


def _lay_out(batch: Mapping[str, npt.NDArray[Any]]) -> tuple[dict[str, Any], list[Any], int]:
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
        if array.dtype.name not in DTYPES or not array.dtype.isnative:
            raise ValueError(f"{name} has the dtype {array.dtype}, which a prepared batch cannot hold")
        pad(TENSOR_ALIGNMENT)
        entries[name] = {
            "dtype": DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [end, end + array.nbytes],
        }
        if array.size:
            pieces.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        end += array.nbytes
    pad(DATA_ALIGNMENT)  # direct writes need complete blocks
    return entries, pieces, end


class _FileLayout(NamedTuple):
    n_bytes: int
    tensors: list[tuple[str, tuple[int, ...], np.dtype[Any], int]]
    """Name, shape, dtype, and offset in the file."""


class Unpacker:
    """Checks files in memory and returns their arrays as views. For one thread at a time.

    The headers of one stretch differ only in the batch number and the checksum. So the last header is kept, and an
    equal one is not parsed again: that would cost 0.1 ms.
    """

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._last: tuple[BatchName, bytes, _FileLayout] | None = None

    def unpack(
        self, content: npt.NDArray[np.uint8], checksum: int, name: BatchName, path: Any, limits: Limits = LIMITS
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of a file. `checksum` was computed with `CHECKSUM_PLACE` as zeros.

        Raises:
            BadPreparedBatch: It is damaged or forged, belongs to another run or recipe, is another batch than
                requested, or is empty because the offload worker could not make it.

        """
        text = _checked_header(content, checksum, path, limits)
        layout = self._layout(text, content.nbytes, name, path)
        return {name: np.ndarray(shape, dtype, content.data, offset) for name, shape, dtype, offset in layout.tensors}

    def _layout(self, text: bytes, n_bytes: int, name: BatchName, path: Any) -> _FileLayout:
        number = b'\\"number\\":%d,' % name.number
        rest = text.rstrip(b" ").replace(number, b"", 1)
        stretch = name._replace(number=0)
        if self._last is not None and self._last[:2] == (stretch, rest) and self._last[2].n_bytes == n_bytes:
            return self._last[2]
        layout = _parse_header(text, n_bytes, self._origin.labels(name), path)
        self._last = (stretch, rest, layout) if number in text else None
        return layout


def _checked_header(content: npt.NDArray[np.uint8], checksum: int, path: Any, limits: Limits) -> bytes:
    """Return the text of the header after the checksum."""
    n_bytes = content.nbytes
    if n_bytes < DATA_ALIGNMENT:
        raise bad_batch("damaged", f"{path}: {n_bytes} bytes, too few for a prepared batch: it is truncated")
    (length,) = _LENGTH.unpack_from(content.data)
    if length > limits.header_bytes or 8 + length > n_bytes or (8 + length) % DATA_ALIGNMENT:
        raise bad_batch(
            "damaged", f"{path}: a header of {length} bytes in a file of {n_bytes}: it is truncated or damaged"
        )
    text = content[8 : 8 + length].tobytes()
    if not text.startswith(_START):
        raise bad_batch("foreign", f"{path}: the header does not begin like that of a prepared batch")
    stated, found = text[len(_START) : len(_START) + CHECKSUM_PLACE.size], b"%08x" % checksum
    if stated != found:
        raise bad_batch("damaged", f"{path}: the checksum must be {stated!r}; found {found.decode()}: it is damaged")
    return text[len(_START) + CHECKSUM_PLACE.size :]


def _parse_header(text: bytes, n_bytes: int, expected: dict[str, Any], path: Any) -> _FileLayout:
    """Parse a header and check that it is that of the requested batch."""
    try:
        header = parse_object(_START + b"0" * CHECKSUM_PLACE.size + text)
        described = parse_object(header["__metadata__"]["headrace"])
        labels = {label: described[label] for label in expected}
        declined = described.get("declined")
    except MALFORMED as error:
        raise bad_batch(
            "foreign", f"{path}: not a batch of Headrace, though its checksum is right ({_error_text(error)})"
        ) from None
    if labels["version"] != VERSION:
        found = show(labels["version"])
        raise bad_batch(
            "foreign", f"{path}: version {found}; this Headrace reads {VERSION}: use the same Headrace on both sides"
        )
    for label, value in expected.items():
        if type(labels[label]) is not type(value) or labels[label] != value:
            raise bad_batch("foreign", f"{path}: {label} must be {value!r}; found {show(labels[label])}")
    if declined is not None:
        raise bad_batch("declined", f"{path}: the offload worker could not make it: {short_text(str(declined))}")
    data = 8 + len(_START) + CHECKSUM_PLACE.size + len(text)
    try:
        return _FileLayout(n_bytes, _parse_tensors(header, data, n_bytes))
    except MALFORMED as error:
        raise bad_batch("foreign", f"{path}: its tensors do not fit the file ({_error_text(error)})") from None


def _parse_tensors(
    header: dict[str, Any], data: int, n_bytes: int
) -> list[tuple[str, tuple[int, ...], np.dtype[Any], int]]:
    """Return the tensors of a file whose data begins at `data`; with the padding they must cover it exactly."""
    found, spans = [], []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (check_integer(name, offset, 0, n_bytes - data) for offset in entry["data_offsets"])
        shape = tuple(check_integer(name, side, 0, n_bytes) for side in entry["shape"])
        dtype = NAMES[entry["dtype"]]
        if len(shape) > MAX_DIMENSIONS or end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{name}, {dtype} of shape {shape[:MAX_DIMENSIONS]}, has {end - begin} bytes")
        spans.append((begin, end))
        if not name.startswith(PADDING):
            if begin % TENSOR_ALIGNMENT:
                raise ValueError(f"the offset of {name} must be a multiple of {TENSOR_ALIGNMENT}; found {begin}")
            found.append((name, shape, dtype, data + begin))
    reached = 0
    for begin, end in sorted(spans):
        if begin != reached:
            raise ValueError(f"tensors overlap, or leave a hole, at byte {min(begin, reached)} of the data")
        reached = end
    if reached != n_bytes - data:
        raise ValueError(f"tensors end at byte {reached} of {n_bytes - data}")
    return found


def _error_text(error: BaseException) -> str:
    return short_text(f"{type(error).__name__}: {error}")


def bad_batch(kind: str, message: str) -> BadPreparedBatch:
    """Return the error for a batch that cannot be used."""
    error = BadPreparedBatch(f"{message}; the host makes this batch itself")
    error.kind = kind
    return error


# What a batch must contain.


def name_arrays(stacks: Mapping[str, Stack], rows: Rows) -> dict[str, npt.NDArray[Any]]:
    """Name each array of a batch. Images of different shapes are one tensor each: `image.0`, `image.1` and so on."""
    arrays: dict[str, npt.NDArray[Any]] = {ROWS_TENSOR: rows}
    for field, stack in stacks.items():
        if isinstance(stack, list):
            arrays.update({f"{field}.{at}": array for at, array in enumerate(stack)})
        else:
            arrays[field] = stack
    return arrays


class SampleShape(NamedTuple):
    """Shape and dtype of the pixels of one sample, all views included."""

    sides: tuple[int, ...]
    dtype: str
    n_bytes: int


class BatchShape:
    """The shapes of the pixel fields of one batch."""

    def __init__(self, rows: Rows, fields: Mapping[str, list[SampleShape]]) -> None:
        self._rows, self._fields = rows, fields
        self.n_bytes = sum(shape.n_bytes for shapes in fields.values() for shape in shapes)
        """Of its pixels."""
        self.limits = Limits.of(rows.nbytes + self.n_bytes, 1 + sum(map(len, fields.values())))
        """Of its file."""

    def stacked(self, arrays: Mapping[str, npt.NDArray[Any]]) -> list[Stack]:
        """Return the fields of a prepared batch; ValueError if its rows, shapes or dtypes are not those expected."""
        rows = arrays.get(ROWS_TENSOR)
        if rows is None or rows.dtype != self._rows.dtype or not np.array_equal(rows, self._rows):
            raise ValueError("its rows are not those of this batch")
        return [self._field(name, shapes, arrays) for name, shapes in self._fields.items()]

    def _field(self, name: str, shapes: list[SampleShape], arrays: Mapping[str, npt.NDArray[Any]]) -> Stack:
        first = shapes[0]
        if all(shape is first or shape == first for shape in shapes):
            return _checked_array(arrays, name, (len(shapes), *first.sides), first.dtype)
        return [_checked_array(arrays, f"{name}.{at}", shape.sides, shape.dtype) for at, shape in enumerate(shapes)]


def _checked_array(
    arrays: Mapping[str, npt.NDArray[Any]], name: str, sides: tuple[int, ...], dtype: str
) -> npt.NDArray[Any]:
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
        self._gather, self._views = dataset.gather, compiled.views
        types = dataset.fields
        self._transforms = {name: compiled.mask if types[name] == "mask" else compiled.image for name in names}
        self._max_pixels = compiled.max_pixels
        self._cached: dict[tuple[str, int, int, int, int, int], SampleShape] = {}

    def of(self, rows: Rows) -> BatchShape | None:
        """Return the shape of the batch of these rows; None if a sample cannot be transformed.

        It is also None for an image of more than `max_pixels`, which may fail or not, depending on its crop.
        """
        try:
            return BatchShape(rows, {name: self._field(name, rows) for name in self._transforms})
        except HeadraceError:
            return None

    def _field(self, name: str, rows: Rows) -> list[SampleShape]:
        columns = self._gather.pixel_columns(name, 0, rows)
        stored = (columns[part].tolist() for part in ("height", "width", "channels", "dtype", "format"))
        return [self._shape(name, *each) for each in zip(*stored, strict=True)]

    def _shape(self, name: str, height: int, width: int, channels: int, dtype: int, form: int) -> SampleShape:
        key = (name, height, width, channels, dtype, form)
        found = self._cached.get(key)
        if found is None:
            if height * width > self._max_pixels or dtype not in DTYPE_NAMES:
                raise ImageTooLarge(f"{height} x {width} pixels of dtype code {dtype}")
            has_color = channels in (2, 4) and (dtype in COLOR_DTYPE_CODES or form in DEFINES_COLOR)
            sides, made = self._transforms[name].shape(
                height, width, channels, DTYPE_NAMES[dtype], seed=0, epoch=0, sample=0, has_color=has_color
            )
            sides = sides if self._views == 1 else (self._views, *sides)
            found = SampleShape(sides, made, math.prod(sides) * np.dtype(made).itemsize)
            if len(self._cached) >= _MAX_CACHED_SHAPES:
                self._cached.clear()
            self._cached[key] = found
        return found
