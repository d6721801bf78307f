# SPDX-License-Identifier: Apache-2.0
"""Makes batches by name, with the same rows, random draws and bits as the loader; one maker per recipe.

A prepared batch contains the pixel fields and the rows that they come from. Everything else of a batch (labels, boxes,
the user's functions) costs the host microseconds and stays there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headrace.errors import LoaderError
from headrace.loader import PixelMaker
from headrace.loader.supply import PixelBatch, Rows
from headrace.offload.exchange._batch_file import LIMITS, BatchShapes, name_arrays
from headrace.offload.exchange._documents import BatchName
from headrace.records import Dataset, open_dataset
from headrace.transforms import Recipe

if TYPE_CHECKING:
    from headrace.offload.worker._rank import RankCells

MAX_SAMPLES = 1 << 16
"""Per batch. Memory for its bookkeeping is allocated before anything else of it is known."""
MAX_RECIPES = 16
"""Recipes at a time: each has threads, memory and an open dataset of its own."""
_MAX_ROWS_PER_SAMPLE = 16


class CannotPrepare(LoaderError):
    """A batch is too large, or a sample of it cannot be loaded: the host makes it itself."""


class BatchMaker:
    """Makes the prepared batches of a recipe. For one thread at a time."""

    def __init__(
        self, dataset: Dataset, recipe: Recipe, *, threads: int = 1, rows: npt.NDArray[np.int64] | None = None
    ) -> None:
        """`rows` is the selection of samples, if the recipe has the digest of one."""
        self._pixels = PixelMaker(dataset, recipe, threads=threads, rows=rows)
        self._shapes = BatchShapes(self._pixels.dataset, self._pixels.fields, self._pixels.compiled)
        self.fields = self._pixels.fields
        self.batch_size = recipe.batch_size
        """Samples per batch and rank."""
        self.batch_count = self._pixels.batch_count
        self.close = self._pixels.close

    def begin(self, name: BatchName) -> PendingBatch:
        """Submit a batch to the threads and return at once.

        Raises:
            CannotPrepare: It would be larger than a prepared batch may be.
            IndexError: There is no such batch.

        """
        if self.batch_size > MAX_SAMPLES:
            raise CannotPrepare(f"batch_size must be at most {MAX_SAMPLES} to be prepared; got {self.batch_size}")
        rows = self._pixels.rows(name.number, epoch=name.epoch, rank=name.rank, start=name.start, stop=name.stop)
        shape = self._shapes.of(rows)
        if shape is not None and shape.limits.n_bytes > LIMITS.n_bytes:
            raise CannotPrepare(
                f"a prepared batch must have at most {LIMITS.n_bytes} bytes; batch {name.number} of epoch {name.epoch} "
                f"has {shape.n_bytes}: use smaller batches or images"
            )
        return PendingBatch(name, self._pixels, rows)


class PendingBatch:
    """A batch in progress."""

    def __init__(self, name: BatchName, pixels: PixelMaker, rows: Rows) -> None:
        self.name = name
        self._pixels, self._rows = pixels, rows
        self._batch: PixelBatch = pixels.submit(rows, name.epoch)

    def wait(self, timeout: float) -> bool:
        """Wait without the GIL; True when the batch is done."""
        return self._batch.wait(timeout)

    def take(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of a batch that is done; CannotPrepare if a sample could not be loaded."""
        failures = self._batch.failures()
        if failures:
            position, field, _, kind, message = min(failures)
            raise CannotPrepare(
                f"batch {self.name.number} of epoch {self.name.epoch}, rank {self.name.rank}: field "
                f"{self._pixels.fields[field]!r} of row {int(self._rows[position])}: {kind}: {message}"
            )
        return name_arrays(self._pixels.take(self._batch), self._rows)


class Makers:
    """The makers of an offload worker: created for the first rank with a recipe, closed after the last."""

    def __init__(self, dataset: Path, threads: int) -> None:
        self._path, self._threads = dataset, threads
        # A selection may repeat samples. One that is far longer than the dataset is treated as an error.
        self.max_rows = max(1 << 20, _MAX_ROWS_PER_SAMPLE * len(open_dataset(dataset)))
        self._makers: dict[str, tuple[BatchMaker, int]] = {}

    def take(self, cells: RankCells) -> BatchMaker:
        """Return the maker for a rank. HeadraceError, ValueError or OSError if this dataset is not the recipe's."""
        key = cells.origin.recipe
        if key in self._makers:
            maker, users = self._makers[key]
        elif len(self._makers) >= MAX_RECIPES:
            raise ValueError(f"an offload worker serves at most {MAX_RECIPES} recipes: start another worker")
        else:
            recipe = Recipe.from_json(json.dumps(cells.recipe))
            maker = BatchMaker(open_dataset(self._path), recipe, threads=self._threads, rows=cells.rows)
            users = 0
        self._makers[key] = (maker, users + 1)
        return maker

    def give_back(self, cells: RankCells) -> None:
        key = cells.origin.recipe
        maker, users = self._makers[key]
        if users > 1:
            self._makers[key] = (maker, users - 1)
        else:
            del self._makers[key]
            maker.close()

    def close(self) -> None:
        makers, self._makers = self._makers, {}
        for maker, _ in makers.values():
            maker.close()
