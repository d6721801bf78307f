# SPDX-License-Identifier: Apache-2.0
"""Read the index of a version: opened in constant time; a record batch is read when one of its rows is first used.

A version has one index file, or several if it has grown, and may drop rows and change values. Callers number samples
without the dropped rows; *stored rows* count them.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.records.index.arrays import to_numpy
from headrace.records.index.arrow_file import ArrowFile
from headrace.records.index.changes import ChangedColumn, ChangedValues, DroppedRows, read_changed, read_dropped
from headrace.records.index.columns import Batch
from headrace.records.index.numbers import row_bits
from headrace.records.manifest import Manifest
from headrace.records.schema import NUMBERS, arrow_schema, columns
from headrace.records.versions import index_name

Ints = npt.NDArray[np.int64]


class Index:
    """The rows of a version of a dataset. Thread-safe and fork-safe.

    Nothing in the files is trusted (`ArrowFile`); offsets of variable-length values are checked when a record batch is
    first used (`locate`, `table`). Record batches are numbered over all files.
    """

    def __init__(self, folder: Path, manifest: Manifest, *, mapped: bool = True) -> None:
        self.folder, self._manifest = folder, manifest
        self._columns = list(columns(manifest.fields))
        self._schema = arrow_schema(manifest.fields)
        self.files = [
            ArrowFile(folder / index_name(file.number), file, self._columns, self._schema, mapped=mapped)
            for file in manifest.indexes
        ]
        self.places = [(file, number) for file in self.files for number in range(len(file.rows))]
        """The file of each record batch, and its number there."""
        self._rows = manifest.batches
        self._ends = list(accumulate(self._rows))
        self._row_bits = row_bits(sum(self._rows))
        self._batches: dict[int, Batch] = {}
        self._max_batches = len(self._rows) if mapped else 1
        self._table: pa.Table | None = None

    @cached_property
    def dropped(self) -> DroppedRows | None:
        """The dropped rows; None if there are none."""
        return read_dropped(self.folder, self._manifest)

    @cached_property
    def changed(self) -> dict[str, ChangedValues]:
        """The new values of fields that were relabeled."""
        return read_changed(self.folder, self._manifest)

    def stored_rows(self, samples: Ints) -> Ints:
        """Return the stored rows of samples."""
        return samples if self.dropped is None else self.dropped.stored(samples)

    def locate(self, sample: int) -> tuple[Batch, int]:
        """Return the record batch of a sample and its position there. The sample must exist; copies are ignored."""
        sample &= self._row_bits
        return self.locate_stored(sample if self.dropped is None else self.dropped.stored_one(sample))

    def locate_stored(self, row: int) -> tuple[Batch, int]:
        """Return the record batch of a stored row and its position there. The row must exist."""
        number = bisect_right(self._ends, row)
        batch = self._batches.get(number) or self._load(number)
        return batch, row - self._ends[number] + self._rows[number]

    def _load(self, number: int) -> Batch:
        # Two threads may do this at the same time; their batches are equal and either one may be kept.
        record_batch = self.record_batch(number)
        try:
            batch = Batch(record_batch, self._manifest.fields)
        except (ValueError, IndexError) as error:
            file, place = self.places[number]
            raise file.corrupt(place, error) from error
        for name, changed in self.changed.items():
            batch.values[name] = ChangedColumn(batch.values[name], changed, self._ends[number] - self._rows[number])
        if len(self._batches) >= self._max_batches:
            self._batches.clear()
        self._batches[number] = batch
        return batch

    def record_batch(self, number: int, *, validate: bool = False) -> pa.RecordBatch:
        """Return stored rows over the file. With `validate`, the values are safe to pass to Arrow."""
        file, place = self.places[number]
        return file.record_batch(place, validate=validate)

    def table(self) -> pa.Table:
        """Return the samples as a table over the mapped files. All of it is checked the first time."""
        if self._table is None:
            self._table = self.samples_between(0, sum(self._rows))
        return self._table

    def samples_between(self, start: int, stop: int) -> pa.Table:
        """Return the samples in stored rows [start, stop) as a table, with their new values. They are checked."""
        batches = []
        for number, (end, rows) in enumerate(zip(self._ends, self._rows, strict=True)):
            if start < end and end - rows < stop:
                first = max(0, start - end + rows)
                batches.append(
                    self.record_batch(number, validate=True).slice(first, min(stop, end) - end + rows - first)
                )
        table = pa.Table.from_batches(batches, schema=self._schema)
        for name, changed in self.changed.items():
            at = table.schema.get_field_index(name)
            column = changed.in_column(table.column(at), self._columns[at][1], start)
            table = table.set_column(at, self._schema.field(at), column)
        return table if self.dropped is None else self.dropped.removed_from_table(table, start)

    def column(self, name: str) -> npt.NDArray[np.generic]:
        """Return a column of numbers. Its values need no check, because every bit pattern is a number."""
        numbers = [column for column, kind in self._columns if kind in NUMBERS]
        if name not in numbers:
            raise KeyError(f"{name!r} is not a column of numbers; those are {', '.join(numbers) or 'none'}")
        chunks = [self.record_batch(number).column(name) for number in range(len(self._rows))]
        values = to_numpy(pa.chunked_array(chunks, self._schema.field(name).type))
        if name in self.changed:
            values = values.copy()
            values[self.changed[name].rows] = self.changed[name].values
        return values if self.dropped is None else self.dropped.removed_from(values)
