# SPDX-License-Identifier: Apache-2.0
"""The runs of a cell, and which of them count: those that neighbours of the machine left alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from benchmarks._prongs.cell import NEAR_ALONE
from benchmarks._prongs.figures import rate_of
from benchmarks._prongs.meter import Totals

Row = dict[str, Any]

ENOUGH = 3
"""Runs that count: with so many, a cell has been measured."""
QUIET = 0.12
"""A run counts if its cores were slowed for no more than this part of it, by which they lose some 3 % at most."""
_LEAST = 2  # runs, the least disturbed, count of a cell that was never left alone
_ALIKE = 0.03  # how far runs that count may lie apart
# Turns of the near worker alone, and beside a slow trainer, are so many times longer: their batches are few.
_LONGER, LONGEST = 3.0, 5.0


@dataclass(frozen=True)
class Run:
    """What one process has measured."""

    turns: list[tuple[Totals, dict[str, Any] | None]]
    """With those that are epochs, how they were walked."""
    told: Row
    """What else it has told."""
    disturbed: float = 0.0
    """The part of it in which neighbours slowed its cores."""

    @property
    def total(self) -> Totals:
        return Totals.sum(turn for turn, _ in self.turns)

    @property
    def counts(self) -> bool:
        """Whether it was left alone, by other programs and by other machines."""
        return self.total.counts and self.disturbed <= QUIET

    @classmethod
    def from_json(cls, told: Row, disturbed: float) -> Run:
        turns = [Totals(**each) for each in told.pop("turns")]
        return cls(list(zip(turns, told.pop("plans"), strict=True)), told, disturbed)


@dataclass
class Cell:
    """What a cell's runs have come to so far."""

    strategy: str
    trainer: str
    epoch_batches: int
    prefetch: int
    whole_epochs: bool
    step: float = 0.0
    runs: list[Run] = field(default_factory=list)

    @property
    def length(self) -> float:
        """How many times the usual seconds it takes to tell."""
        return LONGEST if self.trainer == "slow" else _LONGER if self.strategy == NEAR_ALONE else 1.0

    @property
    def counted(self) -> list[Run]:
        """All that were left alone, however fast they were; or the least disturbed, if too few were."""
        quiet = [run for run in self.runs if run.counts]
        if len(quiet) >= _LEAST:
            return quiet
        return sorted(self.runs, key=lambda run: (not run.total.counts, run.disturbed))[:_LEAST]

    @property
    def is_measured(self) -> bool:
        """Whether enough runs count."""
        return sum(run.counts for run in self.runs) >= ENOUGH

    @property
    def is_settled(self) -> bool:
        """Whether those that count were left alone, and agree."""
        rates = [self._rate(run.total) for run in self.counted if run.counts]
        return len(rates) >= _LEAST and min(rates) >= (1 - _ALIKE) * max(rates)

    def _rate(self, total: Totals) -> float:
        return rate_of({"step": self.step, **asdict(total)})

    def row(self) -> Row:
        """Its figures, of the runs that count."""
        counted = self.counted
        return {
            "strategy": self.strategy,
            "trainer": self.trainer,
            "epoch_batches": self.epoch_batches,
            "prefetch": self.prefetch,
            **asdict(Totals.sum(run.total for run in counted)),
            "step": self.step,
            "buffer_bytes": fmean(run.told["buffer_bytes"] for run in self.runs),
            "prongs": counted[-1].told["prongs"],
            "turns": [asdict(turn) | {"plan": plan} for run in counted for turn, plan in run.turns],
            "settled": self.is_settled,
            "rates": [self._rate(run.total) for run in self.runs],
            "disturbed": [run.disturbed for run in self.runs],
        }
