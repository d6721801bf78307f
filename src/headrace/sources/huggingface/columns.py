# SPDX-License-Identifier: Apache-2.0
"""The fields that columns of an Arrow table become: for Parquet files, and for datasets of Hugging Face.

An image column is a struct of `bytes` and `path`, or binary whose values are image files. Integers and booleans become
int64, floats float32 (doubles are rounded), text str, and flat lists of these become lists. Lists of a fixed size,
nested or not, and Hugging Face's Array2D to Array5D are tensors, with every bit. Other nested values and dates become
JSON text. Class names are read from the Hugging Face schema, if there is one.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import BadSource
from headrace.sources._types import MAX_FILE_BYTES, encoded, field_name
from headrace.tensors import DTYPES, TensorType, is_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    import pyarrow as pa

_ARRAY = re.compile("Array[2-5]D")
_MASK_WORDS = ("mask", "seg", "annotation", "label")


def read_features(schema: pa.Schema) -> dict[str, Any]:
    """Return the Hugging Face features by column; empty if the file has none that are valid."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def class_names(features: dict[str, Any]) -> tuple[str, ...] | None:
    """Return the names of the ClassLabel column; None if there are several, because their labels differ in meaning."""
    found = [f["names"] for f in features.values() if isinstance(f, dict) and isinstance(f.get("names"), list)]
    return tuple(map(str, found[0])) if len(found) == 1 else None


def table_columns(
    path: str, schema: pa.Schema, features: dict[str, Any], holds_images: Callable[[str], bool]
) -> dict[str, tuple[str, str]]:
    """Return field name → column and type. `holds_images` looks at a binary column."""
    found: dict[str, tuple[str, str]] = {}
    for column in schema:
        if column.name.startswith("__index_level_"):
            continue  # pandas' row numbers
        feature = features.get(column.name)
        is_image = isinstance(feature, dict) and feature.get("_type") == "Image"
        name = field_name(column.name)
        if name in found:
            raise BadSource(f"{path} has two columns for the field {name!r}; rename one")
        found[name] = (column.name, _type(path, column, feature, holds_images, is_image=is_image))
    return found


def _type(path: str, column: pa.Field, feature: Any, holds_images: Callable[[str], bool], *, is_image: bool) -> str:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and only Parquet needs it here

    kind = column.type
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    names = {kind.field(i).name for i in range(kind.num_fields)} if pa.types.is_struct(kind) else set()
    if names == {"bytes", "path"} or (is_binary and (is_image or holds_images(column.name))):
        return "mask" if any(word in column.name.lower() for word in _MASK_WORDS) else "image"
    if is_image:
        raise BadSource(
            f"{path}: the image column {column.name!r} must be binary or a struct of bytes and path; it is {kind}"
        )
    if is_binary:
        return "bytes"
    if tensor := _tensor_type(kind, feature):
        return tensor
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = _scalar_type(kind.value_type)
        return f"list<{element}>" if element else "str"
    return _scalar_type(kind) or "str"


def _tensor_type(kind: pa.DataType, feature: Any) -> str | None:
    """Return the type of a column of tensors; None if it has other values."""
    import pyarrow as pa  # noqa: PLC0415 - heavy, and only Parquet needs it here

    shape: list[int] = []
    while pa.types.is_fixed_size_list(kind):
        shape.append(kind.list_size)
        kind = kind.value_type
    dtype = {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(kind), str(kind))
    if isinstance(feature, dict) and _ARRAY.fullmatch(str(feature.get("_type"))):
        dtype, shape = str(feature.get("dtype")), list(feature.get("shape") or ())
        if not all(isinstance(side, int) for side in shape):
            return None  # the first side may vary
    try:
        return str(TensorType.of(dtype, tuple(shape))) if shape else None
    except ValueError:
        return None


def _numbers(value: Any, kind: str, where: str) -> npt.NDArray[Any]:
    """Return the numbers of nested lists as a tensor of this type."""
    wanted = TensorType.parse(kind)
    try:
        numbers = np.array(value, DTYPES[wanted.dtype])
    except (TypeError, ValueError, OverflowError) as error:
        raise BadSource(f"{where}, must be {wanted}: {error}") from None
    if numbers.shape != wanted.shape:
        raise BadSource(f"{where}, must have the shape {list(wanted.shape)}; got {list(numbers.shape)}")
    return numbers


def _scalar_type(kind: pa.DataType) -> str | None:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and only Parquet needs it here

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "int64"
    if pa.types.is_floating(kind):
        return "float32"
    return "str" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None


def read_value(scalar: pa.Scalar[Any], kind: str, where: str) -> object:
    if not scalar.is_valid:
        raise BadSource(f"{where}, must not be null: every sample needs every field")
    if kind in ("image", "mask"):
        return encoded(_image_bytes(scalar, where), where)
    value = scalar.as_py()
    if kind == "int64":
        if not -(2**63) <= value < 2**63:
            raise BadSource(f"{where}, must fit in 64 bits; got {value}")
        return int(value)
    if kind == "str" and not isinstance(value, str):
        return json.dumps(value, default=str, ensure_ascii=False)
    if is_tensor(kind):
        return _numbers(value, kind, where)
    if kind.startswith("list<") and None in value:
        raise BadSource(f"{where}, must not contain null")
    if kind == "list<int64>":
        return [int(number) for number in value]
    return value


def _image_bytes(scalar: pa.Scalar[Any], where: str) -> memoryview:
    value = scalar["bytes"] if hasattr(scalar, "keys") else scalar
    if not value.is_valid:
        raise BadSource(f"{where}, must contain the bytes of the image; it has only a path, and paths are not read")
    contents = memoryview(value.as_buffer())
    if len(contents) > MAX_FILE_BYTES:
        raise BadSource(f"{where}, has {len(contents)} bytes; an image file must have at most {MAX_FILE_BYTES}")
    return contents


def describe_columns(found: dict[str, tuple[str, str]]) -> str:
    return ", ".join(f"{column}: {kind}" for column, kind in found.values())
