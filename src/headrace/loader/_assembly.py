# SPDX-License-Identifier: Apache-2.0
"""The parts of a loader, put together once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace import transforms
from headrace.loader._feed import Feed, InlineFeed, ThreadFeed
from headrace.loader._options import Options
from headrace.loader._pipeline import HostSupply, Pipeline, Supply
from headrace.loader._plan import planned_figures
from headrace.loader._recipe import make_recipe
from headrace.loader._state import LoaderState, selection_digest
from headrace.loader._workshop import Workshop
from headrace.loader.batch._finish import Finisher, pixel_fields
from headrace.loader.batch._output import make_output
from headrace.loader.batch._stats import LoaderStats, Meters, make_stats
from headrace.loader.device._choice import DecodeChoice
from headrace.loader.device._transfer import Transfer
from headrace.loader.order._order import EpochBatches, EpochPlan, Order
from headrace.loader.order._ranks import Ranks
from headrace.loader.order._weights import WeightedOrder
from headrace.loader.pixels._engine import EngineSource, NoPixels, PixelSource
from headrace.loader.supply import EpochStart, EpochSupplier, SupplyContext, SupplyProvider
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
        provider: SupplyProvider | None = None,
    ) -> None:
        self._dataset, self._options = dataset, options
        self.compiled = transforms.compile(
            transform,
            dtype=options.dtype,
            layout=options.layout,
            color=options.color,
            approximate_jpeg=options.approximate_jpeg,
            max_pixels=options.max_pixels,
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
        transfer, compiled = self._transfer, self.compiled
        choice = self._choice = DecodeChoice(options, dataset, compiled, pixel_fields(dataset, options.fields))
        output = make_output(options.output)
        self._finisher = Finisher(
            dataset,
            self.compiled,
            output,
            seed=seed,
            options=options,
            meters=self._meters,
            beside=lambda: transfer.delivering() if choice.place(transfer) == "device" else nullcontext(),
        )
        weighted = chances is not None
        self._supplier = None if provider is None else self._open_supplier(provider, weighted=weighted)
        self.workshop = Workshop(
            lambda: (
                _make_device_source(dataset, compiled, seed, options, transfer)
                if choice.place(transfer) == "device"
                else _make_source(dataset, compiled, seed, options)
            ),
            self._finisher.callables,
            self._transfer,
            self._supplier,
        )

    @property
    def decode_place(self) -> str:
        """Where images are decoded; the first answer may wait for a self-test of the device."""
        return self._choice.place(self._transfer)

    def _open_supplier(self, provider: SupplyProvider, *, weighted: bool) -> EpochSupplier:
        options = self._options
        return provider.open_supplier(
            SupplyContext(
                dataset=self._dataset,
                fields=pixel_fields(self._dataset, options.fields),
                compiled=self.compiled,
                meters=self._meters,
                batches_ahead=options.batches_ahead,
                threads=options.threads,
                pinned=options.pin_memory or (options.device or "").startswith("cuda"),
                weighted=weighted,
            )
        )

    def plan(self, ranks: Ranks, start: int = 0, stop: int | None = None) -> EpochPlan:
        """Divide an epoch among ranks, from a sample on, and up to those that came from its tail."""
        return EpochPlan(
            self._order.n,
            batch_size=self._options.batch_size,
            rank=ranks.rank,
            world_size=ranks.world_size,
            drop_last=self._options.drop_last,
            start=start,
            stop=stop,
        )

    def batches(self, ranks: Ranks, epoch: int, start: int, stop: int) -> EpochBatches:
        """Give the batches of a stretch of an epoch, for one who takes them from the last one down."""
        return EpochBatches(self._order, self.plan(ranks, start, stop), epoch, descending=True)

    def start(self, plan: EpochPlan, begun: LoaderState) -> tuple[Feed, Callable[[int], LoaderState]]:
        """Begin with an epoch's batches; what comes second tells the state after so many of them."""
        self._transfer.find_device()
        source = self.workshop.source
        supply, state_after = self._start_supply(plan, begun, source) or (None, None)
        if supply is None or state_after is None:
            batches = EpochBatches(self._order, plan, begun.epoch)
            supply = HostSupply(batches, self._dataset.gather, source, ahead=self._options.batches_ahead)
            state_after = partial(begun.after, plan)
        pipeline = Pipeline(supply, source, self._finisher, self._transfer)
        works_ahead = self._options.num_workers > 0 and (self._transfer.works or self._finisher.runs_python)
        feed = self.workshop.use(ThreadFeed(pipeline) if works_ahead else InlineFeed(pipeline))
        return feed, state_after

    def _start_supply(
        self, plan: EpochPlan, begun: LoaderState, source: PixelSource
    ) -> tuple[Supply, Callable[[int], LoaderState]] | None:
        if self._supplier is None:
            return None
        order = self._order
        return self._supplier.start(
            EpochStart(
                state=begun,
                plan=plan,
                recipe=make_recipe(
                    self._options, self.compiled, self.first_state, world_size=plan.world_size, functions=True
                ),
                make_batches=lambda descending: EpochBatches(order, plan, begun.epoch, descending=descending),
                gather=self._dataset.gather,
                source=source,
            )
        )

    def limit_storage(self, rate: float | None) -> None:
        """Emulate slower storage, from now on."""
        self._options = replace(self._options, storage_rate=rate)
        self.workshop.source.set_storage_rate(rate)

    @property
    def meters(self) -> Meters:
        return self._meters

    def stats(self, ready: int) -> LoaderStats:
        engine = self.workshop.stats()
        return make_stats(
            self._meters,
            engine,
            transfer_seconds=self._transfer.seconds,
            ready=ready,
            plan=planned_figures(self._options.plan),
            offload=None if self._supplier is None else self._supplier.stats(engine),
        )


def _make_order(n: int, seed: int, *, shuffle: bool, weights: npt.NDArray[np.float64] | None) -> Order | WeightedOrder:
    if weights is None:
        return Order(n, seed=seed, shuffle=shuffle)
    if shuffle:
        raise ValueError("weights draw samples at random already: leave shuffle out")
    if weights.shape != (n,):
        raise ValueError(f"weights has the shape {weights.shape}; the loader has {n} samples, and each needs a weight")
    return WeightedOrder(weights, seed=seed)


def _make_device_source(
    dataset: Dataset, compiled: transforms.Compiled, seed: int, options: Options, transfer: Transfer
) -> PixelSource:
    from headrace.loader.device._source import DeviceSource  # noqa: PLC0415 - brings PyTorch

    names = pixel_fields(dataset, options.fields)
    return DeviceSource(dataset, names, compiled, seed=seed, options=options, transfer=transfer)


def _make_source(dataset: Dataset, compiled: transforms.Compiled, seed: int, options: Options) -> PixelSource:
    names = pixel_fields(dataset, options.fields)
    if not names:
        return NoPixels()
    return EngineSource(dataset, names, compiled, seed=seed, options=options)
