# SPDX-License-Identifier: Apache-2.0
"""The parts of a loader: order, transforms, pixel source, finishing and transfer.

Threads and files are opened when they are first needed, kept between epochs, and closed once.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace import transforms
from headrace.errors import LoaderError
from headrace.loader._options import Options, Ranks
from headrace.loader._pipeline import Feed, HostSupply, Pipeline, Supply, ThreadFeed
from headrace.loader._state import LoaderState, selection_digest
from headrace.loader.batch._finish import Finisher, pixel_fields
from headrace.loader.batch._stats import ENGINE_STATE, LoaderStats, Meters, make_stats
from headrace.loader.batch.output import make_output
from headrace.loader.device._choice import DecodeChoice
from headrace.loader.device._transfer import Transfer
from headrace.loader.order._order import EpochBatches, EpochPlan, make_order
from headrace.loader.pixels._engine import EngineSource, NoPixels, PixelSource
from headrace.loader.pixels._remote import RemoteSource
from headrace.loader.supply import EpochStart, SupplyContext, SupplyProvider
from headrace.records import Dataset


class Assembly:
    """All parts of one loader. It does not refer to the loader itself, so it does not keep it alive.

    Threads do not survive a fork. A forked child forgets what it inherited, without touching it, and makes its own.
    """

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
        made = ("dtype", "layout", "color", "approximate_jpeg", "max_pixels")
        self.compiled = transforms.compile(transform, **{name: getattr(options, name) for name in made})
        table = None if weights is None else np.asarray(weights, np.float64)
        self._order = make_order(len(dataset), seed=seed, shuffle=shuffle, weights=table)
        selection = selection_digest(dataset.rows, table)
        self.first_state = LoaderState(0, 0, seed, shuffle, len(dataset), selection, dataset.fingerprint)
        self.meters = Meters()
        self._pixel_names = pixel_fields(dataset, options.fields)
        self._transfer = Transfer(options)
        self._choice = DecodeChoice(options, dataset, self.compiled, self._pixel_names)
        output = make_output(options.output)
        self._finisher = Finisher(dataset, self.compiled, output, seed=seed, options=options, meters=self.meters)
        context = SupplyContext(
            dataset=dataset,
            fields=self._pixel_names,
            compiled=self.compiled,
            meters=self.meters,
            batches_ahead=options.batches_ahead,
            threads=options.threads,
            pinned=options.pin_memory or (options.device or "").startswith("cuda"),
            weighted=table is not None,
        )
        self._supplier = None if provider is None else provider.open_supplier(context)
        self._source: PixelSource | None = None
        self._final_stats: dict[str, Any] = {}
        self._feed: Feed | None = None
        self._process = os.getpid()
        self._closed = False
        _all.add(self)

    @property
    def decode_place(self) -> str:
        """Where images are decoded. The first call may wait for a self-test of the device."""
        return self._choice.place(self._transfer)

    @property
    def source(self) -> PixelSource:
        """The running source; it is started if necessary."""
        if self._closed:
            raise LoaderError("the loader is closed: make a new one")
        if self._process != os.getpid():
            self._process = os.getpid()
            self._source = self._feed = None
            self._finisher.callables.drop()
            self._transfer.forget()
        if self._source is None:
            self._source = self._make_source()
        return self._source

    def _make_source(self) -> PixelSource:
        parts = self._dataset, self._pixel_names, self.compiled
        if self.decode_place == "device":
            from headrace.loader.device._source import DeviceSource  # noqa: PLC0415 - imports PyTorch

            return DeviceSource(*parts, seed=self._seed, options=self._options, transfer=self._transfer)
        if not self._pixel_names:
            return NoPixels()
        if self._dataset.objects is not None:
            return RemoteSource(*parts, seed=self._seed, options=self._options)
        return EngineSource(*parts, seed=self._seed, options=self._options)

    def recipe(self, world_size: int, *, functions: bool = False) -> dict[str, Any]:
        """Return everything that determines the content of the batches, as JSON (spec/recipe.md).

        Functions in the transform are not JSON, so they raise ValueError. With `functions` they are omitted: the
        caller applies them to what the recipe makes.
        """
        if not functions:
            self.compiled.to_json()  # raises, with the name of the function
        options, state = self._options, self.first_state
        order = {name: getattr(state, name) for name in ("seed", "shuffle", "selection", "fingerprint")}
        shared = ("fields", "batch_size", "drop_last", "layout", "color", "min_area", "approximate_jpeg")
        return transforms.Recipe(
            **order,
            **{name: getattr(options, name) for name in shared},
            transforms=self.compiled.transforms,
            world_size=world_size,
            dtype=self.compiled.dtype,
        ).to_json()

    def plan(self, ranks: Ranks, start: int = 0, stop: int | None = None) -> EpochPlan:
        """Divide samples [start, stop) of an epoch among ranks."""
        size, drop_last = self._options.batch_size, self._options.drop_last
        return EpochPlan(self._order.n, batch_size=size, **ranks._asdict(), drop_last=drop_last, start=start, stop=stop)

    def batches(self, ranks: Ranks, epoch: int, start: int, stop: int) -> EpochBatches:
        """Return the batches of samples [start, stop) of an epoch, for a caller that starts with the last one."""
        return EpochBatches(self._order, self.plan(ranks, start, stop), epoch, descending=True)

    def batches_from(self, ranks: Ranks, state: LoaderState) -> EpochBatches:
        """Return the batches of an epoch from a state on, in the order of a loader without an offload worker."""
        return EpochBatches(self._order, self.plan(ranks, state.samples, state.stop), state.epoch)

    @property
    def supplied(self) -> bool:
        """Whether an offload worker may decide the order of the batches."""
        return self._supplier is not None

    def start(self, plan: EpochPlan, state: LoaderState) -> tuple[Feed, Callable[[int], LoaderState]]:
        """Start an epoch. Return (feed, state_after); state_after(n) is the state after n batches."""
        self._transfer.find_device()
        source = self.source
        supply, state_after = self._start_supply(plan, state, source)
        transfer = self._transfer if self._transfer.works else None
        on_device = partial(self._transfer.on, "deliver") if transfer and self.decode_place == "device" else nullcontext
        pipeline = Pipeline(supply, source, self._finisher, transfer, on_device)
        works_ahead = self._options.num_workers > 0 and (transfer is not None or self._finisher.takes_long)
        self._feed = ThreadFeed(pipeline) if works_ahead else pipeline
        return self._feed, state_after

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
        supply = HostSupply(batches, gather, source, ahead=getattr(source, "ahead", self._options.batches_ahead))
        return supply, partial(state.after, plan)

    def limit_storage(self, rate: float | None) -> None:
        """Emulate slower storage from now on."""
        self._options = replace(self._options, storage_rate=rate)
        self.source.set_storage_rate(rate)

    def stats(self, ready: int) -> LoaderStats:
        source = self._source if self._process == os.getpid() else None
        engine = self._final_stats if source is None else source.stats()
        plan = self._options.plan
        return make_stats(
            self.meters,
            engine,
            transfer_seconds=self._transfer.seconds,
            ready=ready,
            plan=None if plan is None else {"fields": plan["fields"], "predicted": plan.get("predicted")},
            offload=None if self._supplier is None else self._supplier.stats(engine),
        )

    def end_feed(self) -> None:
        """Close the feed of the last epoch and wait for its end."""
        if self._process == os.getpid() and self._feed is not None:
            feed, self._feed = self._feed, None
            feed.close()

    def close(self) -> None:
        """End the threads and free the memory. Can be called again; does nothing in a forked child."""
        if self._process != os.getpid():
            return
        self._closed = True
        self.end_feed()
        source, self._source = self._source, None
        if source is not None:
            self._final_stats = {name: own for name, own in source.stats().items() if name not in ENGINE_STATE}
            source.close()
        self._finisher.callables.close()
        self._transfer.close()
        if self._supplier is not None:
            self._supplier.close()

    def drop(self) -> None:
        """Let everything end without waiting, for finalizers (see `_threads`)."""
        if self._process != os.getpid():
            return
        self._closed = True
        if self._feed is not None:
            self._feed.abandon()
        self._feed = self._source = None
        self._finisher.callables.drop()
        if self._supplier is not None:
            self._supplier.drop()


_all: weakref.WeakSet[Assembly] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for assembly in list(_all):
        assembly.close()
