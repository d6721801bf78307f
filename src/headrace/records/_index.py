# SPDX-License-Identifier: Apache-2.0
"""`index.arrow`, mapped: opened in constant time, each record batch taken apart when a row of it is first asked for."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import CorruptDataset
from headrace.records._columns import Batch
from headrace.records._manifest import INDEX, Manifest
from headrace.records._schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa


class Index:
    """The rows of a dataset. Safe to use from many threads, and after a fork."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.path = folder / INDEX
        self._fields = manifest.fields
        self._rows = manifest.index.batches
        self._ends = list(accumulate(self._rows))
        self._batches: list[Batch | None] = [None] * len(self._rows)
        self.content, self._reader = self._open(manifest.index.n_bytes)

    def _open(self, n_bytes: int) -> tuple[pa.Buffer, Any]:
        import pyarrow as pa  # noqa: PLC0415

        try:
            found = self.path.stat().st_size
        except FileNotFoundError:
            raise CorruptDataset(f"{self.path} is missing: restore it or build again") from None
        if found != n_bytes:
            raise CorruptDataset(
                f"{self.path}: offset {min(found, n_bytes)}: the file has {found} bytes and should have {n_bytes}; "
                f"restore it or build again"
            )
        try:
            content = pa.memory_map(str(self.path)).read_buffer()
            # No threads: Arrow's pool would not survive a fork.
            reader = pa.ipc.open_file(content, options=pa.ipc.IpcReadOptions(use_threads=False))
        except (pa.ArrowException, OSError) as error:
            raise self._corrupt(str(error)) from error
        if reader.num_record_batches != len(self._rows):
            raise self._corrupt(f"{reader.num_record_batches} record batches, {len(self._rows)} expected")
        if not reader.schema.equals(arrow_schema(self._fields)):
            raise self._corrupt("the columns are not those of the fields in dataset.json")
        return content, reader

    def locate(self, row: int) -> tuple[Batch, int]:
        """Find the batch that holds a row, and the row's number in it. The row must exist."""
        number = bisect_right(self._ends, row)
        batch = self._batches[number] or self._load(number)
        return batch, row - self._ends[number] + self._rows[number]

    def _load(self, number: int) -> Batch:
        # Two threads may do this at once; they make equal batches and either may stay.
        try:
            batch = Batch(self.record_batch(number), self._fields)
        except (ValueError, IndexError) as error:
            raise self._corrupt(f"record batch {number}: {error}") from error
        self._batches[number] = batch
        return batch

    def record_batch(self, number: int) -> pa.RecordBatch:
        import pyarrow as pa  # noqa: PLC0415

        try:
            batch = self._reader.get_batch(number)
            batch.validate()
        except (pa.ArrowException, OSError) as error:
            raise self._corrupt(f"record batch {number}: {error}") from error
        if batch.num_rows != self._rows[number]:
            raise self._corrupt(f"record batch {number} has {batch.num_rows} rows, {self._rows[number]} expected")
        return batch

    def table(self) -> pa.Table:
        """Give the whole index as a table over the mapped file; nothing is copied."""
        import pyarrow as pa  # noqa: PLC0415

        batches = [self.record_batch(number) for number in range(len(self._rows))]
        return pa.Table.from_batches(batches, schema=self._reader.schema)

    def _corrupt(self, what: str) -> CorruptDataset:
        return CorruptDataset(f"{self.path}: {what}; `headrace verify` tells more")
