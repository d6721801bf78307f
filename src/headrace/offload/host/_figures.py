# SPDX-License-Identifier: Apache-2.0
"""What a loader has learned about both sides, and reports: log lines, and `offload` of `Loader.stats`."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from headrace.offload._cost import ProcessCost
from headrace.offload.exchange._documents import short_text
from headrace.offload.host._pace import BUSY, HostPace
from headrace.offload.host._supply import REDONE, OffloadCounts
from headrace.units import seconds_text

_MAX_EPOCHS = 1000
_WORKER_FIGURES = (
    "state", "reason", "batches", "cpu_seconds", "peak_bytes", "mean_bytes", "read_bytes", "written_bytes"
)  # fmt: skip

_log = logging.getLogger("headrace.loader")


@dataclass(slots=True)
class OffloadKnowledge:
    """What is known about both sides, from one epoch to the next."""

    pace: HostPace | None = None
    worker_seconds: float | None = None
    link_seconds: float = 0.0
    take_seconds: float = 0.0
    off: str | None = None
    iterations: int = 0
    plans: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """What the offload worker contributed to each epoch."""
    logged: set[str] = field(default_factory=set)

    def turn_off(self, why: str) -> None:
        """Note why the offload worker is not used, and log it once per kind of reason."""
        self.off = short_text(why)
        kind = why.split(":", maxsplit=1)[0]
        if kind not in self.logged:
            self.logged.add(kind)
            _log.warning("offloading is off: %s", self.off)


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
    """Return the figures for `Loader.stats`. The host's `cpu_seconds` are those of the threads that make batches."""
    busy = sum(engine.get(name, 0.0) for name in BUSY)
    pace, used = knowledge.pace, exchange or {"read_bytes": 0, "worker": None}
    worker = used["worker"]
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
            "cpu_seconds": engine.get("cpu_seconds", busy),
            "process_cpu_seconds": cost.cpu_seconds,
            "peak_bytes": cost.peak_bytes,
            "mean_bytes": cost.mean_bytes,
            "read_bytes": engine.get("bytes_read", 0.0),
            "exchange_bytes": used["read_bytes"],
        },
        "worker": worker and {name: worker[name] for name in _WORKER_FIGURES},
        "exchange": exchange and {name: exchange[name] for name in exchange if name != "worker"},
    }
