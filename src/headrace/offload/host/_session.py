# SPDX-License-Identifier: Apache-2.0
"""Offloading for one loader, from its first epoch to its end: the exchange with the offload worker, and figures.

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
from headrace.loader.supply import EpochPlan, EpochStart, LoaderState, PixelSource, SupplyContext, samples_of
from headrace.offload.exchange import BatchName, HostExchange
from headrace.offload.exchange._buffers import Buffers
from headrace.offload.exchange._contents import BatchShapes
from headrace.offload.host._absent import AbsentExchange, Exchange
from headrace.offload.host._measure import Measure
from headrace.offload.host._reader import DEPTH, PreparedBatches, ReadingThread
from headrace.offload.host._record import Record, recorded_pattern
from headrace.offload.host._schedule import EpochScheduler, OffloadKnowledge
from headrace.offload.host._stats import Resources, report_epoch, summarise_offload
from headrace.offload.host._supply import OffloadMeters, OffloadSupply
from headrace.offload.strategies._pattern import HOST_ONLY, Turns
from headrace.offload.strategies._strategy import Strategy

# What tells two trainings with the same recipe apart, where several processes must agree on it.
_LAUNCH = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")


class OffloadSession:
    """Offloading for one loader. It lives as long as the loader and does not keep it alive."""

    def __init__(self, path: str, strategy: Strategy, context: SupplyContext) -> None:
        self._path, self._strategy, self._context = path, strategy, context
        self._shapes = BatchShapes(context.dataset, context.fields, context.compiled)
        self._exchange: HostExchange | None = None
        self._process = os.getpid()
        self._world = 0
        self._near: PreparedBatches | None = None
        self._resources = Resources()
        self._counts = OffloadMeters()
        self._refused = False
        self.knowledge = OffloadKnowledge()
        if not context.fields:
            self.refuse("fields: there is no image and no mask among them")
        elif context.weighted:
            self.refuse("weights: the offload worker does not have them")

    def refuse(self, why: str) -> None:
        """Do not offload at all."""
        self._refused = True
        self.knowledge.say(why)

    def start(self, epoch: EpochStart) -> tuple[OffloadSupply, Callable[[int], LoaderState]] | None:
        """Begin an epoch and return (supply, state_after); None if the host makes all batches of it."""
        begun, plan, gather, source = epoch.state, epoch.plan, epoch.gather, epoch.source
        make_batches = epoch.make_batches
        strategy = self._strategy
        if self._refused:
            return None
        if plan.world_size > 1 and not strategy.follows_pattern:
            raise ValueError(
                f"strategy {strategy.name!r} takes what is ready, and {plan.world_size} ranks must take the same: use "
                f"'paced' or 'mte'"
            )
        if not plan.remaining:
            return None
        exchange = self._connect(plan, epoch.recipe, source)
        last = BatchName(begun.epoch, plan.rank, plan.start, plan.stop, plan.remaining - 1)
        tail = make_batches(True)
        near = PreparedBatches(
            exchange,
            last,
            shapes=self._shapes,
            samples=lambda number: samples_of(tail, number, gather),
            depth=min(DEPTH, self._context.batches_ahead),
        )
        near.look()
        record = Record(begun, plan, strategy.name, keeps_order=not strategy.follows_pattern)
        scheduler = EpochScheduler(strategy, self.knowledge, exchange, plan, record)
        stride = plan.batch_size * plan.world_size
        given = recorded_pattern(begun, strategy.name, stride) or strategy.recorded(begun.epoch)
        if given is not None:
            scheduler.follow(given)
        thread = ReadingThread(near)
        supply = OffloadSupply(
            make_batches(False),
            make_batches(True),
            gather,
            source,
            near,
            thread,
            Turns(plan.remaining, given or (HOST_ONLY if strategy.follows_pattern else None)),
            ahead=self._context.batches_ahead,
            helps=strategy.host_helps,
            measure=Measure(
                self._context.meters,
                source.stats,
                threads=self._context.threads,
                images_a_batch=plan.batch_size * len(self._context.fields),
            ),
            meters=self._counts,
            decide=scheduler.decide,
            finished=partial(report_epoch, self.knowledge, begun.epoch),
        )
        scheduler.order(supply)
        thread.start()
        self._resources.retire(self._near)
        self._near = near
        taken = supply.taken
        return supply, lambda batches: record.after(batches, taken)

    def _connect(self, plan: EpochPlan, recipe: dict[str, Any], source: PixelSource) -> Exchange:
        if self._process != os.getpid():  # a forked child has the parent's exchange, and must leave it alone
            self._process, self._exchange = os.getpid(), None
        if self._exchange is not None and self._world == plan.world_size:
            return self._exchange
        self.close()
        try:
            self._exchange = HostExchange(
                self._path,
                run=_run_name(recipe),
                rank=plan.rank,
                recipe=recipe,
                rows=self._context.dataset.rows,
                take=_pinned(self._context) or getattr(source, "memory", None),
            )
        except ExchangeError as error:
            if plan.world_size > 1:
                raise  # other ranks may see the folder, and would walk by a pattern that this one does not know
            why = f"the exchange folder: {error}"
            self.knowledge.say(why)
            return AbsentExchange(self._path, why)  # it may be there when the next epoch begins
        self._world = plan.world_size
        return self._exchange

    def stats(self, engine: dict[str, Any]) -> dict[str, Any]:
        """Tell what came from where, and what both sides used."""
        exchange = self._exchange if self._process == os.getpid() else None
        near = None if exchange is None else exchange.stats()
        return summarise_offload(
            self._strategy.name, self.knowledge, self._counts, self._resources.with_current(self._near), engine, near
        )

    def close(self) -> None:
        """Remove what is left in the exchange folder."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None and self._process == os.getpid():
            exchange.close()

    def drop(self) -> None:
        """Let go without waiting; what is left in the folder is removed by whoever comes next."""
        self._exchange = self._near = None


def _pinned(context: SupplyContext) -> Callable[[int], npt.NDArray[np.uint8]] | None:
    """Give a few buffers of pinned memory, from which a copy to an accelerator is fastest, where there is one."""
    if not context.pinned:
        return None
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return None
    return Buffers(lambda n_bytes: torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True).numpy()).take


def _run_name(recipe: dict[str, Any]) -> str:
    """Name the run: the same on all its ranks, and no other's."""
    if recipe["world_size"] == 1:
        return secrets.token_hex(8)
    told = {"recipe": recipe, "launch": [os.environ.get(name) for name in _LAUNCH]}
    return hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=12).hexdigest()
