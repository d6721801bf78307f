# SPDX-License-Identifier: Apache-2.0
"""Offloading for one loader, from its first epoch to its end.

Whatever happens to the worker or the folder, epochs continue: without an exchange the host makes all batches.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import ExchangeError
from headrace.loader.supply import EpochPlan, EpochStart, LoaderState, SupplyContext, samples_of
from headrace.offload._cost import CostMeter
from headrace.offload.exchange import BatchName, HostExchange
from headrace.offload.exchange._batch_file import BatchShapes, Buffers
from headrace.offload.exchange._folder import max_rows
from headrace.offload.host._figures import OffloadKnowledge, summarise_offload
from headrace.offload.host._pace import PaceMeter
from headrace.offload.host._reader import READ_AHEAD, PreparedBatches
from headrace.offload.host._schedule import EpochRecord, EpochScheduler
from headrace.offload.host._supply import OffloadCounts, OffloadSupply, Turns
from headrace.offload.strategies._patterns import HOST_ONLY
from headrace.offload.strategies._strategies import Strategy

# These distinguish two trainings with the same recipe, where several processes must find the same name.
_LAUNCH_VARIABLES = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")


class OffloadSession:
    """Offloading for one loader. It exists as long as the loader and does not keep it alive."""

    def __init__(self, path: str, strategy: Strategy, context: SupplyContext) -> None:
        self._path, self._strategy, self._context = path, strategy, context
        self._shapes = BatchShapes(context.dataset, context.fields, context.compiled)
        self._exchange: HostExchange | None = None
        self._process = os.getpid()
        self._world_size = 0
        self._meter = CostMeter()
        self._counts = OffloadCounts()
        self.knowledge = OffloadKnowledge()
        limit = max_rows(context.dataset.manifest.samples)
        if not context.fields:
            self.knowledge.turn_off("fields: at least one must be an image or a mask")
        elif context.weighted:
            self.knowledge.turn_off("weights: samples that are drawn by weight cannot be offloaded")
        elif context.dataset.rows is not None and len(context.dataset) > limit:
            self.knowledge.turn_off(f"indices: at most {limit} can be offloaded; got {len(context.dataset)}")
        self._refused = self.knowledge.off is not None

    def start(self, epoch: EpochStart) -> tuple[OffloadSupply, Callable[[int], LoaderState]] | None:
        """Begin an epoch and return (supply, state_after); None if the host makes all batches of it."""
        begun, plan, strategy = epoch.state, epoch.plan, self._strategy
        if self._refused or not plan.remaining:
            return None
        if plan.world_size > 1 and not strategy.follows_pattern:
            raise ValueError(
                f"strategy must be 'paced' or 'mte' with {plan.world_size} ranks, which must take the same batches at "
                f"the same time; got {strategy.name!r}"
            )
        exchange = self._connect(plan, epoch.recipe)
        prepared = PreparedBatches(
            exchange,
            BatchName(begun.epoch, plan.rank, plan.start, plan.stop, plan.remaining - 1),
            shapes=self._shapes,
            samples=partial(samples_of, epoch.make_batches(True), gather=epoch.gather),
            read_ahead=min(READ_AHEAD, self._context.batches_ahead),
            sample_memory=self._meter.sample,
        )
        prepared.update()
        record = EpochRecord(begun, plan, strategy.name)
        scheduler = EpochScheduler(strategy, self.knowledge, exchange, plan, record)
        given = record.recorded_pattern() or strategy.recorded(begun.epoch)
        if given is not None:
            scheduler.follow(given)
        supply = OffloadSupply(
            epoch,
            prepared,
            Turns(plan.remaining, given or (HOST_ONLY if strategy.follows_pattern else None)),
            ahead=self._context.batches_ahead,
            pace=PaceMeter(
                self._context.meters,
                epoch.source.stats,
                threads=self._context.threads,
                images_per_batch=plan.batch_size * len(self._context.fields),
            ),
            counts=self._counts,
            decide=scheduler.update,
            finished=scheduler.finish,
        )
        scheduler.request(supply)
        prepared.start()
        taken = supply.taken
        return supply, lambda batches: record.after(batches, taken)

    def _connect(self, plan: EpochPlan, recipe: dict[str, Any]) -> HostExchange | None:
        """Return the exchange, opened for the first epoch and again after an error; None if it cannot be used."""
        if self._process != os.getpid():  # a forked child must not touch the parent's exchange
            self._process, self._exchange = os.getpid(), None
        if self._exchange is not None and self._world_size == plan.world_size:
            return self._exchange
        self.close()
        try:
            self._exchange = HostExchange(
                self._path,
                run=_run_name(recipe),
                rank=plan.rank,
                recipe=recipe,
                rows=self._context.dataset.rows,
                take=_pinned_memory(self._context),
            )
        except ExchangeError as error:
            if plan.world_size > 1:
                raise  # other ranks may use the folder, and would follow a pattern that this rank does not know
            self.knowledge.turn_off(f"the exchange folder: {error}")
            return None
        self._world_size = plan.world_size
        return self._exchange

    def stats(self, engine: dict[str, Any]) -> dict[str, Any]:
        """Return which side made how many batches, and what both sides used."""
        exchange = None if self._exchange is None else self._exchange.stats()
        return summarise_offload(
            self._strategy.name, self.knowledge, self._counts, self._meter.cost(), engine, exchange
        )

    def close(self) -> None:
        """Remove the files of this loader from the exchange folder."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()

    def drop(self) -> None:
        """Release everything without waiting. Files in the exchange folder are removed by whoever uses it next."""
        self._exchange = None


def _pinned_memory(context: SupplyContext) -> Callable[[int], npt.NDArray[np.uint8]] | None:
    """Return buffers of pinned memory, from which a copy to a GPU is fastest; None without a GPU."""
    if not context.pinned:
        return None
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return None
    return Buffers(lambda n_bytes: torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True).numpy()).take


def _run_name(recipe: dict[str, Any]) -> str:
    """Return a name for the run: the same on all its ranks, and different from other runs."""
    if recipe["world_size"] == 1:
        return secrets.token_hex(8)
    launch = {"recipe": recipe, "launch": [os.environ.get(name) for name in _LAUNCH_VARIABLES]}
    return hashlib.blake2b(json.dumps(launch, sort_keys=True).encode(), digest_size=12).hexdigest()
