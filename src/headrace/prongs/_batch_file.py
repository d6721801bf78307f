# SPDX-License-Identifier: Apache-2.0
"""A prepared batch as one safetensors file, laid out for direct reads and summed as a whole (spec/exchange.md §4).

The header is padded with spaces so that the data begins at a multiple of 4096, each tensor at a multiple of 64, the
largest first; what lies between, and behind the last up to a multiple of 4096, is indexed as `_padding.N`, because
safetensors knows no holes. One checksum covers the file from its first byte to its last, its own eight digits taken for
zeros. Any reader of safetensors can open it.
"""

from __future__ import annotations

import json
import math
import operator
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.errors import BadPreparedBatch
from headrace.prongs._batch_tree import DTYPES, NAMES, Tensor, pack_tree, unpack_tree
from headrace.prongs._exchange import VERSION, BatchName, Origin
from headrace.records._checksum import crc32c, to_hex

DATA_ALIGNMENT = 4096
TENSOR_ALIGNMENT = 64
PADDING = "_padding."
MOST_HEADER_BYTES = 100_000_000
"""What safetensors itself allows."""

_START = b'{"__metadata__":{"crc32c":"'
_LENGTH = struct.Struct("<Q")


class Blank(NamedTuple):
    """Where a file has its own checksum, whose digits count as zeros in it."""

    begin: int
    size: int


BLANK = Blank(8 + len(_START), 8)


@dataclass(frozen=True, slots=True)
class BatchFile:
    """The content of a file, as pieces of memory in order."""

    pieces: list[Any]
    n_bytes: int


def pack_batch(name: BatchName, origin: Origin, batch: Any, declined: str | None = None) -> BatchFile:
    """Lay a batch out and sum it. The arrays are not copied and must stay as they are until they are written.

    Args:
        name: Which batch it is.
        origin: Whose it is and how it was made.
        batch: Dicts, lists, arrays, boxes, text and numbers; ValueError for anything else.
        declined: Why there is no batch.

    """
    tree, tensors = pack_tree(batch)
    entries, pieces, n_bytes = _lay_out(tensors)
    described = {**origin.labels(name), "declined": declined, "tree": tree}
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


def _lay_out(tensors: list[Tensor]) -> tuple[dict[str, Any], list[Any], int]:
    """Give the header's entries, the pieces of the data and its length."""
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

    for tensor in sorted(tensors, key=lambda tensor: -tensor.n_bytes):
        pad(TENSOR_ALIGNMENT)
        if tensor.name in entries or tensor.name.startswith(PADDING) or tensor.name == "__metadata__":
            raise ValueError(f"two tensors of a prepared batch would be called {tensor.name!r}")
        entries[tensor.name] = {
            "dtype": DTYPES[tensor.dtype.name],
            "shape": list(tensor.shape),
            "data_offsets": [end, end + tensor.n_bytes],
        }
        pieces.extend(piece.reshape(-1).view(np.uint8).data for piece in tensor.pieces if piece.size)
        end += tensor.n_bytes
    pad(DATA_ALIGNMENT)  # direct writes are of whole blocks
    return entries, pieces, end


class _Layout(NamedTuple):
    """Where the parts of a batch lie in its file."""

    n_bytes: int
    """Of the file."""
    tensors: list[tuple[str, tuple[int, ...], np.dtype[Any], int]]
    """Name, shape, dtype, and offset in the file."""
    tree: Any


class Unpacker:
    """Checks files that were read, and gives their batches on the same memory. For one thread at a time.

    Headers of one stretch differ in the number of their batch and in the sum, and in nothing else. So the last one is
    kept, and one that equals it is not taken apart: in code that is in no cache that would cost 0.1 ms.
    """

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._last: tuple[BatchName, bytes, _Layout] | None = None

    def unpack(self, content: npt.NDArray[np.uint8], checksum: int, name: BatchName, path: Any) -> Any:
        """Give the batch of a file with this checksum, its own eight digits taken for zeros (`BLANK`).

        Raises:
            BadPreparedBatch: It is damaged, is of another run or recipe or is another batch than was asked for, or
                holds none because the near worker could not make it.

        """
        text = _checked_header(content, checksum, path)
        layout = self._layout(text, content.nbytes, name, path)
        try:
            tensors = {
                name: np.ndarray(shape, dtype, content.data, offset) for name, shape, dtype, offset in layout.tensors
            }
            return unpack_tree(layout.tree, tensors)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _unfitting(path, error) from None

    def _layout(self, text: bytes, n_bytes: int, name: BatchName, path: Any) -> _Layout:
        number = b'\\"number\\":%d,' % name.number
        rest = text.rstrip(b" ").replace(number, b"", 1)
        of = name._replace(number=0)
        if self._last is not None and self._last[:2] == (of, rest) and self._last[2].n_bytes == n_bytes:
            return self._last[2]
        layout = _parsed(text, n_bytes, self._origin.labels(name), path)
        self._last = (of, rest, layout) if number in text else None
        return layout


def _checked_header(content: npt.NDArray[np.uint8], checksum: int, path: Any) -> bytes:
    """Give the text of the header."""
    n_bytes = content.nbytes
    if n_bytes < DATA_ALIGNMENT:
        raise bad("damaged", f"{path}: {n_bytes} bytes, too few for a prepared batch: it is truncated")
    (length,) = _LENGTH.unpack_from(content.data)
    if length > MOST_HEADER_BYTES or 8 + length > n_bytes or (8 + length) % DATA_ALIGNMENT:
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
        header = json.loads(_START + to_hex(0).encode() + text)
    except ValueError as error:
        raise bad("foreign", f"{path}: the header is no JSON: {error}") from None
    try:
        described = json.loads(header["__metadata__"]["headrace"])
        labels = {label: described[label] for label in expected}
    except (KeyError, TypeError, ValueError) as error:
        raise bad("foreign", f"{path}: no batch of Headrace's, though its checksum is right ({error!r})") from None
    if labels["version"] != VERSION:
        raise bad(
            "foreign", f"{path}: version {labels['version']!r}; this Headrace reads {VERSION}: use one on both sides"
        )
    for label, value in expected.items():
        if labels[label] != value:
            raise bad("foreign", f"{path}: {label} is {labels[label]!r}, and {value!r} was asked for")
    if described.get("declined") is not None:
        raise bad("declined", f"{path}: the near worker could not make it: {described['declined']}")
    data = 8 + len(_START) + BLANK.size + len(text)
    try:
        return _Layout(n_bytes, list(_tensors(header, data, n_bytes)), described["tree"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unfitting(path, error) from None


def _tensors(
    header: dict[str, Any], data: int, n_bytes: int
) -> Iterator[tuple[str, tuple[int, ...], np.dtype[Any], int]]:
    """Give the tensors of a layout; data begins at `data`."""
    for name, entry in header.items():
        if name != "__metadata__" and not name.startswith(PADDING):
            begin, end = entry["data_offsets"]
            shape, dtype = tuple(map(operator.index, entry["shape"])), NAMES[entry["dtype"]]
            if not 0 <= begin <= end <= n_bytes - data or min(shape, default=0) < 0:
                raise ValueError(f"{name} lies at {begin} to {end} of {n_bytes - data} bytes")
            if end - begin != math.prod(shape) * dtype.itemsize:
                raise ValueError(f"{name}, {dtype} of the shape {shape}, has {end - begin} bytes")
            yield name, shape, dtype, data + begin


def _unfitting(path: Any, error: Exception) -> BadPreparedBatch:
    return bad("foreign", f"{path}: its parts do not fit together ({error!r})")


def bad(kind: str, message: str) -> BadPreparedBatch:
    """Make the error for a batch that cannot be used."""
    error = BadPreparedBatch(f"{message}; the host makes this batch itself")
    error.kind = kind
    return error
