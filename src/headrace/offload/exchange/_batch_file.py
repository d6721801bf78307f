# SPDX-License-Identifier: Apache-2.0
"""A prepared batch as one safetensors file, laid out for direct reads and summed as a whole (spec/exchange.md §4).

The header is padded with spaces so that the data begins at a multiple of 4096, each tensor at a multiple of 64, the
largest first; what lies between, and behind the last up to a multiple of 4096, is indexed as `_padding.N`, because
safetensors knows no holes. One checksum covers the file from its first byte to its last, its own eight digits taken for
zeros. Any reader of safetensors can open it.

A batch is its tensors by their names, and nothing else. The file is a claim: a checksum guards against damage, not
against somebody who has computed it over a forged file. So every number of the header is checked before it is used.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.errors import BadPreparedBatch
from headrace.offload._untrusted import MALFORMED, briefly, integer, parse_object, printable
from headrace.offload.exchange._names import VERSION, BatchName, Origin
from headrace.records.checksum import crc32c, to_hex

DATA_ALIGNMENT = 4096
TENSOR_ALIGNMENT = 64
PADDING = "_padding."
MAX_DIMENSIONS = 8

# The names that safetensors has for dtypes.
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
NAMES = {name: np.dtype(dtype) for dtype, name in DTYPES.items()}

_START = b'{"__metadata__":{"crc32c":"'
_LENGTH = struct.Struct("<Q")


class Blank(NamedTuple):
    """Where a file has its own checksum, whose digits count as zeros in it."""

    begin: int
    size: int


BLANK = Blank(8 + len(_START), 8)


class Limits(NamedTuple):
    """How large a file may be for its reader to consider it. Memory is allocated for no larger one."""

    n_bytes: int
    header_bytes: int

    @classmethod
    def of(cls, data_bytes: int, tensors: int) -> Limits:
        """Return the limits for a batch of so many bytes in so many tensors, with room for padding and labels."""
        header = 16 * DATA_ALIGNMENT + 512 * tensors
        return cls(header + data_bytes + TENSOR_ALIGNMENT * (tensors + 1) + 2 * DATA_ALIGNMENT, header)


LIMITS = Limits(2 << 30, 16 << 20)
"""For readers that do not know what to expect, and the largest batch that an offload worker prepares."""


@dataclass(frozen=True, slots=True)
class BatchFile:
    """The content of a file, as pieces of memory in order."""

    pieces: list[Any]
    n_bytes: int


def pack_batch(
    name: BatchName, origin: Origin, batch: Mapping[str, npt.NDArray[Any]], declined: str | None = None
) -> BatchFile:
    """Lay a batch out and sum it. The arrays are not copied and must stay as they are until they are written.

    Args:
        name: Which batch it is.
        origin: Whose it is and how it was made.
        batch: Arrays by their names; ValueError for a dtype that safetensors does not have.
        declined: Why there is no batch.

    """
    entries, pieces, n_bytes = _lay_out(batch)
    described = {**origin.labels(name), "declined": None if declined is None else printable(declined)}
    header: dict[str, Any] = {
        "__metadata__": {"crc32c": to_hex(0), "headrace": json.dumps(described, separators=(",", ":"))},
        **entries,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    assert text.startswith(_START)
    text = text.ljust(-(-(8 + len(text)) // DATA_ALIGNMENT) * DATA_ALIGNMENT - 8)
    head = bytearray(_LENGTH.pack(len(text)) + text)
    checksum = crc32c(head)
    for piece in pieces:
        checksum = crc32c(piece, checksum)
    head[BLANK.begin : BLANK.begin + BLANK.size] = to_hex(checksum).encode()
    return BatchFile([head, *pieces], len(head) + n_bytes)


def _lay_out(batch: Mapping[str, npt.NDArray[Any]]) -> tuple[dict[str, Any], list[Any], int]:
    """Return the header's entries, the pieces of the data and its length."""
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
            raise ValueError(f"a tensor of a prepared batch cannot be called {name!r}")
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
    pad(DATA_ALIGNMENT)  # direct writes are of whole blocks
    return entries, pieces, end


class _Layout(NamedTuple):
    """Where the parts of a batch lie in its file."""

    n_bytes: int
    """Of the file."""
    tensors: list[tuple[str, tuple[int, ...], np.dtype[Any], int]]
    """Name, shape, dtype, and offset in the file."""


class Unpacker:
    """Checks files that were read, and gives their batches on the same memory. For one thread at a time.

    Headers of one stretch differ in the number of their batch and in the sum, and in nothing else. So the last one is
    kept, and one that equals it is not taken apart: in code that is in no cache that would cost 0.1 ms.
    """

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._last: tuple[BatchName, bytes, _Layout] | None = None

    def unpack(
        self, content: npt.NDArray[np.uint8], checksum: int, name: BatchName, path: Any, limits: Limits = LIMITS
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the batch of a file with this checksum, its own eight digits taken for zeros (`BLANK`).

        Raises:
            BadPreparedBatch: It is damaged or forged, is of another run or recipe or is another batch than was asked
                for, or holds none because the offload worker could not make it.

        """
        text = _checked_header(content, checksum, path, limits)
        layout = self._layout(text, content.nbytes, name, path)
        return {name: np.ndarray(shape, dtype, content.data, offset) for name, shape, dtype, offset in layout.tensors}

    def _layout(self, text: bytes, n_bytes: int, name: BatchName, path: Any) -> _Layout:
        number = b'\\"number\\":%d,' % name.number
        rest = text.rstrip(b" ").replace(number, b"", 1)
        of = name._replace(number=0)
        if self._last is not None and self._last[:2] == (of, rest) and self._last[2].n_bytes == n_bytes:
            return self._last[2]
        layout = _parsed(text, n_bytes, self._origin.labels(name), path)
        self._last = (of, rest, layout) if number in text else None
        return layout


def _checked_header(content: npt.NDArray[np.uint8], checksum: int, path: Any, limits: Limits) -> bytes:
    """Return the text of the header."""
    n_bytes = content.nbytes
    if n_bytes < DATA_ALIGNMENT:
        raise bad("damaged", f"{path}: {n_bytes} bytes, too few for a prepared batch: it is truncated")
    (length,) = _LENGTH.unpack_from(content.data)
    if length > limits.header_bytes or 8 + length > n_bytes or (8 + length) % DATA_ALIGNMENT:
        raise bad("damaged", f"{path}: a header of {length} bytes in a file of {n_bytes}: it is truncated or damaged")
    text = content[8 : 8 + length].tobytes()
    if not text.startswith(_START):
        raise bad("foreign", f"{path}: its header does not begin as that of a prepared batch does")
    stated, found = text[len(_START) : len(_START) + BLANK.size], to_hex(checksum).encode()
    if stated != found:
        raise bad("damaged", f"{path}: the checksum is {found.decode()}, and {stated!r} is stated: it is damaged")
    return text[len(_START) + BLANK.size :]


def _parsed(text: bytes, n_bytes: int, expected: dict[str, Any], path: Any) -> _Layout:
    """Take a header apart, and see that it is that of the batch that was asked for."""
    try:
        header = parse_object(_START + to_hex(0).encode() + text)
        described = parse_object(header["__metadata__"]["headrace"])
        labels = {label: described[label] for label in expected}
        declined = described.get("declined")
    except MALFORMED as error:
        raise bad(
            "foreign", f"{path}: not a batch of Headrace, though its checksum is right ({_shown(error)})"
        ) from None
    if labels["version"] != VERSION:
        found = briefly(labels["version"])
        raise bad("foreign", f"{path}: version {found}; this Headrace reads {VERSION}: use one on both sides")
    for label, value in expected.items():
        if type(labels[label]) is not type(value) or labels[label] != value:
            raise bad("foreign", f"{path}: {label} is {briefly(labels[label])}, and {value!r} was asked for")
    if declined is not None:
        raise bad("declined", f"{path}: the offload worker could not make it: {printable(str(declined))}")
    data = 8 + len(_START) + BLANK.size + len(text)
    try:
        return _Layout(n_bytes, _tensors(header, data, n_bytes))
    except MALFORMED as error:
        raise bad("foreign", f"{path}: its parts do not fit together ({_shown(error)})") from None


def _tensors(header: dict[str, Any], data: int, n_bytes: int) -> list[tuple[str, tuple[int, ...], np.dtype[Any], int]]:
    """Return the tensors of a layout whose data begins at `data`; they and the padding must cover it exactly."""
    found, spans = [], []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (integer(name, offset, 0, n_bytes - data) for offset in entry["data_offsets"])
        shape = tuple(integer(name, side, 0, n_bytes) for side in entry["shape"])
        dtype = NAMES[entry["dtype"]]
        if len(shape) > MAX_DIMENSIONS or end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{name}, {dtype} of the shape {shape[:MAX_DIMENSIONS]}, has {end - begin} bytes")
        spans.append((begin, end))
        if not name.startswith(PADDING):
            if begin % TENSOR_ALIGNMENT:
                raise ValueError(f"{name} lies at {begin}, which is not a multiple of {TENSOR_ALIGNMENT}")
            found.append((name, shape, dtype, data + begin))
    reached = 0
    for begin, end in sorted(spans):
        if begin != reached:
            raise ValueError(f"tensors overlap, or leave a hole, at byte {min(begin, reached)} of the data")
        reached = end
    if reached != n_bytes - data:
        raise ValueError(f"tensors end at byte {reached} of {n_bytes - data}")
    return found


def _shown(error: BaseException) -> str:
    return printable(f"{type(error).__name__}: {error}")


def bad(kind: str, message: str) -> BadPreparedBatch:
    """Make the error for a batch that cannot be used."""
    error = BadPreparedBatch(f"{message}; the host makes this batch itself")
    error.kind = kind
    return error
