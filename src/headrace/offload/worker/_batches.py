# SPDX-License-Identifier: Apache-2.0
"""Batches by their names, as an offload worker makes them: the same rows, random draws and bits as the loader's.

A prepared batch holds the fields of pixels, and the rows that they are of. Everything else of a batch (labels, boxes,
the user's functions) costs the host microseconds and stays with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import LoaderError
from headrace.loader import PixelMaker
from headrace.loader.supply import PixelBatch, Rows
from headrace.offload.exchange._batch_file import LIMITS
from headrace.offload.exchange._contents import BatchShapes, flat
from headrace.offload.exchange._names import BatchName
from headrace.records import Dataset
from headrace.transforms import Recipe

MAX_SAMPLES = 1 << 16
"""Of a batch. The memory for its bookkeeping is allocated before anything else of it is known."""


class CannotPrepare(LoaderError):
    """A batch that is too large, or has a sample that cannot be loaded: the host makes it itself."""


class BatchMaker:
    """Makes the prepared batches of a recipe. For one thread at a time."""

    def __init__(
        self, dataset: Dataset, recipe: Recipe, *, threads: int = 1, rows: npt.NDArray[np.int64] | None = None
    ) -> None:
        """Open it for a dataset; `rows` is the selection that the recipe has a digest of, if it has one."""
        self._pixels = PixelMaker(dataset, recipe, threads=threads, rows=rows)
        self._shapes = BatchShapes(self._pixels.dataset, self._pixels.fields, self._pixels.compiled)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields of pixels."""
        return self._pixels.fields

    @property
    def batch_size(self) -> int:
        """Samples that a rank has in a batch."""
        return self._pixels.recipe.batch_size

    def remaining(self, *, epoch: int, rank: int, start: int, stop: int) -> int:
        """Return how many batches a rank has in samples [start, stop) of an epoch."""
        return self._pixels.batch_count(epoch=epoch, rank=rank, start=start, stop=stop)

    def begin(self, name: BatchName) -> PendingBatch:
        """Let the threads begin with a batch; returns at once.

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

    def close(self) -> None:
        """End the threads."""
        self._pixels.close()


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
        """Give the arrays of a batch that is done; CannotPrepare if a sample of it could not be loaded."""
        failures = self._batch.failures()
        if failures:
            position, field, _, kind, message = min(failures)
            raise CannotPrepare(
                f"batch {self.name.number} of epoch {self.name.epoch}, rank {self.name.rank}: field "
                f"{self._pixels.fields[field]!r} of row {int(self._rows[position])}: {kind}: {message}"
            )
        return flat(self._pixels.take(self._batch), self._rows)
