# SPDX-License-Identifier: Apache-2.0
"""Makers of batches, one for each recipe: ranks of one run share the threads and the open dataset."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.offload.exchange._worker import WorkerRank
from headrace.offload.worker._batches import BatchMaker
from headrace.records import open_dataset
from headrace.transforms import Recipe

Maker: TypeAlias = BatchMaker


MAX_RECIPES = 16
"""Recipes that are followed at a time: each has threads, memory and an open dataset of its own."""
_ROWS_A_SAMPLE = 16


class Makers:
    """Gives the maker for a rank's recipe; it is made for the first rank and closed after the last."""

    def __init__(self, dataset: Path, threads: int) -> None:
        self._path, self._threads = dataset, threads
        # A selection may repeat samples. One that is far longer than the dataset is taken for a mistake.
        self.max_rows = max(1 << 20, _ROWS_A_SAMPLE * len(open_dataset(dataset)))
        self._makers: dict[str, tuple[Maker, int]] = {}

    def take(self, near: WorkerRank) -> Maker:
        """Return the maker for a rank. HeadraceError, ValueError or OSError if this dataset is not the recipe's."""
        key = near.origin.recipe
        if key not in self._makers and len(self._makers) >= MAX_RECIPES:
            raise ValueError(f"one offload worker follows at most {MAX_RECIPES} recipes: start another one")
        maker, users = self._makers.get(key) or (self._make(near.recipe, near.rows), 0)
        self._makers[key] = (maker, users + 1)
        return maker

    def _make(self, recipe: Mapping[str, Any], rows: npt.NDArray[np.int64] | None) -> Maker:
        return BatchMaker(
            open_dataset(self._path), Recipe.from_json(json.dumps(recipe)), threads=self._threads, rows=rows
        )

    def give_back(self, near: WorkerRank) -> None:
        key = near.origin.recipe
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
