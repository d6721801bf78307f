# SPDX-License-Identifier: Apache-2.0
"""Parquet with images in a column, as Hugging Face datasets are published.

An image column is a struct of `bytes` and `path`, or binary whose values are image files. Integers and booleans become
int64, floats float32 (doubles are rounded), text str, and flat lists of these become lists. Lists of a fixed size,
nested or not, and Hugging Face's Array2D to Array5D are tensors, with every bit. Other nested values and dates become
JSON text. Class names are read from the Hugging Face schema, if the file has one.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import formats
from headrace.errors import BadSource
from headrace.sources._paths import require_file
from headrace.sources._types import MAX_FILE_BYTES, Item, PerThread, encoded, field_name
from headrace.tensors import DTYPES, TensorType, is_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa
    import pyarrow.parquet as pq

_ROWS_AT_ONCE = 16  # limits memory: a row group may hold gigabytes of images
_READ_AHEAD = 2**20
_MAX_GROUP_ROWS = 2**30  # more is a forged count
_ARRAY = re.compile("Array[2-5]D")
_MASK_WORDS = ("mask", "seg", "annotation", "label")


class ParquetSource:
    """The rows of Parquet files, in the order given. The first intact file determines the columns."""

    kind = "parquet"
    sequential = False

    def __init__(self, paths: Sequence[str | Path]) -> None:
        if not paths:
            raise BadSource("a Parquet source needs at least one file")
        self._paths = tuple(os.fspath(path) for path in paths)
        self._cursor: PerThread[_Cursor] = PerThread()
        self._first, schema = _first_schema(self._paths)
        features = _features(schema)
        self._columns = _columns(self._first, schema, features)
        self.fields = {name: kind for name, (_, kind) in self._columns.items()}
        if not any(kind == "image" or is_tensor(kind) for kind in self.fields.values()):
            raise BadSource(
                f"{self._first} has no column of images or tensors; its columns are {', '.join(schema.names)}"
            )
        self.classes = _class_names(features)

    def items(self) -> Iterator[Item]:
        for number, path in enumerate(self._paths):
            name = Path(path).name
            row = 0
            try:
                for group, (n_rows, n_bytes) in enumerate(self._row_groups(path)):
                    stamp = Path(path).stat().st_mtime_ns
                    for place in range(n_rows):
                        yield Item(f"{name}/{row:09d}", n_bytes // n_rows, (number, group, place), stamp)
                        row += 1
            except (BadSource, OSError) as error:
                yield Item(name, 0, (number, 0, 0), 0, str(error))

    def _row_groups(self, path: str) -> list[tuple[int, int]]:
        """Return the rows and bytes of each row group; raise BadSource if the columns differ from the first file's."""
        with _as_bad_source(path):
            file = _open(path)
            found = _columns(path, file.schema_arrow, _features(file.schema_arrow))
            if found != self._columns:
                raise BadSource(
                    f"{path} has the columns {_describe(found)}, but {self._first} has {_describe(self._columns)}"
                )
            heads = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
            sizes = [(head.num_rows, max(head.total_byte_size, 0)) for head in heads]
        if any(not 0 <= rows <= _MAX_GROUP_ROWS for rows, _ in sizes):
            raise BadSource(f"a row group must have at most {_MAX_GROUP_ROWS} rows; {path} has one of {max(sizes)[0]}")
        return sizes

    def load(self, item: Item) -> dict[str, object]:
        item.check()
        number, group, place = item.locator
        path = self._paths[number]
        cursor = self._cursor.get((path, group), lambda: _Cursor(path, group, [c for c, _ in self._columns.values()]))
        batch, row = cursor.find(place)
        where = f"{path}, row group {group}, row {place}"
        return {
            name: _value(batch.column(column)[row], kind, f"{where}, {column}")
            for name, (column, kind) in self._columns.items()
        }


class _Cursor:
    """Reads the rows of one row group in order, a few at a time; going back starts from the beginning."""

    def __init__(self, path: str, group: int, columns: list[str]) -> None:
        self._path, self._group, self._columns = path, group, columns
        self._restart()

    def _restart(self) -> None:
        self._batches = _open(self._path).iter_batches(
            _ROWS_AT_ONCE, row_groups=[self._group], columns=self._columns, use_threads=False
        )
        self._start, self._batch = 0, None

    def find(self, place: int) -> tuple[pa.RecordBatch, int]:
        """Return the batch with a row of the row group, and the row's index in it."""
        if place < self._start:
            self._restart()
        where = f"{self._path}, row group {self._group},"
        while self._batch is None or place >= self._start + self._batch.num_rows:
            with _as_bad_source(where):
                following = next(self._batches, None)
            if following is None:
                raise BadSource(f"{where} ends before row {place}")
            # Changed together after the read: a batch that cannot be read must not shift the others.
            self._start += self._batch.num_rows if self._batch is not None else 0
            self._batch = following
        return self._batch, place - self._start


def _open(path: str) -> pq.ParquetFile:
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import

    require_file(path)
    with _as_bad_source(path):
        # Buffered: otherwise all images of a row group are read at once.
        return pq.ParquetFile(path, buffer_size=_READ_AHEAD)


def _first_schema(paths: Sequence[str]) -> tuple[str, pa.Schema]:
    """Return the first file that can be opened, and its schema."""
    problem: BadSource | None = None
    for path in paths:
        try:
            with _as_bad_source(path):
                return path, _open(path).schema_arrow
        except BadSource as error:
            problem = problem or error
    raise problem or BadSource("a Parquet source needs at least one file")


@contextmanager
def _as_bad_source(path: str) -> Iterator[None]:
    """Turn any exception that pyarrow raises on damaged metadata into BadSource."""
    try:
        yield
    except BadSource:
        raise
    except Exception as error:
        raise BadSource(f"{path} cannot be read as Parquet: {type(error).__name__}: {error}") from error


def _features(schema: pa.Schema) -> dict[str, Any]:
    """Return the Hugging Face features by column; empty if the file has none that are valid."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def _class_names(features: dict[str, Any]) -> tuple[str, ...] | None:
    """Return the names of the ClassLabel column; None if there are several, because their labels differ in meaning."""
    found = [f["names"] for f in features.values() if isinstance(f, dict) and isinstance(f.get("names"), list)]
    return tuple(map(str, found[0])) if len(found) == 1 else None


def _columns(path: str, schema: pa.Schema, features: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return field name → column and type."""
    columns: dict[str, tuple[str, str]] = {}
    for column in schema:
        if column.name.startswith("__index_level_"):
            continue  # pandas' row numbers
        feature = features.get(column.name)
        is_image = isinstance(feature, dict) and feature.get("_type") == "Image"
        name = field_name(column.name)
        if name in columns:
            raise BadSource(f"{path} has two columns for the field {name!r}; rename one")
        columns[name] = (column.name, _type(path, column, feature, is_image=is_image))
    return columns


def _type(path: str, column: pa.Field, feature: Any, *, is_image: bool) -> str:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and only Parquet needs it here

    kind = column.type
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    names = {kind.field(i).name for i in range(kind.num_fields)} if pa.types.is_struct(kind) else set()
    if names == {"bytes", "path"} or (is_binary and (is_image or _holds_images(path, column.name))):
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


def _holds_images(path: str, column: str) -> bool:
    """Return whether the first value of a binary column is an image file."""
    for batch in _open(path).iter_batches(1, columns=[column], use_threads=False):
        value = batch.column(0)[0]
        return bool(value.is_valid and len(value.as_buffer()) and formats.sniff(value.as_buffer()) is not None)
    return False


def _value(scalar: pa.Scalar[Any], kind: str, where: str) -> object:
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


def _describe(columns: dict[str, tuple[str, str]]) -> str:
    return ", ".join(f"{column}: {kind}" for column, kind in columns.values())
