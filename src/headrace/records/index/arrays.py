# SPDX-License-Identifier: Apache-2.0
"""Convert values to Arrow arrays and Arrow arrays to NumPy, through their buffers.

`pyarrow.array` and `to_numpy` import pandas if it is installed, which takes 0.25 s in every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.records.schema import NUMBERS


def make_array(kind: str, values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array:
    """Return an array of one of the kinds of `schema.columns`, without nulls."""
    if kind in NUMBERS:
        return from_numpy(np.array(values, NUMBERS[kind]), arrow_type)
    if kind == "boxes":
        corners = np.concatenate([np.zeros((0, 4), np.float32), *values]).reshape(-1)
        numbers = from_numpy(corners, pa.float32())
        boxes = pa.FixedSizeListArray.from_arrays(numbers, type=arrow_type.value_type)
        return pa.LargeListArray.from_arrays(_offsets(values), boxes, type=arrow_type)
    if kind.startswith("list<"):
        items = make_array(kind[5:-1], list(chain.from_iterable(values)), arrow_type.value_type)
        return pa.LargeListArray.from_arrays(_offsets(values), items, type=arrow_type)
    encoded = [value.encode() for value in values] if kind == "str" else values
    buffers = [None, _offsets(encoded).buffers()[1], pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(arrow_type, len(values), buffers)


def from_numpy(array: npt.NDArray[Any], arrow_type: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(arrow_type, len(array), [None, pa.py_buffer(np.ascontiguousarray(array))])


def _offsets(values: Sequence[Any]) -> pa.Array:
    ends = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in values], out=ends[1:])
    return from_numpy(ends, pa.int64())


def to_numpy(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return a view of an array of numbers. Several chunks are copied into one array."""
    if isinstance(array, pa.ChunkedArray):
        parts = [to_numpy(chunk) for chunk in array.chunks]
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, _dtype(array.type)), *parts])
    dtype = _dtype(array.type)
    if not len(array):
        return np.zeros(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def _dtype(arrow_type: pa.DataType) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(arrow_type.to_pandas_dtype())
    return dtype
