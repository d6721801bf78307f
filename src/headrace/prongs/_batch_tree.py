# SPDX-License-Identifier: Apache-2.0
"""A batch as a few tensors and a piece of JSON that says how they hang together.

Arrays become tensors under their own names. Lists of arrays of one dtype, as those of images that differ in size,
become one flat tensor, with the shapes in the JSON. Text and numbers go into the JSON itself. Nothing is copied: a
tensor to be written is a list of the pieces of memory that it lies in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.records import Boxes

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


@dataclass(slots=True)
class Tensor:
    """A tensor to be written: its pieces, back to back, are its content."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: list[npt.NDArray[Any]]

    @property
    def n_bytes(self) -> int:
        return sum(piece.nbytes for piece in self.pieces)


def pack_tree(tree: Any) -> tuple[Any, list[Tensor]]:
    """Take a batch apart. ValueError names what a prepared batch cannot hold."""
    tensors: list[Tensor] = []
    return _pack(tree, "", tensors), tensors


def unpack_tree(description: Any, tensors: dict[str, npt.NDArray[Any]]) -> Any:
    """Put a batch together again, on the tensors' own memory."""
    ((kind, value),) = description.items()
    if kind in ("json", "tensor"):
        return value if kind == "json" else tensors[value]
    if kind == "arrays":
        return _cut(tensors[value["tensor"]], value["shapes"])
    if kind == "dict":
        return {name: unpack_tree(part, tensors) for name, part in value.items()}
    if kind in ("only", "bytes"):
        parts = unpack_tree(value, tensors)
        return parts[0] if kind == "only" else [piece.tobytes() for piece in parts]
    parts = [unpack_tree(part, tensors) for part in value]
    if kind == "boxes":
        return [Boxes(*pair) for pair in zip(*parts, strict=True)]
    return {"list": list, "tuple": tuple}[kind](parts)


def _cut(flat: npt.NDArray[Any], shapes: list[list[int]]) -> list[npt.NDArray[Any]]:
    arrays, begin = [], 0
    for shape in shapes:
        end = begin + int(np.prod(shape, dtype=np.int64))
        arrays.append(flat[begin:end].reshape(shape))
        begin = end
    return arrays


def _pack(value: Any, path: str, tensors: list[Tensor]) -> dict[str, Any]:
    if isinstance(value, np.ndarray):
        tensors.append(Tensor(path or "batch", _known(value, path), value.shape, [np.ascontiguousarray(value)]))
        return {"tensor": tensors[-1].name}
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise ValueError(f"{path or 'the batch'} has names that are no text: {list(value)[:4]}")
        return {
            "dict": {name: _pack(part, f"{path}.{name}" if path else name, tensors) for name, part in value.items()}
        }
    if isinstance(value, list):
        return _pack_list(value, path, tensors)
    if isinstance(value, (bytes, Boxes)):
        return {"only": _pack_list([value], path, tensors)}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return {"tuple": [_pack(part, f"{path}.{at}", tensors) for at, part in enumerate(value)]}
    if _is_plain(value):
        return {"json": value}
    raise ValueError(f"{path or 'the batch'} is a {type(value).__name__}, which a prepared batch cannot hold")


def _pack_list(values: list[Any], path: str, tensors: list[Tensor]) -> dict[str, Any]:
    if not values or all(_is_plain(value) for value in values):
        return {"json": values}
    if all(isinstance(value, Boxes) for value in values):
        parts = [[box.xyxy for box in values], [box.labels for box in values]]
        names = (f"{path}.xyxy", f"{path}.labels")
        return {"boxes": [_pack_list(part, name, tensors) for part, name in zip(parts, names, strict=True)]}
    if all(isinstance(value, bytes) for value in values):
        return {"bytes": _pack_list([np.frombuffer(value, np.uint8) for value in values], path, tensors)}
    if all(isinstance(value, np.ndarray) and value.dtype == values[0].dtype for value in values):
        pieces = [np.ascontiguousarray(value) for value in values]
        size = sum(piece.size for piece in pieces)
        tensors.append(Tensor(path or "batch", _known(values[0], path), (size,), pieces))
        return {"arrays": {"tensor": tensors[-1].name, "shapes": [list(value.shape) for value in values]}}
    return {"list": [_pack(value, f"{path}.{at}", tensors) for at, value in enumerate(values)]}


def _is_plain(value: Any) -> bool:
    """Whether JSON gives it back as it is."""
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    return value is None or type(value) in (str, bool, int, float)


def _known(array: npt.NDArray[Any], path: str) -> np.dtype[Any]:
    if array.dtype.name not in DTYPES or not array.dtype.isnative:
        raise ValueError(f"{path or 'the batch'} has the dtype {array.dtype}, which a prepared batch cannot hold")
    return array.dtype
