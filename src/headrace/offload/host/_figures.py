# SPDX-License-Identifier: Apache-2.0
"""The figures of offloading for the user: one log line per epoch, and `offload` of `Loader.stats`."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import Any

from headrace.offload._cost import ProcessCost
from headrace.offload.host._pace import BUSY
from headrace.offload.host._schedule import OffloadKnowledge
from headrace.offload.host._supply import REDONE, OffloadCounts
from headrace.offload.strategies._times import seconds_text

_MAX_EPOCHS = 1000

_log = logging.getLogger("headrace.loader")


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


def summarise_offload(
    strategy: str,
    knowledge: OffloadKnowledge,
    counts: OffloadCounts,
    cost: ProcessCost,
    engine: dict[str, Any],
    exchange: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return the figures for `Loader.stats`.

    The host's `cpu_seconds` are those of the threads that make batches. Its `joules` are these seconds times `Watts`;
    the offload worker's are its own figure, if it has one.
    """
    watts = Watts()
    busy = sum(engine.get(name, 0.0) for name in BUSY)
    cpu_seconds = engine.get("cpu_seconds", busy)
    pace = knowledge.pace
    return {
        "strategy": strategy,
        "off": knowledge.off,
        "host_batches": counts.made.total() - counts.made["prepared"],
        "offload_batches": counts.made["prepared"],
        "redone": {outcome: counts.made[outcome] for outcome in REDONE},
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
            "cpu_seconds": cpu_seconds,
            "process_cpu_seconds": cost.cpu_seconds,
            "peak_bytes": cost.peak_bytes,
            "mean_bytes": cost.mean_bytes,
            "read_bytes": engine.get("bytes_read", 0.0),
            "exchange_bytes": 0 if exchange is None else exchange["read_bytes"],
            "joules": watts.host * cpu_seconds,
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
