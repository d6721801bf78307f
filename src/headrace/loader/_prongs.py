# SPDX-License-Identifier: Apache-2.0
"""The two prongs of a loader, from its first epoch to its end: the exchange with the near worker, and what came of it.

Whatever befalls the near worker or the folder, epochs go on: without an exchange the host makes all batches.
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
from headrace.loader._options import Near, Options
from headrace.loader._pipeline import samples_of
from headrace.loader._prongs_absent import AbsentExchange, Exchange
from headrace.loader._prongs_measure import Measure
from headrace.loader._prongs_reader import DEPTH, NearBatches, ReadingThread
from headrace.loader._prongs_record import Record, recorded_pattern
from headrace.loader._prongs_shapes import BatchShapes
from headrace.loader._prongs_stats import Resources, report_epoch, summarise_prongs
from headrace.loader._prongs_supply import ProngMeters, ProngSupply
from headrace.loader._prongs_walk import Knowledge, Walk
from headrace.loader._state import LoaderState
from headrace.loader.batch._stats import Meters
from headrace.loader.order._order import EpochBatches, EpochPlan
from headrace.loader.pixels._engine import PixelSource
from headrace.prongs import BatchName, HostExchange
from headrace.prongs._pattern import HOST_ONLY, Turns
from headrace.prongs._reader_buffers import Buffers
from headrace.records._gather import Gather

# What tells two trainings with the same recipe apart, where several processes must agree on it.
_LAUNCH = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")


class Prongs:
    """Lives as long as its loader, and knows nothing of it, so that it keeps none alive."""

    def __init__(
        self,
        near: Near,
        *,
        fields: tuple[str, ...],
        shapes: BatchShapes,
        rows: npt.NDArray[np.int64] | None,
        options: Options,
        meters: Meters,
    ) -> None:
        self._path, self._strategy = near
        self._fields, self._shapes, self._rows = fields, shapes, rows
        self._options, self._meters = options, meters
        self._exchange: HostExchange | None = None
        self._process = os.getpid()
        self._world = 0
        self._near: NearBatches | None = None
        self._resources = Resources()
        self._counts = ProngMeters()
        self._refused = not fields
        self.knowledge = Knowledge()
        if not fields:
            self.refuse("fields: there is no image and no mask among them")

    def refuse(self, why: str) -> None:
        """Do without the near prong altogether."""
        self._refused = True
        self.knowledge.say(why)

    def start(
        self,
        begun: LoaderState,
        plan: EpochPlan,
        recipe: dict[str, Any],
        make_batches: Callable[[bool], EpochBatches],
        gather: Gather,
        source: PixelSource,
    ) -> tuple[ProngSupply, Callable[[int], LoaderState]] | None:
        """Begin with an epoch; None if the host has to do it alone.

        `make_batches` gives the epoch's batches, for one who takes them from the head or from the tail.
        """
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
        exchange = self._connect(plan, recipe, source)
        last = BatchName(begun.epoch, plan.rank, plan.start, plan.stop, plan.remaining - 1)
        tail = make_batches(True)
        near = NearBatches(
            exchange,
            last,
            shapes=self._shapes,
            samples=lambda number: samples_of(tail, number, gather),
            depth=min(DEPTH, self._options.batches_ahead),
        )
        near.look()
        record = Record(begun, plan, strategy.name, keeps_order=not strategy.follows_pattern)
        walk = Walk(strategy, self.knowledge, exchange, plan, record)
        stride = plan.batch_size * plan.world_size
        given = recorded_pattern(begun, strategy.name, stride) or strategy.recorded(begun.epoch)
        if given is not None:
            walk.follow(given)
        thread = ReadingThread(near)
        supply = ProngSupply(
            make_batches(False),
            make_batches(True),
            gather,
            source,
            near,
            thread,
            Turns(plan.remaining, given or (HOST_ONLY if strategy.follows_pattern else None)),
            ahead=self._options.batches_ahead,
            helps=strategy.host_helps,
            measure=Measure(
                self._meters,
                source.stats,
                threads=self._options.threads,
                images_a_batch=plan.batch_size * len(self._fields),
            ),
            meters=self._counts,
            decide=walk.decide,
            finished=partial(report_epoch, self.knowledge, begun.epoch),
        )
        walk.order(supply)
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
                rows=self._rows,
                take=_pinned(self._options) or getattr(source, "memory", None),
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
        return summarise_prongs(
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


def _pinned(options: Options) -> Callable[[int], npt.NDArray[np.uint8]] | None:
    """Give a few buffers of pinned memory, from which a copy to an accelerator is fastest, where there is one."""
    if not options.pin_memory and not (options.device or "").startswith("cuda"):
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
