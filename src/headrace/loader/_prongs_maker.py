# SPDX-License-Identifier: Apache-2.0
"""Batches by their names, for whoever prepares them away from the trainer: the same rows, the same draws and bits.

A prepared batch holds the fields of pixels, and the rows that they are of. Everything else of a batch (labels, boxes,
functions of the user's) costs the host microseconds and stays with it: the near prong takes the place of the engine's
threads and of nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import LoaderError
from headrace.loader._loader import Loader
from headrace.loader._prongs_arrays import flat
from headrace.loader._prongs_shapes import BatchShapes
from headrace.loader.batch._finish import pixel_fields
from headrace.loader.order._order import EpochBatches
from headrace.loader.order._ranks import Ranks
from headrace.loader.pixels._engine import PixelBatch, Rows
from headrace.loader.pixels._errors import _take
from headrace.prongs import BatchName
from headrace.prongs._batch_file import LIMITS
from headrace.records import Dataset
from headrace.transforms import Recipe

MAX_SAMPLES = 1 << 16
"""Of a batch. The memory for its bookkeeping is allocated before anything else of it is known."""
_MAX_STRETCHES = 64


class CannotPrepare(LoaderError):
    """A batch that is too large, or has a sample that cannot be loaded: the host makes it itself."""


class BatchMaker:
    """Makes the pixels of any batch of a recipe. `begin` and what it gives are for one thread at a time."""

    def __init__(
        self, dataset: Dataset, recipe: Recipe, *, threads: int = 0, rows: npt.NDArray[np.int64] | None = None
    ) -> None:
        """Make it for a dataset; `rows` are the selection that the recipe has a digest of, if it has one."""
        self._recipe = recipe
        self._loader = Loader(
            dataset,
            batch_size=recipe.batch_size,
            shuffle=recipe.shuffle,
            seed=recipe.seed,
            drop_last=recipe.drop_last,
            transform=recipe.transforms,
            fields=recipe.fields,
            indices=rows,
            num_workers=threads or None,
            output="numpy",
            rank=0,
            world_size=recipe.world_size,
            dtype=recipe.dtype,
            layout=recipe.layout,  # type: ignore[arg-type]
            color=recipe.color,  # type: ignore[arg-type]
            min_area=recipe.min_area,
            approximate_jpeg=recipe.approximate_jpeg,
        )
        ours = self._loader.recipe
        for name in ("fingerprint", "selection"):
            if ours[name] != getattr(recipe, name):
                self.close()
                raise LoaderError(
                    f"the recipe has the {name} {getattr(recipe, name)}, and {dataset.path} has {ours[name]}: "
                    f"give the near worker the dataset that the loader has"
                )
        self.fields = pixel_fields(self._loader.dataset, recipe.fields)
        self._gather = self._loader.dataset.gather
        self._shapes = BatchShapes(self._loader.dataset, self.fields, self._loader._parts.compiled)  # noqa: SLF001
        self._stretches: dict[tuple[int, int, int, int], EpochBatches] = {}

    @property
    def batch_size(self) -> int:
        """Samples that a rank has in a batch."""
        return self._recipe.batch_size

    def remaining(self, *, epoch: int, rank: int, start: int, stop: int) -> int:
        """How many batches a stretch of a rank's epoch is divided into."""
        return len(self._batches(epoch, rank, start, stop))

    def begin(self, name: BatchName) -> Making:
        """Let the threads begin with a batch; returns at once.

        Raises:
            CannotPrepare: It would be larger than a prepared batch may be.
            IndexError: There is no such batch.

        """
        if self._recipe.batch_size > MAX_SAMPLES:
            raise CannotPrepare(f"batch_size must be at most {MAX_SAMPLES} to be prepared; got {self.batch_size}")
        positions, _ = self._batches(name.epoch, name.rank, name.start, name.stop).batch(name.number)
        rows = self._gather.rows(positions)
        shape = self._shapes.of(rows)
        if shape is not None and shape.limits.n_bytes > LIMITS.n_bytes:
            raise CannotPrepare(
                f"a prepared batch must have at most {LIMITS.n_bytes} bytes; batch {name.number} of epoch {name.epoch} "
                f"has {shape.n_bytes}: use smaller batches or images"
            )
        return Making(name, self.fields, rows, self._loader._parts.workshop.source.submit(rows, name.epoch))  # noqa: SLF001

    def _batches(self, epoch: int, rank: int, start: int, stop: int) -> EpochBatches:
        key = (epoch, rank, start, stop)
        if key not in self._stretches:
            if len(self._stretches) >= _MAX_STRETCHES:
                self._stretches.clear()  # of epochs long past; those under way are made again in no time
            self._stretches[key] = self._loader._parts.batches(  # noqa: SLF001
                Ranks(rank, self._recipe.world_size), epoch, start, stop
            )
        return self._stretches[key]

    def close(self) -> None:
        self._loader.close()


class Making:
    """A batch under way."""

    def __init__(self, name: BatchName, fields: tuple[str, ...], rows: Rows, batch: PixelBatch) -> None:
        self.name = name
        self._fields, self._rows, self._batch = fields, rows, batch

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
                f"{self._fields[field]!r} of row {int(self._rows[position])}: {kind}: {message}"
            )
        return flat(dict(zip(self._fields, _take(self._batch), strict=True)), self._rows)
