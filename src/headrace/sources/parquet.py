# SPDX-License-Identifier: Apache-2.0
"""Parquet with images in a column, as Hugging Face datasets are published.

`huggingface/columns.py` says what the columns become.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace import formats
from headrace.errors import BadSource
from headrace.sources._paths import require_file
from headrace.sources._types import Item, PerThread
from headrace.sources.huggingface.columns import class_names, describe_columns, read_features, read_value, table_columns
from headrace.tensors import is_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    import pyarrow.parquet as pq

_ROWS_AT_ONCE = 16  # limits memory: a row group may hold gigabytes of images
_READ_AHEAD = 2**20
_MAX_GROUP_ROWS = 2**30  # more is a forged count


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
        features = read_features(schema)
        self._columns = table_columns(self._first, schema, features, partial(_holds_images, self._first))
        self.fields = {name: kind for name, (_, kind) in self._columns.items()}
        if not any(kind == "image" or is_tensor(kind) for kind in self.fields.values()):
            raise BadSource(
                f"{self._first} has no image column and no tensors; its columns are {', '.join(schema.names)}"
            )
        self.classes = class_names(features)

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
            schema = file.schema_arrow
            found = table_columns(path, schema, read_features(schema), partial(_holds_images, path))
            if found != self._columns:
                raise BadSource(
                    f"{path} has the columns {describe_columns(found)}, but {self._first} has "
                    f"{describe_columns(self._columns)}"
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
            name: read_value(batch.column(column)[row], kind, f"{where}, {column}")
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


def _holds_images(path: str, column: str) -> bool:
    """Return whether the first value of a binary column is an image file."""
    for batch in _open(path).iter_batches(1, columns=[column], use_threads=False):
        value = batch.column(0)[0]
        return bool(value.is_valid and len(value.as_buffer()) and formats.sniff(value.as_buffer()) is not None)
    return False
