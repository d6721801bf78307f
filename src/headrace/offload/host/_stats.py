# SPDX-License-Identifier: Apache-2.0
"""What host and offload worker did and used, as `Loader.stats` gives it, and what an epoch gained by it."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict
from typing import Any

from headrace.offload.host._reader import PreparedBatches
from headrace.offload.host._schedule import OffloadKnowledge
from headrace.offload.host._supply import OffloadMeters
from headrace.offload.strategies._model import Watts
from headrace.offload.strategies._strategy import shown

_BUSY = ("read_seconds", "decode_seconds", "transform_seconds")
_MAX_EPOCHS = 1000

_log = logging.getLogger("headrace.loader")


def report_epoch(knowledge: OffloadKnowledge, epoch: int, batches: int, prepared: int, seconds: float) -> None:
    """Note what the offload worker gave to an epoch and what that gained, and log it once.

    Without it each batch would have taken as long as the host needs to make one, or the trainer to use one, whichever
    is longer. What was measured may be a little off, so a small gain may come out below zero: then it is zero.
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
    share = f"epoch {epoch}: the offload worker gave {prepared} of {batches} batches"
    if not prepared:
        why = f" ({knowledge.off})" if knowledge.off else ""
        _log.info("%s%s; the epoch took %s", share, why, shown(seconds))
    elif alone is None or gained is None:
        _log.info("%s; the epoch took %s", share, shown(seconds))
    else:
        _log.info(
            "%s; the epoch took %s, about %s without it (%.0f %% less time)",
            share,
            shown(seconds),
            shown(max(alone, seconds)),
            100 * gained / max(alone, seconds),
        )


class Resources:
    """What this process used since the first epoch with offloading."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._memory = [0.0, 0.0, 0.0]

    def retire(self, near: PreparedBatches | None) -> None:
        """Keep what an epoch that has ended has seen."""
        if near is not None:
            self._memory = _added(self._memory, near.memory)

    def with_current(self, near: PreparedBatches | None) -> dict[str, float]:
        samples, total, peak = self._memory if near is None else _added(self._memory, near.memory)
        return {
            "process_cpu_seconds": time.process_time() - self._cpu,
            "peak_bytes": peak,
            "mean_bytes": total / samples if samples else 0.0,
        }


def _added(first: list[float], then: list[float]) -> list[float]:
    return [first[0] + then[0], first[1] + then[1], max(first[2], then[2])]


def summarise_offload(
    strategy: str,
    knowledge: OffloadKnowledge,
    counts: OffloadMeters,
    resources: dict[str, float],
    engine: dict[str, Any],
    exchange: dict[str, Any] | None,
) -> dict[str, Any]:
    """Put the figures together.

    `cpu_seconds` of the host are those of the threads that make batches; `joules` are those seconds times stated watts
    (`Watts`), and the offload worker's own figure where it gives one.
    """
    watts = Watts()
    busy = sum(engine.get(name, 0.0) for name in _BUSY)
    cpu = engine.get("cpu_seconds", busy)
    near = None if exchange is None else exchange["near"]
    pace = knowledge.pace
    return {
        "strategy": strategy,
        "off": knowledge.off,
        "host_batches": counts.host,
        "offload_batches": counts.near,
        "redone": {"late": counts.late, "lost": counts.lost, "bad": counts.bad, "helped": counts.helped},
        "given_up": list(counts.log),
        "offload_wait_seconds": counts.near_wait_seconds,
        "longest_wait_seconds": counts.longest_wait,
        "bound_seconds": counts.bound,
        "seconds_per_batch": {
            "host": None if pace is None else pace.host,
            "step": None if pace is None else pace.step,
            "worker": knowledge.near_seconds,
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
        "worker": _worker_figures(near, watts),
        "exchange": None if exchange is None else {name: exchange[name] for name in exchange if name != "near"},
        "watts": asdict(watts),
    }


def _worker_figures(beat: dict[str, Any] | None, watts: Watts) -> dict[str, Any] | None:
    if beat is None:
        return None
    kept = ("state", "reason", "batches", "cpu_seconds", "peak_bytes", "mean_bytes", "read_bytes", "written_bytes")
    joules, energy = beat["joules"], beat["energy"]
    if joules is None:
        joules, energy = watts.near * beat["cpu_seconds"], "model"
    return {**{name: beat[name] for name in kept}, "joules": joules, "energy": energy}
