# SPDX-License-Identifier: Apache-2.0
"""The pixels of any batch of a recipe, for processes that prepare batches for a loader."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from headrace.errors import LoaderError
from headrace.loader._loader import Loader
from headrace.loader._options import Ranks
from headrace.loader.batch._finish import stored_fields
from headrace.loader.order._order import EpochBatches
from headrace.loader.pixels._engine import PixelSource
from headrace.records import Dataset
from headrace.transforms import Recipe

# Ranges of epochs whose batches are kept. Making one again takes microseconds.
_MAX_RANGES = 64
# Members of a recipe that are arguments of a loader.
_ORDER = ("batch_size", "shuffle", "seed", "drop_last", "world_size")
_PIXELS = ("fields", "dtype", "layout", "color", "min_area", "min_visibility", "approximate_jpeg")


class PixelMaker:
    """Makes batches of pixels that are bit-identical to those of the loader with the same recipe.

    For one thread at a time.
    """

    def __init__(
        self, dataset: Dataset, recipe: Recipe, *, threads: int = 1, rows: npt.NDArray[np.int64] | None = None
    ) -> None:
        """Open it for a dataset; `rows` is the loader's selection of samples, None means all.

        Raises LoaderError if the recipe is for another dataset or selection.
        """
        self.recipe = recipe
        self._loader = Loader(
            dataset,
            **{name: getattr(recipe, name) for name in (*_ORDER, *_PIXELS)},
            transform=recipe.transforms,
            indices=rows,
            num_workers=threads,
            output="numpy",
            rank=0,
        )
        self._parts = self._loader._parts  # noqa: SLF001 - both belong to this package
        ours = self._loader.recipe
        for name in ("fingerprint", "selection"):
            if ours[name] != getattr(recipe, name):
                self.close()
                raise LoaderError(
                    f"the {name} of {dataset.path} must be the recipe's, {getattr(recipe, name)}; found {ours[name]}: "
                    f"give the offload worker the dataset that the loader has"
                )
        self.dataset = self._loader.dataset  # or the selection of its rows
        self.compiled = self._parts.compiled
        self.fields = stored_fields(self.dataset, recipe.fields)
        parts, world_size = self._parts, recipe.world_size  # not `self`, which the cache would keep alive
        self.batches: Callable[[int, int, int, int], EpochBatches] = lru_cache(_MAX_RANGES)(
            lambda epoch, rank, start, stop: parts.batches(Ranks(rank, world_size), epoch, start, stop)
        )
        """Return a rank's batches of the samples [start, stop) of an epoch: `batches(epoch, rank, start, stop)`."""

    @property
    def source(self) -> PixelSource:
        """The threads that make the pixels, started on first use."""
        return self._parts.source

    def close(self) -> None:
        """End the threads."""
        self._loader.close()
