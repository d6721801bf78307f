# SPDX-License-Identifier: Apache-2.0
"""Offloading for one loader, from its first epoch to its end.

Whatever happens to the worker or the folder, epochs continue: without an exchange the host makes all batches.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import ExchangeError
from headrace.loader.supply import EpochPlan, EpochStart, LoaderState, SupplyContext, samples_of
from headrace.offload.exchange import BatchName, HostExchange
from headrace.offload.exchange._batch_file import BatchShapes, Buffers
from headrace.offload.host._reader import READ_AHEAD, PreparedBatches, ReadingThread
from headrace.offload.host._schedule import EpochRecord, EpochScheduler, OffloadKnowledge, recorded_pattern
from headrace.offload.host._supply import BUSY, OffloadCounts, OffloadSupply, PaceMeter, Turns
from headrace.offload.strategies._strategies import HOST_ONLY, Strategy, seconds_text

# These distinguish two trainings with the same recipe, where several processes must find the same name.
_LAUNCH_VARIABLES = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")
_MAX_EPOCHS = 1000

_log = logging.getLogger("headrace.loader")


class OffloadSession:
    """Offloading for one loader. It exists as long as the loader and does not keep it alive."""

    def __init__(self, path: str, strategy: Strategy, context: SupplyContext) -> None:
        self._path, self._strategy, self._context = path, strategy, context
        self._shapes = BatchShapes(context.dataset, context.fields, context.compiled)
        self._exchange: HostExchange | None = None
        self._process = os.getpid()
        self._world_size = 0
        self._prepared: PreparedBatches | None = None
        self._resources = HostResources()
        self._counts = OffloadCounts()
        self.knowledge = OffloadKnowledge()
        if not context.fields:
            self.knowledge.turn_off("fields: none of them is an image or a mask")
        elif context.weighted:
            self.knowledge.turn_off("weights: the offload worker does not have them")
        self._refused = self.knowledge.off is not None

    def start(self, epoch: EpochStart) -> tuple[OffloadSupply, Callable[[int], LoaderState]] | None:
        """Begin an epoch and return (supply, state_after); None if the host makes all batches of it."""
        begun, plan, gather, source = epoch.state, epoch.plan, epoch.gather, epoch.source
        strategy = self._strategy
        if self._refused:
            return None
        if plan.world_size > 1 and not strategy.follows_pattern:
            raise ValueError(
                f"strategy must be 'paced' or 'mte' with {plan.world_size} ranks, which must take the same batches at "
                f"the same time; got {strategy.name!r}"
            )
        if not plan.remaining:
            return None
        exchange = self._connect(plan, epoch.recipe)
        prepared = PreparedBatches(
            exchange,
            BatchName(begun.epoch, plan.rank, plan.start, plan.stop, plan.remaining - 1),
            shapes=self._shapes,
            samples=partial(samples_of, epoch.make_batches(True), gather=gather),
            read_ahead=min(READ_AHEAD, self._context.batches_ahead),
        )
        prepared.update()
        record = EpochRecord(begun, plan, strategy.name, keeps_order=not strategy.follows_pattern)
        scheduler = EpochScheduler(strategy, self.knowledge, exchange, plan, record)
        stride = plan.batch_size * plan.world_size
        given = recorded_pattern(begun, strategy.name, stride) or strategy.recorded(begun.epoch)
        if given is not None:
            scheduler.follow(given)
        thread = ReadingThread(prepared)
        supply = OffloadSupply(
            epoch.make_batches(False),
            epoch.make_batches(True),
            gather,
            source,
            prepared,
            thread,
            Turns(plan.remaining, given or (HOST_ONLY if strategy.follows_pattern else None)),
            ahead=self._context.batches_ahead,
            pace=PaceMeter(
                self._context.meters,
                source.stats,
                threads=self._context.threads,
                images_per_batch=plan.batch_size * len(self._context.fields),
            ),
            counts=self._counts,
            decide=scheduler.update,
            finished=partial(report_epoch, self.knowledge, begun.epoch),
        )
        scheduler.request(supply)
        thread.start()
        self._resources.retire(self._prepared)
        self._prepared = prepared
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
        exchange = self._exchange if self._process == os.getpid() else None
        return summarise_offload(
            self._strategy.name,
            self.knowledge,
            self._counts,
            self._resources.with_current(self._prepared),
            engine,
            None if exchange is None else exchange.stats(),
        )

    def close(self) -> None:
        """Remove the files of this loader from the exchange folder."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None and self._process == os.getpid():
            exchange.close()

    def drop(self) -> None:
        """Release everything without waiting. Files in the exchange folder are removed by whoever uses it next."""
        self._exchange = self._prepared = None


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


# What both sides did and used.


@dataclass(frozen=True, slots=True)
class Watts:
    """Power of a core while it is busy, above its idle power.

    Assumed, not measured: a core of a server, and the processor of a computational storage device.
    """

    host: float = 6.0
    worker: float = 2.0


def report_epoch(knowledge: OffloadKnowledge, epoch: int, batches: int, prepared: int, seconds: float) -> None:
    """Note and log what the offload worker contributed to an epoch, and the time that this saved.

    Without it, each batch would have taken as long as the host or the trainer, whichever is slower. Measurements are
    not exact, so a small gain may come out negative; it is reported as zero.
    """
    pace = knowledge.pace
    alone = None if pace is None else batches * max(pace.host, pace.step)
    gained = None if alone is None else max(0.0, alone - seconds) if prepared else 0.0
    knowledge.epochs.append(
        {
            "epoch": epoch,
            "batches": batches,
            "offload_batches": prepared,
            "seconds": seconds,
            "host_only_seconds": alone,
            "gained_seconds": gained,
        }
    )
    del knowledge.epochs[:-_MAX_EPOCHS]
    why = f" ({knowledge.off})" if knowledge.off and not prepared else ""
    line = f"epoch {epoch}: the offload worker prepared {prepared} of {batches} batches{why}; the epoch took "
    line += seconds_text(seconds)
    if prepared and alone is not None and gained is not None:
        longest = max(alone, seconds)
        line += f", about {seconds_text(longest)} without it ({100 * gained / longest:.0f} % less time)"
    _log.info(line)


class HostResources:
    """CPU time and memory of this process since the first epoch with offloading."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._memory = [0.0, 0.0, 0.0]

    def retire(self, prepared: PreparedBatches | None) -> None:
        """Keep the samples of an epoch that has ended."""
        if prepared is not None:
            self._memory = _add(self._memory, prepared.memory)

    def with_current(self, prepared: PreparedBatches | None) -> dict[str, float]:
        samples, total, peak = self._memory if prepared is None else _add(self._memory, prepared.memory)
        return {
            "process_cpu_seconds": time.process_time() - self._cpu,
            "peak_bytes": peak,
            "mean_bytes": total / samples if samples else 0.0,
        }


def _add(first: list[float], then: list[float]) -> list[float]:
    return [first[0] + then[0], first[1] + then[1], max(first[2], then[2])]


def summarise_offload(
    strategy: str,
    knowledge: OffloadKnowledge,
    counts: OffloadCounts,
    resources: dict[str, float],
    engine: dict[str, Any],
    exchange: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return the figures for `Loader.stats`.

    The host's `cpu_seconds` are those of the threads that make batches. Its `joules` are these seconds times `Watts`;
    the offload worker's are its own figure, if it has one.
    """
    watts = Watts()
    busy = sum(engine.get(name, 0.0) for name in BUSY)
    cpu = engine.get("cpu_seconds", busy)
    pace = knowledge.pace
    return {
        "strategy": strategy,
        "off": knowledge.off,
        "host_batches": counts.host,
        "offload_batches": counts.prepared,
        "redone": {"late": counts.late, "lost": counts.lost, "bad": counts.bad, "helped": counts.helped},
        "given_up": list(counts.given_up),
        "offload_wait_seconds": counts.wait_seconds,
        "longest_wait_seconds": counts.longest_wait,
        "bound_seconds": counts.longest_limit,
        "seconds_per_batch": {
            "host": None if pace is None else pace.host,
            "step": None if pace is None else pace.step,
            "worker": knowledge.worker_seconds,
            "link": knowledge.link_seconds,
            "take": knowledge.take_seconds,
        },
        "plans": [dict(plan) for plan in knowledge.plans],
        "epochs": [dict(epoch) for epoch in knowledge.epochs],
        "host": {
            "busy_seconds": busy,
            "cpu_seconds": cpu,
            **resources,
            "read_bytes": engine.get("bytes_read", 0.0),
            "exchange_bytes": 0 if exchange is None else exchange["read_bytes"],
            "joules": watts.host * cpu,
            "energy": "model",
        },
        "worker": None if exchange is None else _worker_figures(exchange["worker"], watts),
        "exchange": None if exchange is None else {name: exchange[name] for name in exchange if name != "worker"},
        "watts": asdict(watts),
    }


def _worker_figures(beat: dict[str, Any] | None, watts: Watts) -> dict[str, Any] | None:
    if beat is None:
        return None
    kept = ("state", "reason", "batches", "cpu_seconds", "peak_bytes", "mean_bytes", "read_bytes", "written_bytes")
    joules, energy = beat["joules"], beat["energy"]
    if joules is None:
        joules, energy = watts.worker * beat["cpu_seconds"], "model"
    return {**{name: beat[name] for name in kept}, "joules": joules, "energy": energy}
