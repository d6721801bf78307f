# SPDX-License-Identifier: Apache-2.0
"""Measures the cells of one source: each prong alone, then the strategies beside the host alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks._prongs.cell import ALONE, NEAR_ALONE, SPARING
from benchmarks._prongs.figures import completed, counted_rate
from benchmarks._prongs.near import near_worker

Row = dict[str, Any]

_CELL = Path(__file__).parent / "cell.py"
# A share is tried until the ratio is within these bounds of the one that is wanted, or so often.
_LEAST, _MOST = 0.975, 1.012
_TRIALS = 4
# Epochs of `mte` count as a whole or not at all: shorter ones are more often quiet, and more of them are tried.
_MTE_EPOCH, _MTE_PATIENCE = 0.6, 2


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    seconds: float
    """Of quiet time in each cell."""
    epoch_seconds: float
    """Of an epoch on the host alone."""
    patience: float
    """Times the seconds of quiet time, after which a cell takes what it has."""
    prefetch: int
    sparing: int
    """Batches that the host prefetches where the near worker spares it."""


@dataclass(frozen=True)
class Near:
    """A near worker to be measured: at a share of a core, or at a ratio to the host's speed."""

    share: float | None = None
    ratio: float | None = None
    trainers: tuple[str, ...] = ("none",)
    strategies: tuple[str, ...] = (ALONE, "mte", "wrr", "paced")

    @property
    def label(self) -> str:
        return f"{self.share:g} of a core" if self.ratio is None else f"{self.ratio:g} of the host's speed"


class Bench:
    """Measures cells of one source, one after the other."""

    def __init__(
        self, source: str, dataset: Path, scratch: Path, logs: list[Path], extent: Extent, tell: Callable[[str], None]
    ) -> None:
        self.source, self.dataset, self.scratch, self.logs = source, dataset, scratch, logs
        self.extent, self.tell = extent, tell
        cores = machine.usable_cores()
        self.host_core, self.near_core = cores[0], cores[-1]
        self._ratio_a_share = 1.0  # as the last near worker had it
        self.batches = 24
        trial = self.cell(ALONE, None, 0.0, seconds=extent.seconds / 4)
        self.batches = max(40, min(4000, round(extent.epoch_seconds * trial["batches"] / trial["seconds"])))
        self.host = self.cell(ALONE, None, 0.0)
        tell(f"{source}: the host alone makes {counted_rate(self.host):.0f} images/s, {_quiet(self.host)}")

    def cell(self, strategy: str, exchange: Path | None, step: float, *, seconds: float | None = None) -> Row:
        """Measure one cell."""
        watched = {ALONE: self.logs[:1], NEAR_ALONE: self.logs[1:]}.get(strategy, self.logs)
        order = {
            "source": self.source,
            "dataset": str(self.dataset),
            "exchange": None if exchange is None else str(exchange),
            "strategy": strategy,
            "step": step,
            "batches": round(_MTE_EPOCH * self.batches) if strategy == "mte" else self.batches,
            "seconds": seconds or self.extent.seconds,
            "patience": self.extent.patience * (_MTE_PATIENCE if strategy == "mte" else 1),
            "prefetch": self.extent.sparing if strategy == SPARING else self.extent.prefetch,
            "core": self.host_core,
            "logs": [str(log) for log in watched],
        }
        done = subprocess.run(  # noqa: S603 - our own script
            [sys.executable, str(_CELL), json.dumps(order)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{strategy} on {self.source}: {done.stderr[-2000:]}")
        row: Row = json.loads(done.stdout.splitlines()[-1])
        return {
            "source": self.source,
            "strategy": strategy,
            "epoch_batches": order["batches"],
            "prefetch": order["prefetch"],
            **row,
        }

    def measure(self, wanted: Near) -> list[Row]:
        """Measure the strategies with one near worker, at a share that is given or is found by trial."""
        for trial in range(_TRIALS):
            share = wanted.share or min(0.95, (wanted.ratio or 0.0) / self._ratio_a_share)
            exchange = self._exchange(share)
            with near_worker(self.dataset, exchange, share=share, core=self.near_core):
                near = self.cell(NEAR_ALONE, exchange, 0.0)
                alone = self._alone(near)
                self._ratio_a_share = alone["near_ratio"] / share
                self.tell(
                    f"{self.source}: the near worker at {share:.3f} of a core has {alone['near_ratio']:.3f} of the "
                    f"host's speed, {_quiet(near)}"
                )
                close = wanted.ratio is None or _LEAST <= alone["near_ratio"] / wanted.ratio <= _MOST
                if close or trial == _TRIALS - 1:
                    marks = {"share": share, "wanted": wanted.label, "ratio": wanted.ratio}
                    return [row for trainer in wanted.trainers for row in self._beside(wanted, trainer, alone | marks)]
        return []

    def _beside(self, wanted: Near, trainer: str, given: Row) -> list[Row]:
        """Measure each strategy beside the host alone, with a near worker that runs."""
        exchange, step = self._exchange(given["share"]), _step(trainer, given)
        rows: list[Row] = []
        for strategy in wanted.strategies:
            if strategy == SPARING and trainer == "none":
                continue
            if strategy == ALONE:
                row = self.cell(ALONE, None, step) if step else self.host
            else:
                row = self.cell(strategy, exchange, step)
            row = completed({**row, **given, "trainer": trainer}, rows[0] if rows else None)
            rows.append(row)
            gain = f"{row['rate']:.0f} images/s, {row.get('gain', 1):.3f}x"
            self.tell(f"{self.source} {wanted.label}, {trainer}, {strategy}: {gain}, {_quiet(row)}")
        return rows

    def _exchange(self, share: float) -> Path:
        return self.scratch / f"exchange-{self.source}-{share:.4f}"

    def _alone(self, near: Row) -> Row:
        host_rate, near_rate = counted_rate(self.host), counted_rate(near)
        read = near["prongs"]["exchange"]
        size = self.host["samples"] / self.host["batches"]
        return {
            "host_rate": host_rate,
            "near_rate": near_rate,
            "near_ratio": near_rate / host_rate,
            "host_seconds_a_batch": size / host_rate,
            "near_seconds_a_batch": size / near_rate,
            "take": read["read_cpu_seconds"] / read["read_batches"],
            "fetch": read["read_seconds"] / read["read_batches"],
            "alone_quiet": self.host["quiet"] and near["quiet"],
        }


def _step(trainer: str, alone: Row) -> float:
    host, near = alone["host_seconds_a_batch"], alone["near_seconds_a_batch"]
    return float({"none": 0.0, "matched": host * near / (host + near), "slow": 1.5 * host}[trainer])


def _quiet(row: Row) -> str:
    return f"{row['quiet_seconds']:.1f} of {row['all_seconds']:.1f} s quiet"
