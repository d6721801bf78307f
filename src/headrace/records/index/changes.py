# SPDX-License-Identifier: Apache-2.0
"""Rows that a version drops and values that it changes, over index files that stay as they are (spec/dataset.md §10).

A change file has one row for each row of the index that it changes. It is read and checked when a row is first used.
Memory and time are those of the changes, not of the dataset.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import CorruptDataset
from headrace.records.checksum import sum_blocks
from headrace.records.index.arrays import from_numpy, make_array, to_numpy
from headrace.records.index.arrow_file import ArrowFile
from headrace.records.manifest import IndexFile, Manifest
from headrace.records.schema import NUMBERS, Field, arrow_type
from headrace.records.versions import change_name

Ints = npt.NDArray[np.int64]
ROW = "_row"
"""Column of a change file; no field has a name like it."""


class DroppedRows:
    """Translates between rows of the index and samples, which are numbered without the dropped rows."""

    def __init__(self, rows: Ints) -> None:
        self.rows = rows
        # The number of samples before each dropped row; it never decreases.
        self._samples_before = rows - np.arange(len(rows))

    def stored(self, samples: Ints) -> Ints:
        """Return the rows of the index of these samples."""
        return samples + np.searchsorted(self._samples_before, samples, side="right")

    def stored_one(self, sample: int) -> int:
        return sample + int(self._samples_before.searchsorted(sample, side="right"))

    def sample(self, row: int) -> int | None:
        """Return the number of the sample in a row of the index; None if it is dropped."""
        before = int(self.rows.searchsorted(row))
        return None if before < len(self.rows) and self.rows[before] == row else row - before

    def removed_from(self, values: Any) -> Any:
        """Return an array of values of all rows without those of dropped rows."""
        return np.delete(values, self.rows)

    def removed_from_table(self, table: pa.Table, start: int) -> pa.Table:
        """Return a table of the rows from `start` on without those that are dropped."""
        first, end = self.rows.searchsorted((start, start + table.num_rows))
        if first == end:
            return table
        kept = np.delete(np.arange(table.num_rows, dtype=np.int64), self.rows[first:end] - start)
        return table.take(from_numpy(kept, pa.int64()))


class ChangedValues:
    """New values of a field, by rows of the index, in ascending order."""

    def __init__(self, rows: Ints, values: Any) -> None:
        self.rows, self.values = rows, values

    def find(self, row: int) -> int | None:
        """Return the position of a row among those that are changed."""
        at = int(self.rows.searchsorted(row))
        return at if at < len(self.rows) and self.rows[at] == row else None

    def put(self, rows: Ints, values: npt.NDArray[Any]) -> None:
        """Replace those of `values`, which are in these rows, that are changed."""
        at = self.rows.searchsorted(rows)
        at[at == len(self.rows)] = 0
        changed = self.rows[at] == rows
        values[changed] = self.values[at[changed]]

    def in_column(self, column: pa.ChunkedArray, kind: str, start: int) -> pa.ChunkedArray:
        """Return a column of the rows from `start` on with the new values."""
        first, end = self.rows.searchsorted((start, start + len(column)))
        if first == end:
            return column
        rows, new = self.rows[first:end] - start, self.values[first:end]
        if kind in NUMBERS:
            values = to_numpy(column).copy()
            values[rows] = new
            return pa.chunked_array([from_numpy(values, column.type)])
        mask = np.zeros(len(column), np.bool_)
        mask[rows] = True
        values = make_array(kind, new, column.type)
        whole = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
        packed = pa.Array.from_buffers(
            pa.bool_(), len(mask), [None, pa.py_buffer(np.packbits(mask, bitorder="little"))]
        )
        return pa.chunked_array([pc.replace_with_mask(whole, packed, values)])


class ChangedColumn:
    """A column of a record batch with the new values of a field."""

    __slots__ = ("changed", "column", "first_row")

    def __init__(self, column: Any, changed: ChangedValues, first_row: int) -> None:
        self.column, self.changed, self.first_row = column, changed, first_row

    def __getitem__(self, row: int) -> Any:
        at = self.changed.find(self.first_row + row)
        if at is None:
            return self.column[row]
        value = self.changed.values[at]
        return value.item() if isinstance(value, np.generic) else value


def read_dropped(folder: Path, manifest: Manifest) -> DroppedRows | None:
    """Read and check the dropped rows of a version."""
    if manifest.dropped is None:
        return None
    return DroppedRows(_read(folder, manifest, manifest.dropped, None)[0])


def read_changed(folder: Path, manifest: Manifest) -> dict[str, ChangedValues]:
    """Read and check the new values of the fields that a version changes."""
    fields = {field.name: field for field in manifest.fields}
    return {
        name: ChangedValues(*_read(folder, manifest, file, fields[name]))
        for name, file in manifest.relabeled.items()
        if file.rows
    }


def change_columns(field: Field | None) -> list[tuple[str, str]]:
    """Return the names and kinds of the columns of a change file."""
    return [(ROW, "int64"), *([] if field is None else [(field.name, field.stored)])]


def change_schema(field: Field | None) -> pa.Schema:
    return pa.schema([pa.field(name, arrow_type(kind), nullable=False) for name, kind in change_columns(field)])


def _read(folder: Path, manifest: Manifest, file: IndexFile, field: Field | None) -> tuple[Ints, Any]:
    path = folder / change_name(file.number)
    content = ArrowFile(path, file, change_columns(field), change_schema(field), mapped=False)
    found = sum_blocks(path, file.block_bytes, len(file.checksums) // 8)
    if found != (file.n_bytes, file.checksums):
        raise CorruptDataset(f"{path} is damaged; restore it, or open an earlier version (`headrace log {folder}`)")
    batches = [content.record_batch(number, validate=True) for number in range(len(file.batches))]
    table = pa.Table.from_batches(batches, schema=change_schema(field))
    rows = to_numpy(table.column(0))
    if len(rows) and (rows[0] < 0 or rows[-1] >= manifest.rows or (rows[1:] <= rows[:-1]).any()):
        raise CorruptDataset(
            f"{path}: its rows must ascend strictly and be less than {manifest.rows}; restore the file"
        )
    if field is None:
        return rows, None
    column = table.column(1)
    return rows, to_numpy(column) if field.stored in NUMBERS else column.to_pylist()
