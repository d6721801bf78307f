# SPDX-License-Identifier: Apache-2.0
"""Read `index.arrow`: opened in constant time; a record batch is read when one of its rows is first used.

The index is memory-mapped, so that all processes share one copy and read only what they need. Its size is checked when
it is opened. If the file is truncated or its disk fails while it is mapped, the kernel kills the process with SIGBUS:
replace a dataset by renaming, never by writing into its files. `verify` does not map it.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import CorruptDataset
from headrace.files import open_file, read_at
from headrace.records.index import ipc
from headrace.records.index.columns import Batch
from headrace.records.index.numbers import row_bits
from headrace.records.manifest import INDEX, Manifest
from headrace.records.schema import NUMBERS, arrow_schema, columns


class Index:
    """The rows of a dataset. Thread-safe and fork-safe.

    Nothing in the file is trusted. `ipc` checks where record batches, columns and buffers are, without reading values;
    offsets of variable-length values are checked when a record batch is first used (`locate`, `table`).
    """

    def __init__(self, folder: Path, manifest: Manifest, *, mapped: bool = True) -> None:
        self.path = folder / INDEX
        self._fields = manifest.fields
        self._columns = list(columns(manifest.fields))
        self._rows = manifest.index.batches
        self._ends = list(accumulate(self._rows))
        self._row_bits = row_bits(sum(self._rows))
        self._batches: dict[int, Batch] = {}
        self._max_batches = len(self._rows) if mapped else 1
        self._schema = arrow_schema(manifest.fields)
        self._table: pa.Table | None = None
        self._file = self._open(manifest.index.n_bytes, mapped)
        try:
            self._blocks = ipc.read_footer(self._file.view, manifest.index.n_bytes, self._columns)
        except (ValueError, OSError) as error:
            raise self._corrupt(str(error)) from error
        if len(self._blocks) != len(self._rows):
            raise self._corrupt(f"it must have {len(self._rows)} record batches; it has {len(self._blocks)}")

    def _open(self, n_bytes: int, mapped: bool) -> _File:
        try:
            handle = open_file(self.path)
        except FileNotFoundError:
            raise CorruptDataset(f"{self.path} is missing; restore it or build again") from None
        except OSError as error:
            raise CorruptDataset(f"{self.path} cannot be opened: {error.strerror}") from error
        file = _File(handle)
        found = os.fstat(handle).st_size
        if found != n_bytes or not found:
            raise self._corrupt(f"offset {min(found, n_bytes)}: the file must have {n_bytes} bytes; it has {found}")
        if mapped:
            file.map(n_bytes)
        return file

    @property
    def content(self) -> pa.Buffer:
        """The mapped file."""
        return self._file.content

    def locate(self, row: int) -> tuple[Batch, int]:
        """Return the record batch of a row and the row's position in it. The row must exist; copies are ignored."""
        row &= self._row_bits
        number = bisect_right(self._ends, row)
        batch = self._batches.get(number) or self._load(number)
        return batch, row - self._ends[number] + self._rows[number]

    def _load(self, number: int) -> Batch:
        # Two threads may do this at the same time; their batches are equal and either one may be kept.
        record_batch = self.record_batch(number)
        try:
            batch = Batch(record_batch, self._fields)
        except (ValueError, IndexError) as error:
            raise self._corrupt(f"record batch {number}: {error}") from error
        if len(self._batches) >= self._max_batches:
            self._batches.clear()
        self._batches[number] = batch
        return batch

    def record_batch(self, number: int, *, validate: bool = False) -> pa.RecordBatch:
        """Return a record batch over the file. With `validate`, its values are safe to pass to Arrow."""
        block = self._blocks[number]
        try:
            nodes = ipc.read_batch(self._file.view, block, self._columns, self._rows[number])
            body = self._file.buffer(block.offset + block.head_bytes, block.body_bytes)
            arrays = [_array(node, field.type, body) for node, field in zip(nodes, self._schema, strict=True)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            batch.validate(full=validate)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise self._corrupt(f"record batch {number}: {error}") from error
        return batch

    def table(self) -> pa.Table:
        """Return the index as a table over the mapped file. All of it is checked the first time."""
        if self._table is None:
            batches = [self.record_batch(number, validate=True) for number in range(len(self._rows))]
            self._table = pa.Table.from_batches(batches, schema=self._schema)
        return self._table

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column of numbers. Its values need no check, because every bit pattern is a number."""
        numbers = [column for column, kind in self._columns if kind in NUMBERS]
        if name not in numbers:
            raise KeyError(f"{name!r} is not a column of numbers; those are {', '.join(numbers) or 'none'}")
        chunks = [self.record_batch(number).column(name) for number in range(len(self._rows))]
        return pa.chunked_array(chunks, self._schema.field(name).type)

    def _corrupt(self, what: str) -> CorruptDataset:
        return CorruptDataset(f"{self.path}: {what}; restore it or build again")


def _array(node: ipc.Node, kind: pa.DataType, body: pa.Buffer) -> pa.Array:
    buffers = [None, *(body.slice(*extent) for extent in node.buffers)]
    children = [] if node.child is None else [_array(node.child, kind.value_type, body)]
    return pa.Array.from_buffers(kind, node.length, buffers, null_count=0, children=children)


class _File:
    """An open file: its bytes are read when they are asked for, or mapped."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.content: Any = None
        """The mapped file."""

    def __del__(self) -> None:
        if self.content is None:
            os.close(self._handle)

    def map(self, n_bytes: int) -> None:
        self.content = pa.py_buffer(mmap.mmap(self._handle, n_bytes, access=mmap.ACCESS_READ))
        os.close(self._handle)

    def buffer(self, offset: int, n_bytes: int) -> pa.Buffer:
        if self.content is not None:
            return self.content.slice(offset, n_bytes)
        memory = bytearray(n_bytes)
        got = read_at(self._handle, offset, memory)
        if got < n_bytes:
            raise OSError(f"the file was truncated at offset {offset + got} while it was read")
        return pa.py_buffer(memory)

    def view(self, offset: int, n_bytes: int) -> memoryview:
        return memoryview(self.buffer(offset, n_bytes)).cast("B")
