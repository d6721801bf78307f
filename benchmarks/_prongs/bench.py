# SPDX-License-Identifier: Apache-2.0
"""Measures the cells of one source: each prong alone, then the strategies beside the host alone, run by run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import machine
from benchmarks._prongs.cell import ALONE, NEAR_ALONE, SPARING
from benchmarks._prongs.figures import completed, rate_of
from benchmarks._prongs.meter import Totals
from benchmarks._prongs.near import near_worker
from benchmarks._prongs.runs import LONGEST, Cell, Disturbed, Row
from benchmarks.gauge import Gauge

_CELL = Path(__file__).parent / "cell.py"
# A share is tried until the ratio is within these bounds of the one that is wanted, or so often.
_LEAST, _MOST = 0.97, 1.015
_TRIALS = 2
# Of `mte` whole epochs are measured, of the others some seconds from the midst, at up to twice the host's rate.
_MIDST = 2.0
# To find a ratio: runs of each prong, and what part of the usual seconds they take.
_ALONE_RUNS, _SHORTER = 2, 0.5


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    seconds: float
    """Of each run of a cell."""
    epoch_seconds: float
    """Of an epoch of `mte`, on the host alone."""
    rounds: int
    """Runs of a cell."""
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

    def cells(self) -> list[tuple[str, str]]:
        """Trainers and strategies; without a trainer there is nothing to spare the host for."""
        pairs = ((trainer, strategy) for trainer in self.trainers for strategy in self.strategies)
        return [pair for pair in pairs if pair != ("none", SPARING)]


class Bench:
    """Measures cells of one source, a run of each in turn."""

    def __init__(
        self, source: str, dataset: Path, scratch: Path, extent: Extent, gauge: Gauge, tell: Callable[[str], None]
    ) -> None:
        self.source, self.dataset, self.scratch = source, dataset, scratch
        self.extent, self.gauge, self.tell = extent, gauge, tell
        cores = machine.usable_cores()
        self.host_core, self.near_core = cores[0], cores[-1]
        self._ratios_a_share: list[float] = []  # as near workers had them
        self._batches_a_second = 20.0
        for _ in range(2):  # the first time to know how many batches it takes
            trial = self._run(self._new(ALONE, "none"), None, 0.0)
            self._batches_a_second = trial.batches / trial.seconds
        self.host = self._new(ALONE, "none")
        """As it was measured last."""
        for _ in range(_ALONE_RUNS):
            self._run(self.host, None, 0.0, _SHORTER)
        tell(f"{source}: the host alone makes {rate_of(self.host.row()):.0f} images/s")

    def measure(self, wanted: Near) -> list[Row]:
        """Measure the strategies with one near worker, at a share that is given or is found by trial."""
        for trial in range(_TRIALS):
            share = wanted.share or min(0.95, (wanted.ratio or 0.0) / median(self._ratios_a_share or [1.0]))
            exchange = self.scratch / f"exchange-{self.source}-{share:.4f}"
            with near_worker(self.dataset, exchange, share=share, core=self.near_core):
                near, self.host = self._new(NEAR_ALONE, "none"), self._new(ALONE, "none")
                for _ in range(_ALONE_RUNS):  # the host anew too: neighbours slow both, for a while
                    self._run(near, exchange, 0.0, _SHORTER)
                    self._run(self.host, None, 0.0, _SHORTER)
                alone = self._alone(near)
                self._ratios_a_share.append(alone["near_ratio"] / share)
                self.tell(
                    f"{self.source}: the near worker at {share:.3f} of a core has {alone['near_ratio']:.3f} of the "
                    f"host's speed"
                )
                close = wanted.ratio is None or _LEAST <= alone["near_ratio"] / wanted.ratio <= _MOST
                if close or trial == _TRIALS - 1:
                    near = self._new(NEAR_ALONE, "none")
                    cells = self._beside(wanted, exchange, near, alone)
                    ratio = self._alone(near)["near_ratio"]
                    marks = {"source": self.source, "share": share, "wanted": wanted.label, "ratio": wanted.ratio}
                    return self._rows(wanted, cells, near, {**marks, "near_ratio": ratio})
        return []

    def _beside(self, wanted: Near, exchange: Path, near: Cell, alone: Row) -> list[Cell]:
        """Measure each strategy beside each prong alone, with a near worker that runs."""
        steps = {trainer: _step(trainer, alone) for trainer in wanted.trainers}
        cells = [self._new(strategy, trainer) for trainer, strategy in wanted.cells()]
        for _ in range(self.extent.rounds):
            for cell in [*cells, near]:
                step = 0.0 if cell is near else steps[cell.trainer]
                self._run(cell, None if cell.strategy == ALONE else exchange, step)
        self.host = next((cell for cell in cells if (cell.strategy, cell.trainer) == (ALONE, "none")), self.host)
        return cells

    def _rows(self, wanted: Near, cells: list[Cell], near: Cell, marks: Row) -> list[Row]:
        rows: list[Row] = []
        for cell in cells:
            row = cell.row()
            disturbed = Disturbed(**row["disturbed"])
            beside = None
            if cell.strategy != ALONE:
                alone = next(each for each in cells if (each.strategy, each.trainer) == (ALONE, cell.trainer))
                beside = completed(alone.row_at(disturbed) | self._alone(near, disturbed), None)
            rows.append(completed(row | self._alone(near, disturbed) | marks, beside))
            gain = f"{rows[-1]['rate']:.0f} images/s, {rows[-1].get('gain', 1):.3f}x"
            self.tell(f"{self.source} {wanted.label}, {cell.trainer}, {cell.strategy}: {gain}")
        return rows

    def _new(self, strategy: str, trainer: str) -> Cell:
        extent = self.extent
        whole = strategy == "mte" and trainer != "slow"  # where the trainer sets the pace, it is off
        seconds = extent.epoch_seconds if whole else _MIDST * (LONGEST * extent.seconds + 6)
        batches = max(40, round(seconds * self._batches_a_second))
        return Cell(strategy, trainer, batches, extent.sparing if strategy == SPARING else extent.prefetch, whole)

    def _run(self, cell: Cell, exchange: Path | None, step: float, part: float = 1.0) -> Totals:
        """Measure a cell for some seconds more."""
        cell.step = step
        order = {
            "source": self.source,
            "dataset": str(self.dataset),
            "exchange": None if exchange is None else str(exchange),
            "strategy": cell.strategy,
            "step": step,
            "batches": cell.epoch_batches,
            "whole_epochs": cell.whole_epochs,
            "seconds": part * self.extent.seconds * cell.length,
            "prefetch": cell.prefetch,
            "core": self.host_core,
        }
        done = subprocess.run(  # noqa: S603 - our own script
            [sys.executable, str(_CELL), json.dumps(order)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{cell.strategy} on {self.source}: {done.stderr[-2000:]}")
        return cell.add(json.loads(done.stdout.splitlines()[-1]), self._disturbed)

    def _disturbed(self, begun: float, ended: float) -> Disturbed:
        return Disturbed(*(self.gauge.disturbed(core, begun, ended) for core in (self.host_core, self.near_core)))

    def _alone(self, near: Cell, disturbed: Disturbed | None = None) -> Row:
        """Both prongs alone, at the disturbance that they were measured at or at another."""
        of_host = self.host.row() if disturbed is None else self.host.row_at(disturbed)
        of_near = near.row() if disturbed is None else near.row_at(disturbed)
        host_rate, near_rate = rate_of(of_host), rate_of(of_near)
        read = of_near["prongs"]["exchange"]
        size = of_host["samples"] / of_host["batches"]
        return {
            "host_rate": host_rate,
            "near_rate": near_rate,
            "near_ratio": near_rate / host_rate,
            "host_seconds_a_batch": size / host_rate,
            "near_seconds_a_batch": size / near_rate,
            "take": read["read_cpu_seconds"] / read["read_batches"],
            "fetch": read["read_seconds"] / read["read_batches"],
            "alone_uncertainty": max(self.host.uncertainty or 0.0, near.uncertainty or 0.0),
        }


def _step(trainer: str, alone: Row) -> float:
    host, near = alone["host_seconds_a_batch"], alone["near_seconds_a_batch"]
    return float({"none": 0.0, "matched": host * near / (host + near), "slow": 1.5 * host}[trainer])
