# SPDX-License-Identifier: Apache-2.0
"""The parts of a loader, put together once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace import transforms
from headrace.loader._device import Transfer
from headrace.loader._feed import Feed, InlineFeed, ThreadFeed
from headrace.loader._finish import Finisher, pixel_fields
from headrace.loader._options import Options
from headrace.loader._order import EpochBatches, EpochPlan, Order
from headrace.loader._output import make_output
from headrace.loader._pipeline import Pipeline
from headrace.loader._pixels import EngineSource, NoPixels, PixelSource
from headrace.loader._ranks import Ranks
from headrace.loader._state import LoaderState, selection_digest
from headrace.loader._stats import Meters, summarise
from headrace.loader._weights import WeightedOrder
from headrace.loader._workshop import Workshop
from headrace.records import Dataset


class Assembly:
    """Order, transforms, engine, finishing and transfer of one loader. Knows nothing of the loader itself."""

    def __init__(
        self,
        dataset: Dataset,
        options: Options,
        *,
        seed: int,
        shuffle: bool,
        weights: npt.ArrayLike | None,
        transform: Any,
    ) -> None:
        self._dataset, self._options = dataset, options
        self.compiled = transforms.compile(
            transform,
            dtype=options.dtype,
            layout=options.layout,
            color=options.color,
            approximate_jpeg=options.approximate_jpeg,
        )
        chances = None if weights is None else np.asarray(weights, np.float64)
        self._order = _make_order(len(dataset), seed, shuffle=shuffle, weights=chances)
        self.first_state = LoaderState(
            epoch=0,
            samples=0,
            seed=seed,
            shuffle=shuffle,
            length=len(dataset),
            selection=selection_digest(dataset.rows, chances),
            fingerprint=dataset.fingerprint,
        )
        self._meters = Meters()
        self._transfer = Transfer(options)
        output = make_output(options.output)
        self._finisher = Finisher(dataset, self.compiled, output, seed=seed, options=options, meters=self._meters)
        compiled = self.compiled
        self.workshop = Workshop(
            lambda: _make_source(dataset, compiled, seed, options), self._finisher.callables, self._transfer
        )

    def plan(self, ranks: Ranks, start: int = 0) -> EpochPlan:
        """Divide an epoch among ranks, from a sample on."""
        return EpochPlan(
            self._order.n,
            batch_size=self._options.batch_size,
            rank=ranks.rank,
            world_size=ranks.world_size,
            drop_last=self._options.drop_last,
            start=start,
        )

    def start(self, plan: EpochPlan, epoch: int) -> Feed:
        """Begin with an epoch's batches."""
        pipeline = Pipeline(
            EpochBatches(self._order, plan, epoch),
            self._dataset.gather,
            self.workshop.source,
            self._finisher,
            self._transfer,
            ahead=self._options.batches_ahead,
        )
        works_ahead = self._transfer.works or self._finisher.runs_python
        return self.workshop.use(ThreadFeed(pipeline) if works_ahead else InlineFeed(pipeline))

    @property
    def meters(self) -> Meters:
        return self._meters

    def stats(self, ready: int) -> dict[str, Any]:
        return summarise(self._meters, self.workshop.stats(), self._transfer.seconds, ready)


def _make_order(n: int, seed: int, *, shuffle: bool, weights: npt.NDArray[np.float64] | None) -> Order | WeightedOrder:
    if weights is None:
        return Order(n, seed=seed, shuffle=shuffle)
    if shuffle:
        raise ValueError("weights draw samples at random already: leave shuffle out")
    if weights.shape != (n,):
        raise ValueError(f"weights has the shape {weights.shape}; the loader has {n} samples, and each needs a weight")
    return WeightedOrder(weights, seed=seed)


def _make_source(dataset: Dataset, compiled: transforms.Compiled, seed: int, options: Options) -> PixelSource:
    names = pixel_fields(dataset, options.fields)
    if not names:
        return NoPixels()
    if options.isolate:
        from headrace.loader._isolated import IsolatedSource  # noqa: PLC0415 - starts processes; rarely asked for

        return IsolatedSource(dataset, names, compiled, seed=seed, options=options)
    return EngineSource(dataset, names, compiled, seed=seed, options=options)
