# SPDX-License-Identifier: Apache-2.0
"""A prepared batch as one safetensors file, laid out for direct reads and summed as a whole (spec/exchange.md §4).

The header is padded with spaces so that the data begins at a multiple of 4096, each tensor at a multiple of 64, the
largest first; what lies between, and behind the last up to a multiple of 4096, is indexed as `_padding.N`, because
safetensors knows no holes. One checksum covers the file from its first byte to its last, its own eight digits taken for
zeros. Any reader of safetensors can open it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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
_SUM = slice(8 + len(_START), 8 + len(_START) + 8)
_LENGTH = struct.Struct("<Q")


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
    head[_SUM] = to_hex(checksum).encode()
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


def unpack_batch(content: npt.NDArray[np.uint8], name: BatchName, origin: Origin, path: Any) -> Any:
    """Check a file that has been read and give its batch, on the same memory.

    Raises:
        BadPreparedBatch: It is damaged, is of another run or recipe or is another batch than was asked for, or holds
            none because the near worker could not make it.

    """
    header = _checked_header(content, path)
    try:
        described = json.loads(header["__metadata__"]["headrace"])
        labels = {label: described[label] for label in ("version", *Origin._fields, *BatchName._fields)}
    except (KeyError, TypeError, ValueError) as error:
        raise bad("foreign", f"{path}: no batch of Headrace's, though its checksum is right ({error!r})") from None
    expected = origin.labels(name)
    if labels["version"] != VERSION:
        raise bad(
            "foreign", f"{path}: version {labels['version']!r}; this Headrace reads {VERSION}: use one on both sides"
        )
    for label, value in expected.items():
        if labels[label] != value:
            raise bad("foreign", f"{path}: {label} is {labels[label]!r}, and {value!r} was asked for")
    if described.get("declined") is not None:
        raise bad("declined", f"{path}: the near worker could not make it: {described['declined']}")
    data = content[8 + _LENGTH.unpack_from(content.data)[0] :]
    try:
        tensors = dict(_tensors(header, data))
        return unpack_tree(described["tree"], tensors)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise bad("foreign", f"{path}: its parts do not fit together ({error!r})") from None


def _checked_header(content: npt.NDArray[np.uint8], path: Any) -> dict[str, Any]:
    n_bytes = content.nbytes
    if n_bytes < DATA_ALIGNMENT:
        raise bad("damaged", f"{path}: {n_bytes} bytes, too few for a prepared batch: it is truncated")
    (length,) = _LENGTH.unpack_from(content.data)
    if length > MOST_HEADER_BYTES or 8 + length > n_bytes or (8 + length) % DATA_ALIGNMENT:
        raise bad("damaged", f"{path}: a header of {length} bytes in a file of {n_bytes}: it is truncated or damaged")
    head = bytearray(content[: 8 + length].data)
    if head[8 : _SUM.start] != _START:
        raise bad("foreign", f"{path}: its header does not begin as that of a prepared batch does")
    stated = bytes(head[_SUM])
    head[_SUM] = to_hex(0).encode()
    found = to_hex(crc32c(content[8 + length :], crc32c(head))).encode()
    if stated != found:
        raise bad("damaged", f"{path}: the checksum is {found.decode()}, and {stated!r} is stated: it is damaged")
    try:
        header = json.loads(bytes(head[8:]))
    except ValueError as error:
        raise bad("foreign", f"{path}: the header is no JSON: {error}") from None
    return dict(header)


def _tensors(header: dict[str, Any], data: npt.NDArray[np.uint8]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    for name, entry in header.items():
        if name != "__metadata__" and not name.startswith(PADDING):
            begin, end = entry["data_offsets"]
            if not 0 <= begin <= end <= data.nbytes:
                raise ValueError(f"{name} lies at {begin} to {end} of {data.nbytes} bytes")
            yield name, data[begin:end].view(NAMES[entry["dtype"]]).reshape(entry["shape"])


def bad(kind: str, message: str) -> BadPreparedBatch:
    """Make the error for a batch that cannot be used."""
    error = BadPreparedBatch(f"{message}; the host makes this batch itself")
    error.kind = kind
    return error
