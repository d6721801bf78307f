# SPDX-License-Identifier: Apache-2.0
"""Measures the cells of one source: each prong alone, then the strategies beside the host alone, in turns."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks._prongs.cell import ALONE, NEAR_ALONE, SPARING
from benchmarks._prongs.figures import completed, counted_rate
from benchmarks._prongs.floors import Floors
from benchmarks._prongs.meter import Totals
from benchmarks._prongs.near import near_worker

Row = dict[str, Any]

_CELL = Path(__file__).parent / "cell.py"
# A share is tried until the ratio is within these bounds of the one that is wanted, or so often.
_LEAST, _MOST = 0.985, 1.005
_TRIALS = 6
# Epochs of `mte` count as a whole or not at all: short ones are more often left alone. Of the others some seconds do,
# from the midst, at up to twice the host's rate.
_MIDST = 2.0
_ENOUGH = 0.75  # of the seconds of a cell: its last slice is not always a whole one


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    seconds: float
    """Of each cell, that nothing has slowed."""
    epoch_seconds: float
    """Of an epoch of `mte`, on the host alone."""
    rounds: int
    """Turns of a cell, after which it takes what it has."""
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


@dataclass
class Cell:
    """What a cell's turns have come to so far."""

    strategy: str
    trainer: str
    epoch_batches: int
    prefetch: int
    whole_epochs: bool
    step: float = 0.0
    turns: list[tuple[Totals, dict[str, Any] | None]] = field(default_factory=list)
    """With those that are epochs, how they were walked."""
    runs: list[Row] = field(default_factory=list)
    """What else the processes have told."""

    def add(self, run: Row) -> list[Totals]:
        """Add what a process has measured; gives its turns."""
        turns = [Totals(**each) for each in run.pop("turns")]
        self.turns += zip(turns, run.pop("plans"), strict=True)
        self.runs.append(run)
        return turns

    def counted(self, floors: Floors) -> list[tuple[Totals, dict[str, Any] | None]]:
        return [each for each in self.turns if floors.counts(each[0], self.trainer)]

    def seconds(self, floors: Floors) -> float:
        """How much of it counts."""
        return sum(turn.seconds for turn, _ in self.counted(floors))

    def row(self, floors: Floors, enough: float) -> Row:
        """Its figures: from what nothing slowed, or from all of it where that is nothing."""
        counted = self.counted(floors)
        total, everything = (Totals.sum(turn for turn, _ in turns) for turns in (counted or self.turns, self.turns))
        return {
            "strategy": self.strategy,
            "trainer": self.trainer,
            "epoch_batches": self.epoch_batches,
            "prefetch": self.prefetch,
            **asdict(total),
            "step": self.step,
            "buffer_bytes": sum(run["buffer_bytes"] for run in self.runs) / len(self.runs),
            "prongs": self.runs[-1]["prongs"],
            "epochs": [
                {"seconds": turn.seconds, "batches": turn.batches, "plan": plan} for turn, plan in counted if plan
            ],
            "quiet": bool(counted) and total.seconds >= 0.5 * enough,
            "quiet_seconds": total.seconds if counted else 0.0,
            "all_seconds": everything.seconds,
            "all_rate": everything.samples / everything.seconds,
        }


class Bench:
    """Measures cells of one source, in turns, until of each enough counts."""

    def __init__(self, source: str, dataset: Path, scratch: Path, extent: Extent, tell: Callable[[str], None]) -> None:
        self.source, self.dataset, self.scratch = source, dataset, scratch
        self.extent, self.tell = extent, tell
        cores = machine.usable_cores()
        self.host_core, self.near_core = cores[0], cores[-1]
        self._floors = Floors()
        self._ratio_a_share = 1.0  # as the last near worker had it
        self._batches_a_second = 20.0
        for _ in range(2):  # the first time to know how many batches it takes
            trial = Totals.sum(self._run(self._new(ALONE, "none"), None, 0.0))
            self._batches_a_second = trial.batches / trial.seconds
        self.host = self._new(ALONE, "none")
        self._settle(self.host, None)
        rate = counted_rate(self._row(self.host))
        tell(f"{source}: the host alone makes {rate:.0f} images/s, {self._quiet(self.host)}")

    def measure(self, wanted: Near) -> list[Row]:
        """Measure the strategies with one near worker, at a share that is given or is found by trial."""
        for trial in range(_TRIALS):
            share = wanted.share or min(0.95, (wanted.ratio or 0.0) / self._ratio_a_share)
            exchange = self.scratch / f"exchange-{self.source}-{share:.4f}"
            with near_worker(self.dataset, exchange, share=share, core=self.near_core):
                near = self._new(NEAR_ALONE, "none")
                self._settle(near, exchange)
                alone = self._alone(near)
                self._ratio_a_share = alone["near_ratio"] / share
                self.tell(
                    f"{self.source}: the near worker at {share:.3f} of a core has {alone['near_ratio']:.3f} of the "
                    f"host's speed, {self._quiet(near)}"
                )
                close = wanted.ratio is None or _LEAST <= alone["near_ratio"] / wanted.ratio <= _MOST
                if close or trial == _TRIALS - 1:
                    cells = self._beside(wanted, exchange, alone)
                    marks = {"source": self.source, "share": share, "wanted": wanted.label, "ratio": wanted.ratio}
                    return self._rows(wanted, cells, self._alone(near) | marks)
        return []

    def _beside(self, wanted: Near, exchange: Path, alone: Row) -> list[Cell]:
        """Measure each strategy beside the host alone, with a near worker that runs."""
        cells = [
            self.host if (trainer, strategy) == ("none", ALONE) else self._new(strategy, trainer)
            for trainer, strategy in wanted.cells()
        ]
        steps = {trainer: _step(trainer, alone) for trainer in wanted.trainers}
        for number in range(self.extent.rounds):
            for cell in cells:
                # The host alone has another turn in each round: what it is compared with is measured between its turns.
                if number == 0 or not self._enough(cell):
                    self._run(cell, None if cell.strategy == ALONE else exchange, steps[cell.trainer])
        return cells

    def _rows(self, wanted: Near, cells: list[Cell], given: Row) -> list[Row]:
        rows: list[Row] = []
        alone: dict[str, Row] = {}
        for cell in cells:
            row = completed(self._row(cell) | given, alone.get(cell.trainer))
            alone.setdefault(cell.trainer, row)
            rows.append(row)
            gain = f"{row['rate']:.0f} images/s, {row.get('gain', 1):.3f}x"
            self.tell(f"{self.source} {wanted.label}, {cell.trainer}, {cell.strategy}: {gain}, {self._quiet(cell)}")
        return rows

    def _new(self, strategy: str, trainer: str) -> Cell:
        extent = self.extent
        whole = strategy == "mte" and trainer != "slow"  # where the trainer sets the pace, it is off
        seconds = extent.epoch_seconds if whole else _MIDST * (extent.seconds + 4)
        batches = max(40, round(seconds * self._batches_a_second))
        return Cell(strategy, trainer, batches, extent.sparing if strategy == SPARING else extent.prefetch, whole)

    def _settle(self, cell: Cell, exchange: Path | None) -> None:
        for _ in range(self.extent.rounds):
            self._run(cell, exchange, 0.0)
            if self._enough(cell):
                return

    def _run(self, cell: Cell, exchange: Path | None, step: float) -> list[Totals]:
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
            "seconds": self.extent.seconds,
            "prefetch": cell.prefetch,
            "core": self.host_core,
        }
        done = subprocess.run(  # noqa: S603 - our own script
            [sys.executable, str(_CELL), json.dumps(order)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{cell.strategy} on {self.source}: {done.stderr[-2000:]}")
        turns = cell.add(json.loads(done.stdout.splitlines()[-1]))
        for turn in turns:
            if cell.strategy == NEAR_ALONE:
                self._floors.near_alone(turn)
            elif cell.trainer != "none":
                self._floors.beside_trainer(cell.trainer, turn)
            elif cell.strategy == ALONE:
                self._floors.host_alone(turn)
        return turns

    def _enough(self, cell: Cell) -> bool:
        return cell.seconds(self._floors) >= _ENOUGH * self.extent.seconds

    def _row(self, cell: Cell) -> Row:
        return cell.row(self._floors, self.extent.seconds)

    def _alone(self, near: Cell) -> Row:
        of_host, of_near = self._row(self.host), self._row(near)
        host_rate, near_rate = counted_rate(of_host), counted_rate(of_near)
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
            "alone_quiet": of_host["quiet"] and of_near["quiet"],
        }

    def _quiet(self, cell: Cell) -> str:
        return f"{cell.seconds(self._floors):.1f} of {sum(turn.seconds for turn, _ in cell.turns):.1f} s left alone"


def _step(trainer: str, alone: Row) -> float:
    host, near = alone["host_seconds_a_batch"], alone["near_seconds_a_batch"]
    return float({"none": 0.0, "matched": host * near / (host + near), "slow": 1.5 * host}[trainer])
