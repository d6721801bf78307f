# SPDX-License-Identifier: Apache-2.0
"""Write index files from the rows of the shards, one shard at a time, in bounded memory (spec/dataset.md §4)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.records.checksum import sum_blocks
from headrace.records.index.arrays import to_numpy
from headrace.records.manifest import BLOCK_BYTES, IndexFile
from headrace.records.schema import MAX_ROWS, Field, arrow_schema

MAX_VALUE_BYTES = 32 << 20
"""Bytes of variable-length values in a record batch; a single larger row is allowed."""


def write_index(path: Path, fields: tuple[Field, ...], tables: Iterable[pa.Table]) -> IndexFile:
    """Write an index file and compute its checksums. Tables have the index's schema and are consumed one by one."""
    return write_table_file(path, arrow_schema(fields), tables)


def write_table_file(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> IndexFile:
    """Write an Arrow file as spec/dataset.md §4 says: an index file or a change file."""
    rows: list[int] = []
    with pa.OSFile(str(path), "wb") as stream, pa.ipc.new_file(stream, schema) as writer:
        for batch in _record_batches(schema, tables):
            writer.write_batch(batch)
            rows.append(batch.num_rows)
    n_bytes, checksums = sum_blocks(path, BLOCK_BYTES)
    return IndexFile(n_bytes, tuple(rows), checksums)


def _record_batches(schema: pa.Schema, tables: Iterable[pa.Table]) -> Iterable[pa.RecordBatch]:
    pending: list[pa.Table] = []
    n_rows = n_bytes = 0
    for table in tables:
        ends = np.cumsum(sum((_value_bytes(column) for column in table.columns), np.zeros(table.num_rows, np.int64)))
        start = 0
        while start < table.num_rows:
            before = int(ends[start - 1]) if start else 0
            by_bytes = int(np.searchsorted(ends, MAX_VALUE_BYTES - n_bytes + before)) + 1
            stop = min(by_bytes, start + MAX_ROWS - n_rows, table.num_rows)
            pending.append(table.slice(start, stop - start))
            n_rows += stop - start
            n_bytes += int(ends[stop - 1]) - before
            start = stop
            if n_rows == MAX_ROWS or n_bytes >= MAX_VALUE_BYTES:
                yield _join(schema, pending)
                pending, n_rows, n_bytes = [], 0, 0
    if pending:
        yield _join(schema, pending)


def _join(schema: pa.Schema, tables: list[pa.Table]) -> pa.RecordBatch:
    columns = [
        pa.concat_arrays([chunk for table in tables for chunk in table.column(number).chunks])
        for number in range(len(schema))
    ]
    return pa.record_batch(columns, schema=schema)


def _value_bytes(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the bytes of variable-length values in each row."""
    chunks = [np.diff(_positions(chunk)) for chunk in column.chunks]
    return np.concatenate(chunks) if chunks else np.zeros(0, np.int64)


def _positions(array: Any) -> Any:
    """Return the number of bytes of values before each row, and before the end."""
    kind = array.type
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, 8 * array.offset) if len(array) else _NONE
    if pa.types.is_large_list(kind):
        inner, offsets = array.values, to_numpy(array.offsets)
        if pa.types.is_fixed_size_list(kind.value_type):
            return offsets * 16  # four float32
        if pa.types.is_primitive(kind.value_type):
            return offsets * (kind.value_type.bit_width // 8)
        return _positions(inner)[offsets]
    return np.zeros(len(array) + 1, np.int64)


_NONE = np.zeros(1, np.int64)
