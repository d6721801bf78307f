# SPDX-License-Identifier: Apache-2.0
"""Hugging Face `datasets`: an object in memory, or a folder that `save_to_disk` wrote. Images keep their files' bytes.

A folder is read with pyarrow alone. An object gives its rows as Arrow tables, which are the same. Its images may be
paths of local files: those are read, because the user made the object; paths in a folder are not.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from headrace import formats
from headrace.errors import BadSource
from headrace.sources._paths import checked_relative, find, join, read_range, require_file
from headrace.sources._splits import SplitSource, chosen
from headrace.sources._types import MAX_FILE_BYTES, Item, PerThread, encoded
from headrace.sources.huggingface.columns import class_names, read_features, read_value, table_columns
from headrace.tensors import is_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from headrace.sources._types import Source

STATE, SPLITS = "state.json", "dataset_dict.json"
_MAX_JSON_BYTES = 1 << 26
_ROWS_AT_ONCE = 16  # of an object


def is_saved(path: Path) -> bool:
    """Return whether a folder was written by `save_to_disk`."""
    return (path / SPLITS).is_file() or ((path / STATE).is_file() and (path / "dataset_info.json").is_file())


def is_object(source: object) -> TypeGuard[Any]:
    """Return whether it is a `datasets.Dataset` or `DatasetDict`; streams are ordinary iterables."""
    kind = type(source)
    return kind.__module__.partition(".")[0] == "datasets" and kind.__name__ in ("Dataset", "DatasetDict")


def open_saved(path: Path, split: str | None) -> Source:
    """Open a folder with one dataset or with several splits."""
    if not (path / SPLITS).is_file():
        if split is not None:
            raise BadSource(f"{path} has no splits: build it without --split")
        return HuggingFaceSource(SavedTable(path))
    names = _json(path / SPLITS).get("splits")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadSource(f"{path / SPLITS} must list the names of the splits")
    places = {name: path / checked_relative(name, str(path / SPLITS)) for name in names}
    if split is not None:
        return HuggingFaceSource(SavedTable(chosen(places, split, path)))
    return _joined({name: HuggingFaceSource(SavedTable(place)) for name, place in places.items()}, str(path))


def open_object(source: Any, split: str | None) -> Source:
    """Open a `Dataset` or `DatasetDict`."""
    if not isinstance(source, dict):
        if split is not None:
            raise BadSource("split needs a DatasetDict; this Dataset is one split")
        return HuggingFaceSource(ObjectTable(source))
    if split is not None:
        return HuggingFaceSource(ObjectTable(chosen(source, split, "the DatasetDict")))
    return _joined({name: HuggingFaceSource(ObjectTable(part)) for name, part in source.items()}, "the DatasetDict")


def _joined(parts: dict[str, HuggingFaceSource], where: str) -> Source:
    if not parts:
        raise BadSource(f"{where} has no splits")
    return SplitSource(parts, {name: name for name in parts})


class HuggingFaceSource:
    """The rows of one split. The columns become fields as those of Parquet do."""

    kind = "huggingface"
    sequential = False

    def __init__(self, table: SavedTable | ObjectTable) -> None:
        self._table = table
        features = table.features()
        self._columns = table_columns(table.name, table.schema, features, self._holds_images)
        self.fields = {name: kind for name, (_, kind) in self._columns.items()}
        if not any(kind == "image" or is_tensor(kind) for kind in self.fields.values()):
            listed = ", ".join(table.schema.names)
            raise BadSource(f"{table.name} has no image column and no tensors; its columns are {listed}")
        self.classes = class_names(features)
        self._stamp = table.stamp()

    def _holds_images(self, column: str) -> bool:
        if not self._table.n_rows:
            return False
        value = self._table.row(0).column(column)[0]
        return bool(value.is_valid and len(value.as_buffer()) and formats.sniff(value.as_buffer()) is not None)

    def items(self) -> Iterator[Item]:
        for row in range(self._table.n_rows):
            yield Item(f"{row:09d}", self._table.row_bytes, (row,), self._stamp)

    def load(self, item: Item) -> dict[str, object]:
        batch = self._table.row(item.locator[0])
        where = f"{self._table.name}, row {item.locator[0]}"
        return {
            name: self._value(batch.column(column)[0], kind, f"{where}, {column}")
            for name, (column, kind) in self._columns.items()
        }

    def _value(self, scalar: pa.Scalar[Any], kind: str, where: str) -> object:
        if kind in ("image", "mask") and self._table.reads_paths and scalar.is_valid and hasattr(scalar, "keys"):
            path = scalar["path"].as_py() if "path" in scalar.keys() else None  # noqa: SIM118 - a StructScalar
            if not scalar["bytes"].is_valid and isinstance(path, str):
                return encoded(_contents(path, where), path)
        return read_value(scalar, kind, where)


class SavedTable:
    """The rows of a folder: Arrow streams, which are mapped. Each record batch is checked when it is first used."""

    reads_paths = False

    def __init__(self, path: Path) -> None:
        self.name = os.fspath(path)
        files = _json(path / STATE).get("_data_files")
        if not isinstance(files, list) or not files:
            raise BadSource(f"{path / STATE} must list at least one data file")
        named = [file.get("filename") if isinstance(file, dict) else None for file in files]
        if not all(isinstance(name, str) for name in named):
            raise BadSource(f"{path / STATE} must give the name of each data file")
        self._files = [checked_relative(str(name), str(path / STATE)) for name in named]
        self._held: PerThread[tuple[list[int], list[Any]]] = PerThread()
        self._checked: PerThread[Any] = PerThread()
        found = [find(self.name, file) for file in self._files]
        for each in found:
            each.item().check()
        self.n_rows = (self._batches()[0] or [0])[-1]
        self.row_bytes = sum(each.n_bytes for each in found) // max(self.n_rows, 1)
        self._stamps = max(each.stamp for each in found)

    @property
    def schema(self) -> pa.Schema:
        return self._batches()[1][0].schema

    def features(self) -> dict[str, Any]:
        return read_features(self.schema)

    def stamp(self) -> int:
        return self._stamps

    def _batches(self) -> tuple[list[int], list[Any]]:
        """Return the last row + 1 of each record batch, and the record batches."""
        return self._held.get(self.name, self._open)

    def _open(self) -> tuple[list[int], list[Any]]:
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        batches: list[Any] = []
        for file in self._files:
            path = join(self.name, file)
            require_file(path)
            try:
                with pa.ipc.open_stream(pa.memory_map(path)) as stream:
                    own = list(stream)
                    own = own or [pa.RecordBatch.from_pylist([], schema=stream.schema)]
            except (pa.ArrowException, OSError, ValueError) as error:
                raise BadSource(f"{path} cannot be read as an Arrow stream: {error}") from None
            if batches and not own[0].schema.equals(batches[0].schema):
                raise BadSource(f"{path} has other columns than {join(self.name, self._files[0])}")
            batches += own
        return list(accumulate(batch.num_rows for batch in batches)), batches

    def row(self, number: int) -> Any:
        """Return a row as a record batch of length 1."""
        ends, batches = self._batches()
        at = bisect_right(ends, number)
        batch = self._checked.get(at, partial(self._validated, batches[at], at))
        return batch.slice(number - ends[at] + batch.num_rows, 1)

    def _validated(self, batch: Any, number: int) -> Any:
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        try:
            batch.validate(full=True)
        except (pa.ArrowException, ValueError) as error:
            raise BadSource(f"{self.name}: record batch {number} is damaged: {error}") from None
        return batch


class ObjectTable:
    """The rows of a `datasets.Dataset`, a few at a time."""

    reads_paths = True

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset.with_format("arrow")
        self.name = f"datasets.Dataset {getattr(dataset, '_fingerprint', '')}".strip()
        self.n_rows = len(dataset)
        self.schema = dataset.features.arrow_schema
        size = getattr(getattr(dataset, "data", None), "nbytes", 0)
        self.row_bytes = int(size or 0) // max(self.n_rows, 1)
        self._held: PerThread[Any] = PerThread()

    def features(self) -> dict[str, Any]:
        return read_features(self.schema)

    def stamp(self) -> int:
        """Return a number for the content: the library changes the fingerprint with every operation."""
        text = str(getattr(self._dataset, "_fingerprint", ""))
        return int.from_bytes(text.encode()[-8:], "big") >> 1

    def row(self, number: int) -> Any:
        """Return a row as a table of length 1."""
        start = number // _ROWS_AT_ONCE * _ROWS_AT_ONCE
        rows = self._held.get(start, lambda: self._dataset[start : start + _ROWS_AT_ONCE])
        return rows.slice(number - start, 1)


def _contents(path: str, where: str) -> bytes:
    if "://" in path:
        raise BadSource(f"{where}, is at {path[:200]}: download the images before you build")
    contents = read_range(path, 0, MAX_FILE_BYTES + 1)
    if len(contents) > MAX_FILE_BYTES:
        raise BadSource(f"{path} must have at most {MAX_FILE_BYTES} bytes")
    return contents


def _json(path: Path) -> dict[str, Any]:
    contents = read_range(str(path), 0, _MAX_JSON_BYTES)
    try:
        tree = json.loads(contents)
    except (ValueError, RecursionError) as error:
        raise BadSource(f"{path} must be JSON: {error}") from None
    if not isinstance(tree, dict):
        raise BadSource(f"{path} must be a JSON object")
    return tree
