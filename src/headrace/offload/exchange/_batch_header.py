# SPDX-License-Identifier: Apache-2.0
"""The header of a prepared batch's file: its form, and the checks of a header that was not seen before.

The checksum protects against damage, not against a forged file. So every number of the header is checked before it is
used, and the host compares rows, shapes and dtypes with those that its own index and transform lead to.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from headrace.errors import BadPreparedBatch
from headrace.offload.exchange._documents import MALFORMED, parse_object, short_text, show
from headrace.offload.exchange._names import VERSION

DATA_ALIGNMENT = 4096
TENSOR_ALIGNMENT = 64
PADDING = "_padding."
MAX_DIMENSIONS = 8
START = b'{"__metadata__":{"crc32c":"'

NAMES = {
    "BOOL": np.dtype(np.bool_),
    **{f"U{8 * size}": np.dtype(f"u{size}") for size in (1, 2, 4, 8)},
    **{f"I{8 * size}": np.dtype(f"i{size}") for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": np.dtype(f"f{size}") for size in (2, 4, 8)},
}
"""The dtypes of safetensors that a batch can have, by their names there."""
DTYPES = {dtype: name for name, dtype in NAMES.items()}


class ChecksumPlace(NamedTuple):
    """Where a file has its own checksum, whose digits count as zeros."""

    begin: int
    size: int


CHECKSUM_PLACE = ChecksumPlace(8 + len(START), 8)


class FileLayout(NamedTuple):
    """The tensors of a file."""

    n_bytes: int
    tensors: list[tuple[str, tuple[int, ...], np.dtype[Any], int]]
    """Name, shape, dtype, and offset in the file."""


def parse_header(text: bytes, n_bytes: int, expected: dict[str, Any], path: Any) -> FileLayout:
    """Parse a header and check that it is that of the requested batch."""
    try:
        header = parse_object(START + b"0" * CHECKSUM_PLACE.size + text)
        described = parse_object(header["__metadata__"]["headrace"])
        labels = {label: described[label] for label in expected}
        declined = described.get("declined")
    except MALFORMED as error:
        raise bad_batch(
            "foreign",
            f"{path}: the header must be that of a prepared batch ({_error_text(error)})",
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
    data = 8 + len(START) + CHECKSUM_PLACE.size + len(text)
    try:
        return FileLayout(n_bytes, _parse_tensors(header, data, n_bytes))
    except MALFORMED as error:
        raise bad_batch("foreign", f"{path}: its tensors must cover the file exactly ({_error_text(error)})") from None


def _parse_tensors(
    header: dict[str, Any], data: int, n_bytes: int
) -> list[tuple[str, tuple[int, ...], np.dtype[Any], int]]:
    """Return the tensors of a file whose data begins at `data`; with the padding they must cover it exactly."""
    found, spans = [], []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (_size(name, offset, n_bytes - data) for offset in entry["data_offsets"])
        shape = tuple(_size(name, side, n_bytes) for side in entry["shape"])
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


def _size(name: str, value: Any, limit: int) -> int:
    if type(value) is not int or not 0 <= value <= limit:
        raise ValueError(f"a size of {name} must be an integer in [0, {limit}]; found {show(value)}")
    return value


def _error_text(error: BaseException) -> str:
    return short_text(f"{type(error).__name__}: {error}")


def bad_batch(kind: str, message: str) -> BadPreparedBatch:
    """Return the error for a batch that cannot be used."""
    error = BadPreparedBatch(message)
    error.kind = kind
    return error
