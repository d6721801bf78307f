# SPDX-License-Identifier: Apache-2.0
"""The turns of a cell, and which of them count: those in which neighbours of the machine disturbed its cores least."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import ceil, sqrt
from statistics import fmean, stdev
from typing import Any

from benchmarks._prongs.cell import NEAR_ALONE
from benchmarks._prongs.figures import rate_of
from benchmarks._prongs.meter import Totals

Row = dict[str, Any]

COUNTED = 0.5
"""The part of a cell's turns that counts."""
_LEAST = 2
# Runs of the near worker alone, and beside a slow trainer, are so many times longer: their batches are few.
_LONGER, LONGEST = 1.5, 2.0


@dataclass(frozen=True)
class Turn:
    """A second or so of a run; of `mte` an epoch."""

    totals: Totals
    disturbed: float = 0.0
    """How much neighbours slowed its cores, as the gauge tells it."""
    ready: float = 0.0
    """Its part of the batches that lay ready when the run began, and were not made in it."""
    plan: Row | None = None
    """How it was walked, if it is an epoch."""

    @property
    def figures(self) -> Row:
        return {**asdict(self.totals), "ready": self.ready}


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

    def add(self, told: Row, disturbed: Callable[[float, float], float]) -> Totals:
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
        """The quieter half, however fast they were; none in which other programs had the core, if there are others."""
        own = [turn for turn in self.turns if turn.totals.counts]
        turns = own if len(own) >= _LEAST else self.turns
        return sorted(turns, key=lambda turn: turn.disturbed)[: max(_LEAST, ceil(COUNTED * len(turns)))]

    @property
    def uncertainty(self) -> float | None:
        """Two standard errors of the rate, as a part of it; None if too few turns tell."""
        rates = [rate_of({"step": self.step, **turn.figures}) for turn in self.counted]
        return 2 * stdev(rates) / sqrt(len(rates)) / fmean(rates) if len(rates) > _LEAST else None

    def row(self) -> Row:
        """Its figures, of the turns that count."""
        counted = self.counted
        return {
            "strategy": self.strategy,
            "trainer": self.trainer,
            "epoch_batches": self.epoch_batches,
            "prefetch": self.prefetch,
            **asdict(Totals.sum(turn.totals for turn in counted)),
            "ready": sum(turn.ready for turn in counted),
            "step": self.step,
            "buffer_bytes": fmean(told["buffer_bytes"] for told in self.told),
            "prongs": self.told[-1]["prongs"],
            "walked": [
                {"batches": turn.totals.batches, "plan": turn.plan} for turn in counted if turn.plan is not None
            ],
            "uncertainty": self.uncertainty,
            "turns": [
                {
                    "rate": rate_of({"step": self.step, **turn.figures}),
                    "seconds": turn.totals.seconds,
                    "disturbed": turn.disturbed,
                    "counts": turn in counted,
                }
                for turn in self.turns
            ],
        }
