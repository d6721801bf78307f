# SPDX-License-Identifier: Apache-2.0
"""The parts of a loader, created once: order, transforms, pixel source, finishing and transfer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace import transforms
from headrace.loader._feed import Feed, ThreadFeed
from headrace.loader._options import Options
from headrace.loader._pipeline import HostSupply, Pipeline, Supply
from headrace.loader._plan import planned_figures
from headrace.loader._state import LoaderState, selection_digest
from headrace.loader._workshop import Workshop
from headrace.loader.batch._finish import Finisher, pixel_fields
from headrace.loader.batch._stats import LoaderStats, Meters, make_stats
from headrace.loader.batch.output import make_output
from headrace.loader.device._choice import DecodeChoice
from headrace.loader.device._transfer import Transfer
from headrace.loader.order._order import AnyOrder, EpochBatches, EpochPlan, Order
from headrace.loader.order._ranks import Ranks
from headrace.loader.order._weights import WeightedOrder
from headrace.loader.pixels._engine import EngineSource, NoPixels, PixelSource
from headrace.loader.supply import EpochStart, EpochSupplier, SupplyContext, SupplyProvider
from headrace.records import Dataset


class Assembly:
    """All parts of one loader. It does not refer to the loader itself."""

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
        self._dataset, self._options, self._seed = dataset, options, seed
        self.compiled = transforms.compile(
            transform,
            dtype=options.dtype,
            layout=options.layout,
            color=options.color,
            approximate_jpeg=options.approximate_jpeg,
            max_pixels=options.max_pixels,
        )
        table = None if weights is None else np.asarray(weights, np.float64)
        self._order = _make_order(len(dataset), seed, shuffle=shuffle, weights=table)
        self.first_state = LoaderState(
            epoch=0,
            samples=0,
            seed=seed,
            shuffle=shuffle,
            length=len(dataset),
            selection=selection_digest(dataset.rows, table),
            fingerprint=dataset.fingerprint,
        )
        self.meters = Meters()
        self._pixel_names = pixel_fields(dataset, options.fields)
        self._transfer = Transfer(options)
        self._choice = DecodeChoice(options, dataset, self.compiled, self._pixel_names)
        output = make_output(options.output)
        self._finisher = Finisher(dataset, self.compiled, output, seed=seed, options=options, meters=self.meters)
        self._supplier = None if provider is None else self._open_supplier(provider, weighted=table is not None)
        self.workshop = Workshop(self._source_maker(), self._finisher.callables, self._transfer, self._supplier)

    @property
    def decode_place(self) -> str:
        """Where images are decoded. The first call may wait for a self-test of the device."""
        return self._choice.place(self._transfer)

    def _source_maker(self) -> Callable[[], PixelSource]:
        dataset, names, compiled, seed = self._dataset, self._pixel_names, self.compiled, self._seed
        choice, transfer, options = self._choice, self._transfer, self._options

        def make_source() -> PixelSource:
            if choice.place(transfer) == "device":
                from headrace.loader.device._source import DeviceSource  # noqa: PLC0415 - imports PyTorch

                return DeviceSource(dataset, names, compiled, seed=seed, options=options, transfer=transfer)
            if not names:
                return NoPixels()
            return EngineSource(dataset, names, compiled, seed=seed, options=options)

        return make_source

    def _open_supplier(self, provider: SupplyProvider, *, weighted: bool) -> EpochSupplier:
        options = self._options
        return provider.open_supplier(
            SupplyContext(
                dataset=self._dataset,
                fields=self._pixel_names,
                compiled=self.compiled,
                meters=self.meters,
                batches_ahead=options.batches_ahead,
                threads=options.threads,
                pinned=options.pin_memory or (options.device or "").startswith("cuda"),
                weighted=weighted,
            )
        )

    def recipe(self, world_size: int, *, functions: bool = False) -> dict[str, Any]:
        """Return everything that determines the content of the batches, as JSON (spec/recipe.md).

        Functions in the transform are not JSON, so they raise ValueError. With `functions` they are omitted: the
        caller applies them to what the recipe makes.
        """
        if not functions:
            self.compiled.to_json()  # raises, with the name of the function
        options, state = self._options, self.first_state
        return transforms.Recipe(
            fields=options.fields,
            transforms=self.compiled.transforms,
            seed=state.seed,
            batch_size=options.batch_size,
            fingerprint=state.fingerprint,
            world_size=world_size,
            shuffle=state.shuffle,
            drop_last=options.drop_last,
            dtype=self.compiled.dtype,
            layout=options.layout,
            color=options.color,
            min_area=options.min_area,
            approximate_jpeg=options.approximate_jpeg,
            selection=state.selection,
        ).to_json()

    def plan(self, ranks: Ranks, start: int = 0, stop: int | None = None) -> EpochPlan:
        """Divide samples [start, stop) of an epoch among ranks."""
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
        """Return the batches of samples [start, stop) of an epoch, for a caller that starts with the last one."""
        return EpochBatches(self._order, self.plan(ranks, start, stop), epoch, descending=True)

    def start(self, plan: EpochPlan, state: LoaderState) -> tuple[Feed, Callable[[int], LoaderState]]:
        """Start an epoch. Return (feed, state_after); state_after(n) is the state after n batches."""
        self._transfer.find_device()
        source = self.workshop.source
        supply, state_after = self._start_supply(plan, state, source)
        transfer = self._transfer if self._transfer.works else None
        on_device = self._transfer.delivering if transfer and self.decode_place == "device" else nullcontext
        pipeline = Pipeline(supply, source, self._finisher, transfer, on_device)
        works_ahead = self._options.num_workers > 0 and (transfer is not None or self._finisher.runs_python)
        return self.workshop.use(ThreadFeed(pipeline) if works_ahead else pipeline), state_after

    def _start_supply(
        self, plan: EpochPlan, state: LoaderState, source: PixelSource
    ) -> tuple[Supply, Callable[[int], LoaderState]]:
        order, gather = self._order, self._dataset.gather
        if self._supplier is not None:
            started = self._supplier.start(
                EpochStart(
                    state=state,
                    plan=plan,
                    recipe=self.recipe(plan.world_size, functions=True),
                    make_batches=lambda descending: EpochBatches(order, plan, state.epoch, descending=descending),
                    gather=gather,
                    source=source,
                )
            )
            if started is not None:
                return started
        batches = EpochBatches(order, plan, state.epoch)
        supply = HostSupply(batches, gather, source, ahead=self._options.batches_ahead)
        return supply, partial(state.after, plan)

    def limit_storage(self, rate: float | None) -> None:
        """Emulate slower storage from now on."""
        self._options = replace(self._options, storage_rate=rate)
        self.workshop.source.set_storage_rate(rate)

    def stats(self, ready: int) -> LoaderStats:
        engine = self.workshop.stats()
        return make_stats(
            self.meters,
            engine,
            transfer_seconds=self._transfer.seconds,
            ready=ready,
            plan=planned_figures(self._options.plan),
            offload=None if self._supplier is None else self._supplier.stats(engine),
        )


def _make_order(n: int, seed: int, *, shuffle: bool, weights: npt.NDArray[np.float64] | None) -> AnyOrder:
    if weights is None:
        return Order(n, seed=seed, shuffle=shuffle)
    if shuffle:
        raise ValueError("shuffle must not be set together with weights, which draw samples at random already")
    if weights.shape != (n,):
        raise ValueError(f"weights must have one number per sample, {n} samples; its shape is {weights.shape}")
    return WeightedOrder(weights, seed=seed)
