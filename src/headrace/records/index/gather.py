# SPDX-License-Identifier: Apache-2.0
"""Read columns of many rows at once as arrays: what a loader needs for a batch of samples.

An index file is mapped, and a column of a record batch is a contiguous run of numbers in it. The position of a number
is the start of its run plus its row in the batch. So any rows of all columns of a rendition are read with one `take`
over the file per width of number, whatever the number of record batches; a dataset that has grown has several files.
The runs of a record batch are located and checked when one of its rows is first used: a damaged index cannot lead
outside the file.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.errors import CorruptDataset
from headrace.records.index.numbers import row_bits
from headrace.records.index.reading import Index
from headrace.records.manifest import Manifest
from headrace.records.schema import NUMBERS, RENDITION_COLUMNS, columns

RowNumbers: TypeAlias = npt.NDArray[np.int64]


class Gather:
    """Reads columns of a dataset or a view of one. Thread-safe."""

    def __init__(self, places: Places, view: RowNumbers | None, value: Callable[[int, str], Any]) -> None:
        self._places, self._view, self._value = places, view, value
        self._length = places.n_rows if view is None else len(view)
        self._row_bits = row_bits(places.n_rows)

    def rows(self, positions: npt.NDArray[Any]) -> RowNumbers:
        """Return the sample numbers at positions of the view: the rows of the complete dataset, and their copies.

        They are the `sample` of random draws. A position may have the bits of a copy, too.
        """
        chosen = np.asarray(positions, np.int64)
        plain = chosen & self._row_bits
        if chosen.size and not 0 <= plain.min() <= plain.max() < self._length:
            raise IndexError(f"positions must be in [0, {self._length}); got {plain.min()} to {plain.max()}")
        return chosen if self._view is None else self._view[plain] + (chosen - plain)

    def pixel_columns(self, field: str, rendition: int, rows: RowNumbers) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of a rendition by name (`shard`, `offset` …) in new arrays, one value per row."""
        return self._places.take(field, rendition, rows & self._row_bits)

    def values(self, field: str, rows: RowNumbers) -> npt.NDArray[Any] | list[Any]:
        """Return the values of a field: an array for `int64` and `float32`, a list for other types."""
        rows = rows & self._row_bits
        if self._places.is_number(field):
            return self._places.take(field, 0, rows)[field]
        return [self._value(int(row), field) for row in rows]


class Runs(NamedTuple):
    """Columns of numbers of one width, with the names that the caller wants, and where they start."""

    files: tuple[npt.NDArray[Any], ...]
    origins: npt.NDArray[np.int64]  # [columns, record batches], a view of those of `Places`
    columns: tuple[tuple[str, np.dtype[Any]], ...]


class Places:
    """Positions of the columns of numbers in the index files. Thread-safe and fork-safe."""

    def __init__(self, index: Index, manifest: Manifest) -> None:
        self._index, self._dropped, self._changed = index, index.dropped, index.changed
        self.n_rows = manifest.samples
        self._runs: dict[tuple[str, int], tuple[Runs, ...]] = {}
        self._ends = np.cumsum(np.array(manifest.batches, np.int64))
        self._owners = np.array([index.files.index(file) for file, _ in index.places], np.intp)
        # Sorted by width, so that the columns of a rendition with the same width are adjacent.
        numbers = [(name, NUMBERS[kind]) for name, kind in columns(manifest.fields) if kind in NUMBERS]
        self._columns = sorted(numbers, key=lambda column: column[1].itemsize)
        # For each column and record batch: the position in the file, in units of the column's width, that row 0 of the
        # dataset would have if the run extended to it.
        self._origins = np.zeros((len(numbers), len(self._ends)), np.int64)
        self._known = np.zeros(len(self._ends), np.bool_)
        self._all_known = False
        self._lock = Lock()

    def is_number(self, field: str) -> bool:
        """Return whether a field is a column of numbers."""
        return any(name == field for name, _ in self._columns)

    def take(self, field: str, rendition: int, rows: RowNumbers) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of a rendition, or that of a field of numbers, in these rows. The rows must exist."""
        runs = self._runs.get((field, rendition)) or self._open(field, rendition)
        if self._dropped is not None:
            rows = self._dropped.stored(rows)
        batches = self._ends.searchsorted(rows, side="right")
        if not self._all_known:
            self._find(np.unique(batches))
        taken = {}
        for files, origins, names in runs:
            places = origins.take(batches, axis=1)
            places += rows
            found = files[0].take(places) if len(files) == 1 else self._take_each(files, places, batches)
            for (name, dtype), numbers in zip(names, found, strict=True):
                taken[name] = numbers.view(dtype)
        if field in self._changed:
            self._changed[field].put(rows, taken[field])
        return taken

    def _take_each(self, files: tuple[npt.NDArray[Any], ...], places: RowNumbers, batches: RowNumbers) -> Any:
        """Take the numbers of each file; return [columns, rows]."""
        owners = self._owners[batches]
        found = np.empty(places.shape, files[0].dtype)
        for number in np.unique(owners):
            mine = np.flatnonzero(owners == number)
            found[:, mine] = files[number].take(places[:, mine])
        return found

    def _open(self, field: str, rendition: int) -> tuple[Runs, ...]:
        """Group the columns by width."""
        names = {field: field} | {f"{field}.{rendition}.{part}": part for part in RENDITION_COLUMNS}
        found = []
        for width in (1, 4, 8):
            chosen = [
                (number, names[name], dtype)
                for number, (name, dtype) in enumerate(self._columns)
                if name in names and dtype.itemsize == width
            ]
            if chosen:
                # The files as numbers of this width; `_origin` refuses a run that is not aligned to it.
                contents = [file.content for file in self._index.files]
                files = tuple(np.frombuffer(content, f"u{width}", content.size // width) for content in contents)
                origins = self._origins[chosen[0][0] : chosen[-1][0] + 1]
                found.append(Runs(files, origins, tuple((name, dtype) for _, name, dtype in chosen)))
        if not found:
            raise KeyError(f"the dataset has no rendition {rendition} of a field {field!r}")
        self._runs[field, rendition] = tuple(found)
        return tuple(found)

    def _find(self, batches: RowNumbers) -> None:
        with self._lock:
            for number in batches[~self._known[batches]]:
                self._origins[:, number] = self._origins_of(int(number))
                self._known[number] = True
            self._all_known = bool(self._known.all())

    def _origins_of(self, number: int) -> list[int]:
        batch = self._index.record_batch(number)
        first_row = int(self._ends[number]) - batch.num_rows
        return [self._origin(batch, name, dtype.itemsize, number) - first_row for name, dtype in self._columns]

    def _origin(self, batch: Any, name: str, width: int, number: int) -> int:
        column = batch.column(name)
        buffer = column.buffers()[1]
        file, place = self._index.places[number]
        start = -1 if buffer is None else buffer.address - file.content.address + column.offset * width
        if start < 0 or start % width or start + batch.num_rows * width > file.content.size:
            raise CorruptDataset(
                f"{file.path}: record batch {place}: column {name!r} must be {batch.num_rows} aligned numbers "
                f"in the file; run `headrace verify` for details"
            )
        return int(start) // width
