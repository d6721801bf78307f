# SPDX-License-Identifier: Apache-2.0
"""Parquet with images in a column, as Hugging Face datasets are published.

An image column is a struct of `bytes` and `path`, or binary whose values are image files. Integers and booleans become
int64, floats float32 (doubles are rounded), text str, flat lists of those lists; other nested values and dates become
JSON text. Class names come from the Hugging Face schema, if the file carries one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import formats
from headrace.errors import BadSource
from headrace.sources._local import Local
from headrace.sources._types import MAX_FILE_BYTES, Item, encoded, field_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    import pyarrow.parquet as pq

_ROWS_AT_ONCE = 16  # a batch of images in memory, not a row group of them
_READ_AHEAD = 2**20
_MASK_WORDS = ("mask", "seg", "annotation", "label")


class ParquetSource:
    """The rows of Parquet files, file by file in the order given. The first file says which columns there are."""

    kind = "parquet"
    sequential = False

    def __init__(self, paths: Sequence[str | Path]) -> None:
        if not paths:
            raise BadSource("there is no Parquet file to read")
        self._paths = tuple(os.fspath(path) for path in paths)
        self._cursor: Local[_Cursor] = Local()
        schema = _open(self._paths[0]).schema_arrow
        features = _features(schema)
        self._columns = _columns(self._paths[0], schema, features)
        self._fields = {name: kind for name, (_, kind) in self._columns.items()}
        if "image" not in self._fields.values():
            raise BadSource(f"{self._paths[0]} has no image column; its columns are {', '.join(schema.names)}")
        self._classes = _class_names(features)

    @property
    def fields(self) -> dict[str, str]:
        return self._fields

    @property
    def classes(self) -> tuple[str, ...] | None:
        return self._classes

    def items(self) -> Iterator[Item]:
        for number, path in enumerate(self._paths):
            file = _open(path)
            self._check_columns(path, file.schema_arrow)
            name = Path(path).name
            row = 0
            for group in range(file.metadata.num_row_groups):
                head = file.metadata.row_group(group)
                for place in range(head.num_rows):
                    yield Item(f"{name}/{row:09d}", head.total_byte_size // head.num_rows, (number, group, place))
                    row += 1

    def _check_columns(self, path: str, schema: pa.Schema) -> None:
        """Two files of one dataset have the same columns with the same types."""
        found = _columns(path, schema, _features(schema))
        if found != self._columns:
            raise BadSource(
                f"{path} has the columns {_describe(found)}, and {self._paths[0]} has {_describe(self._columns)}"
            )

    def load(self, item: Item) -> dict[str, object]:
        number, group, place = item.locator
        path = self._paths[number]
        cursor = self._cursor.get((path, group), lambda: _Cursor(path, group, [c for c, _ in self._columns.values()]))
        batch, row = cursor.find(place)
        sample: dict[str, object] = {}
        for name, (column, kind) in self._columns.items():
            sample[name] = _value(batch.column(column)[row], kind, f"{path}, row group {group}, row {place}, {column}")
        return sample


class _Cursor:
    """Steps through the rows of one row group, a few at a time; a step back starts again."""

    def __init__(self, path: str, group: int, columns: list[str]) -> None:
        self._path, self._group, self._columns = path, group, columns
        self._restart()

    def _restart(self) -> None:
        self._batches = _open(self._path).iter_batches(
            _ROWS_AT_ONCE, row_groups=[self._group], columns=self._columns, use_threads=False
        )
        self._start, self._batch = 0, None

    def find(self, place: int) -> tuple[pa.RecordBatch, int]:
        """The batch that holds a row of the row group, and the row's place in it."""
        import pyarrow as pa  # noqa: PLC0415 - heavy, and only Parquet needs it here

        if place < self._start:
            self._restart()
        try:
            while self._batch is None or place >= self._start + self._batch.num_rows:
                self._start += self._batch.num_rows if self._batch is not None else 0
                self._batch = next(self._batches)
        except (pa.ArrowException, OSError) as error:
            raise BadSource(f"{self._path}, row group {self._group}, cannot be read: {error}") from error
        except StopIteration:
            raise BadSource(f"{self._path}, row group {self._group}, ends before row {place}") from None
        return self._batch, place - self._start


def _open(path: str) -> pq.ParquetFile:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and only Parquet needs it here
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        # Buffered: otherwise a whole column of a row group, all its images, is read at once.
        return pq.ParquetFile(path, buffer_size=_READ_AHEAD)
    except (pa.ArrowException, OSError) as error:
        raise BadSource(f"{path} is no Parquet file that can be read: {error}") from error


def _features(schema: pa.Schema) -> dict[str, Any]:
    """The Hugging Face features by column; nothing if the file has none, or has something else in their place."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def _class_names(features: dict[str, Any]) -> tuple[str, ...] | None:
    """The names of the one ClassLabel column; none if there are several, whose labels differ in meaning."""
    found = [f["names"] for f in features.values() if isinstance(f, dict) and isinstance(f.get("names"), list)]
    return tuple(map(str, found[0])) if len(found) == 1 else None


def _columns(path: str, schema: pa.Schema, features: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Field name → column and type."""
    columns: dict[str, tuple[str, str]] = {}
    for column in schema:
        if column.name.startswith("__index_level_"):
            continue  # pandas' row numbers
        feature = features.get(column.name)
        is_image = isinstance(feature, dict) and feature.get("_type") == "Image"
        name = field_name(column.name)
        if name in columns:
            raise BadSource(f"{path} has two columns that make the field {name!r}; rename one")
        columns[name] = (column.name, _type(path, column, is_image=is_image))
    return columns


def _type(path: str, column: pa.Field, *, is_image: bool) -> str:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and only Parquet needs it here

    kind = column.type
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    names = {kind.field(i).name for i in range(kind.num_fields)} if pa.types.is_struct(kind) else set()
    if names == {"bytes", "path"} or (is_binary and (is_image or _holds_images(path, column.name))):
        return "mask" if any(word in column.name.lower() for word in _MASK_WORDS) else "image"
    if is_image:
        raise BadSource(f"{path}: column {column.name!r} is said to hold images and is {kind}")
    if is_binary:
        return "bytes"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = _scalar_type(kind.value_type)
        return f"list<{element}>" if element else "str"
    return _scalar_type(kind) or "str"


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
    """Whether the first value of a binary column is an image file."""
    for batch in _open(path).iter_batches(1, columns=[column], use_threads=False):
        value = batch.column(0)[0]
        return bool(value.is_valid and len(value.as_buffer()) and formats.sniff(value.as_buffer()) is not None)
    return False


def _value(scalar: pa.Scalar[Any], kind: str, where: str) -> object:
    if not scalar.is_valid:
        raise BadSource(f"{where}, is null, and every sample has every field")
    if kind in ("image", "mask"):
        return encoded(_image_bytes(scalar, where), where)
    value = scalar.as_py()
    if kind == "int64":
        if not -(2**63) <= value < 2**63:
            raise BadSource(f"{where}, holds {value}, which does not fit 64 bits")
        return int(value)
    if kind == "str" and not isinstance(value, str):
        return json.dumps(value, default=str, ensure_ascii=False)
    if kind.startswith("list<") and None in value:
        raise BadSource(f"{where}, is a list with a null in it")
    if kind == "list<int64>":
        return [int(number) for number in value]
    return value


def _image_bytes(scalar: pa.Scalar[Any], where: str) -> memoryview:
    value = scalar["bytes"] if hasattr(scalar, "keys") else scalar
    if not value.is_valid:
        raise BadSource(f"{where}, has a path and no bytes; only images inside of the file are read")
    contents = memoryview(value.as_buffer())
    if len(contents) > MAX_FILE_BYTES:
        raise BadSource(f"{where}, has {len(contents)} bytes; an image file has at most {MAX_FILE_BYTES}")
    return contents


def _describe(columns: dict[str, tuple[str, str]]) -> str:
    return ", ".join(f"{column}: {kind}" for column, kind in columns.values())
