# SPDX-License-Identifier: Apache-2.0
"""Tensors of a fixed dtype and shape: their types, such as `tensor<float16,[4,64,64]>`, and their bytes.

NumPy has no bfloat16. Where an array of it is asked for, the package ml_dtypes gives it; bytes need no such package.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import MissingExtra

MAX_TENSOR_BYTES = 1 << 30
MAX_SIDES = 8
BFLOAT16 = "bfloat16"
DTYPES = {
    **{f"int{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"uint{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
    **{f"float{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
    BFLOAT16: np.dtype("<u2"),
}
"""The dtypes of tensors; of bfloat16 that of its bits."""

_TYPE = re.compile(r"tensor<(?P<dtype>[a-z]+[0-9]+),\[(?P<shape>[1-9][0-9]{0,9}(,[1-9][0-9]{0,9})*)\]>")


@dataclass(frozen=True, slots=True)
class TensorType:
    """Dtype and shape of the tensors of a field."""

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> TensorType:
        """Return the type that a text such as `tensor<float16,[4,64,64]>` stands for; ValueError if it is not valid."""
        match = _TYPE.fullmatch(text)
        if match is None:
            raise ValueError(f"a tensor's type must be written as in tensor<float16,[4,64,64]>; got {text[:100]!r}")
        return cls.of(match["dtype"], tuple(map(int, match["shape"].split(","))))

    @classmethod
    def of(cls, dtype: str, shape: tuple[int, ...]) -> TensorType:
        """Return a type after checking it."""
        if dtype not in DTYPES:
            raise ValueError(f"a tensor's dtype must be one of {', '.join(DTYPES)}; got {dtype}")
        if not 1 <= len(shape) <= MAX_SIDES or min(shape) < 1:
            raise ValueError(f"a tensor must have 1 to {MAX_SIDES} sides of at least 1; got the shape {list(shape)}")
        n_bytes = math.prod(shape) * DTYPES[dtype].itemsize
        if n_bytes > MAX_TENSOR_BYTES:
            raise ValueError(
                f"a tensor must have at most {MAX_TENSOR_BYTES} bytes; {dtype} {list(shape)} has {n_bytes}"
            )
        return cls(dtype, shape)

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def __str__(self) -> str:
        return f"tensor<{self.dtype},[{','.join(map(str, self.shape))}]>"

    def numbers(self, stored: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Return a view of stored bytes `[…, n_bytes]` as numbers `[…, *shape]`; of bfloat16 as the bits, uint16."""
        return stored.view(DTYPES[self.dtype]).reshape(*stored.shape[:-1], *self.shape)

    def array(self, stored: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Return a view of stored bytes `[…, n_bytes]` as numbers `[…, *shape]`."""
        numbers = self.numbers(stored)
        return numbers.view(bfloat16_dtype()) if self.dtype == BFLOAT16 else numbers

    def pack(self, value: Any) -> memoryview:
        """Return the bytes to store for a value; ValueError if dtype or shape differ. Copies only if it must."""
        found, numbers = tensor_of(value)
        if found != self:
            raise ValueError(
                f"the value must be {self.dtype} {list(self.shape)}; got {found.dtype} {list(found.shape)}"
            )
        numbers = np.ascontiguousarray(numbers, DTYPES[self.dtype])
        return numbers.reshape(-1).view(np.uint8).data


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as its bytes, for code that passes it on."""

    type: TensorType
    data: memoryview

    def array(self) -> npt.NDArray[Any]:
        return self.type.array(np.frombuffer(self.data, np.uint8))


def is_tensor(type_name: str) -> bool:
    """Return whether the type of a field is that of a tensor, valid or not."""
    return type_name.startswith("tensor<")


def tensor_of(value: Any) -> tuple[TensorType, npt.NDArray[Any]]:
    """Return the type and the numbers of an array or tensor of any library; of bfloat16 its bits, as uint16."""
    if isinstance(value, StoredTensor):
        return value.type, value.type.numbers(np.frombuffer(value.data, np.uint8))
    torch = sys.modules.get("torch")  # if it was never imported, this is not one of its tensors
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        if value.dtype == torch.bfloat16:
            return TensorType.of(BFLOAT16, tuple(value.shape)), value.contiguous().view(torch.int16).numpy().view("<u2")
        value = value.numpy()
    array = np.asarray(value)
    if array.dtype.name == BFLOAT16:
        return TensorType.of(BFLOAT16, array.shape), np.ascontiguousarray(array).view("<u2")
    return TensorType.of(array.dtype.name, array.shape), array


def bfloat16_dtype() -> np.dtype[Any]:
    """Return NumPy's dtype for bfloat16; raise MissingExtra without the package that defines it."""
    try:
        ml_dtypes: Any = importlib.import_module("ml_dtypes")
    except ImportError as error:
        raise MissingExtra(
            "NumPy has no bfloat16: pip install 'headrace[tensors]' (ml_dtypes), or use a Loader with output='torch'"
        ) from error
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype
