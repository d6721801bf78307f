# SPDX-License-Identifier: Apache-2.0
"""The rates of a run: trainer, loader, both together. Every figure that a report shows is derived from these.

A ceiling is at least what was reached: if both together were faster than the loader or the trainer was alone, the
machine was slower at that time, and the higher rate is the ceiling.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.profiling._measurements import Measurements

NEAR = 0.9
"""Places whose times differ by less than this are level: a fix to one of them gains nothing."""
STALLED = 0.05
"""A trainer that waits a larger share of its time than this is stalled."""


@dataclass(frozen=True, slots=True)
class Rates:
    """ImageSample per second; None was not measured."""

    trainer: float | None
    """With a loader that costs nothing."""
    loader: float | None
    """With a trainer that costs nothing."""
    run: float | None
    """Both together."""
    width: float | None
    """How far repeats of these measurements differ: 0.04 is ± 4 %."""
    stall_width: float | None = None
    """The same of trainer and run alone, which the stall is made of."""

    @property
    def is_stalled(self) -> bool | None:
        """Whether the trainer was measured to wait for data, by more than the figures are wide."""
        if self.trainer is None or self.run is None:
            return None
        return self.run < self.trainer * (1 - max(STALLED, self.stall_width or 0.0))


def rates_of(measurements: Measurements) -> Rates:
    """Derive the rates from the differential measurement."""
    found = measurements.differential
    if found is None:
        return Rates(None, None, None, None)
    run = found.together or None
    trainer = max(found.trainer, run or 0.0) if found.trainer else None
    loader = max(found.loader, run or 0.0) if found.loader else None
    of_trainer = None if found.stated else found.trainer_spread
    return Rates(
        trainer,
        loader,
        run,
        _widest(of_trainer, found.loader_spread, found.together_spread),
        _widest(of_trainer, found.together_spread),
    )


def _widest(*spreads: float | None) -> float | None:
    known = [spread for spread in spreads if spread is not None]
    return min(max(known), 1.0) if known else None
