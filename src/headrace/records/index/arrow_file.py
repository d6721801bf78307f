# SPDX-License-Identifier: Apache-2.0
"""Read one index file or change file: its structure is checked when it is opened, a record batch when it is read.

The file is memory-mapped, so that all processes share one copy and read only what they need. Its size is checked when
it is opened. If it is truncated or its disk fails while it is mapped, the kernel kills the process with SIGBUS:
replace a dataset by renaming, never by writing into its files. `verify` does not map it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import CorruptDataset
from headrace.files import open_file, read_at
from headrace.records.index import ipc
from headrace.records.manifest import IndexFile


class ArrowFile:
    """An Arrow file with known columns. Thread-safe and fork-safe.

    Nothing in the file is trusted. `ipc` checks where record batches, columns and buffers are, without reading values.
    """

    def __init__(
        self, path: Path, file: IndexFile, columns: Sequence[tuple[str, str]], schema: pa.Schema, *, mapped: bool
    ) -> None:
        self.path, self._columns, self._schema = path, columns, schema
        self.rows = file.batches
        self._file = self._open(file.n_bytes, mapped)
        try:
            self._blocks = ipc.read_footer(self._file.view, file.n_bytes, self._columns)
        except (ValueError, OSError) as error:
            raise self._corrupt(str(error)) from error
        if len(self._blocks) != len(self.rows):
            raise self._corrupt(f"it must have {len(self.rows)} record batches; it has {len(self._blocks)}")

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

    def record_batch(self, number: int, *, validate: bool = False) -> pa.RecordBatch:
        """Return a record batch over the file. With `validate`, its values are safe to pass to Arrow."""
        block = self._blocks[number]
        try:
            nodes = ipc.read_batch(self._file.view, block, self._columns, self.rows[number])
            body = self._file.buffer(block.offset + block.head_bytes, block.body_bytes)
            arrays = [_array(node, field.type, body) for node, field in zip(nodes, self._schema, strict=True)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            batch.validate(full=validate)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise self.corrupt(number, error) from error
        return batch

    def corrupt(self, number: int, error: Exception) -> CorruptDataset:
        """Return the error of a record batch."""
        return self._corrupt(f"record batch {number}: {error}")

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
