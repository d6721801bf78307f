# SPDX-License-Identifier: Apache-2.0
"""The turns of a cell, and what they would have come to had neighbours of the machine disturbed its cores more or less.

Two cells are never measured at the same time. So what a prong does alone is told as a line: what a sample costs it, by
how much the gauge saw its core disturbed. A cell is held against the prongs alone at its own disturbance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from math import sqrt
from statistics import fmean, stdev
from typing import Any, NamedTuple

from benchmarks._prongs.cell import NEAR_ALONE
from benchmarks._prongs.figures import rate_of
from benchmarks._prongs.meter import Totals

Row = dict[str, Any]

_LEAST = 3  # turns to tell anything of how they scatter
# Runs of the near worker alone, and beside a slow trainer, are so many times longer: their batches are few.
_LONGER, LONGEST = 1.5, 2.0


class Disturbed(NamedTuple):
    """The part of a time in which neighbours slowed each core, as the gauge tells it."""

    host: float = 0.0
    near: float = 0.0


@dataclass(frozen=True)
class Turn:
    """A second or so of a run; of `mte` an epoch."""

    totals: Totals
    disturbed: Disturbed
    ready: float = 0.0
    """Its part of the batches that lay ready when the run began, and were not made in it."""
    plan: Row | None = None
    """How it was walked, if it is an epoch."""

    @property
    def figures(self) -> Row:
        return {**asdict(self.totals), "ready": self.ready}


class Line(NamedTuple):
    """A cost that rises with disturbance, by its value and slope at the mean of what was seen."""

    mean: float
    value: float
    slope: float

    @classmethod
    def fit(cls, points: Sequence[tuple[float, float]]) -> Line:
        """Least squares; what is disturbed costs no less, and twice as much at most."""
        mean, value = fmean(x for x, _ in points), fmean(y for _, y in points)
        spread = sum((x - mean) ** 2 for x, _ in points)
        slope = sum((x - mean) * (y - value) for x, y in points) / spread if spread else 0.0
        return cls(mean, value, min(max(slope, 0.0), value))

    def at(self, disturbed: float) -> float:
        return self.value + self.slope * (disturbed - self.mean)


@dataclass
class Cell:
    """What a cell's runs have come to so far."""

    strategy: str
    trainer: str
    epoch_batches: int
    prefetch: int
    whole_epochs: bool
    step: float = 0.0
    turns: list[Turn] = field(default_factory=list)
    told: list[Row] = field(default_factory=list)
    """What else each run has told."""

    @property
    def length(self) -> float:
        """How many times the usual seconds a run takes."""
        return LONGEST if self.trainer == "slow" else _LONGER if self.strategy == NEAR_ALONE else 1.0

    def add(self, told: Row, disturbed: Callable[[float, float], Disturbed]) -> Totals:
        """Take over what a run has told, and give its totals; `disturbed` is asked about the time of each turn."""
        parts = [Totals(**each) for each in told.pop("turns")]
        total = Totals.sum(parts)
        ready = max(0, total.near_batches - total.near_made) / total.seconds
        for part, plan, (begun, ended) in zip(parts, told.pop("plans"), told.pop("times"), strict=True):
            self.turns.append(Turn(part, disturbed(begun, ended), ready * part.seconds, plan))
        self.told.append(told)
        return total

    @property
    def counted(self) -> list[Turn]:
        """All, but those in which other programs had the host's core."""
        return [turn for turn in self.turns if turn.totals.counts] or self.turns

    def cost(self) -> Line:
        """What a sample costs, by disturbance: the host its CPU, the near worker alone the time."""
        alone = self.strategy == NEAR_ALONE
        return Line.fit(
            [
                (
                    self._own(turn.disturbed),
                    (turn.totals.seconds if alone else turn.totals.host_cpu) / turn.totals.samples,
                )
                for turn in self.counted
            ]
        )

    def _own(self, disturbed: Disturbed) -> float:
        """Of the core that its costs are told by."""
        return disturbed.near if self.strategy == NEAR_ALONE else disturbed.host

    @property
    def uncertainty(self) -> float | None:
        """Two standard errors of the rate, as a part of it, beside what disturbance explains; None if turns are few."""
        if len(self.counted) < _LEAST:
            return None
        points = [
            (self._own(turn.disturbed), 1 / rate_of({"step": self.step, **turn.figures})) for turn in self.counted
        ]
        line = Line.fit(points)
        return 2 * stdev(y / line.at(x) for x, y in points) / sqrt(len(points))

    def row(self) -> Row:
        """Its figures, as they were measured."""
        counted = self.counted
        total = Totals.sum(turn.totals for turn in counted)
        disturbed = Disturbed(
            sum(turn.disturbed.host * turn.totals.seconds for turn in counted) / total.seconds,
            sum(turn.disturbed.near * turn.totals.seconds for turn in counted) / total.seconds,
        )
        return {
            "strategy": self.strategy,
            "trainer": self.trainer,
            "epoch_batches": self.epoch_batches,
            "prefetch": self.prefetch,
            **asdict(total),
            "ready": sum(turn.ready for turn in counted),
            "step": self.step,
            "buffer_bytes": fmean(told["buffer_bytes"] for told in self.told),
            "prongs": self.told[-1]["prongs"],
            "walked": [{"batches": turn.totals.batches, "plan": turn.plan} for turn in counted if turn.plan],
            "uncertainty": self.uncertainty,
            "disturbed": disturbed._asdict(),
            "turns": [
                {
                    "rate": rate_of({"step": self.step, **turn.figures}),
                    "seconds": turn.totals.seconds,
                    "host_cpu": turn.totals.host_cpu,
                    "disturbed": turn.disturbed._asdict(),
                    "counts": turn in counted,
                }
                for turn in self.turns
            ],
        }

    def row_at(self, disturbed: Disturbed) -> Row:
        """Give the figures of a prong alone at another disturbance."""
        row, line = self.row(), self.cost()
        factor = line.at(self._own(disturbed)) / line.value
        row["host_cpu"] *= factor
        row["preparing_cpu"] *= factor
        if not self.step:  # else the trainer sets the pace
            row["seconds"] *= factor
        return row
