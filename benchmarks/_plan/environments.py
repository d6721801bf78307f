# SPDX-License-Identifier: Apache-2.0
"""Where plans are tried: three storage rates, numbers of cores, three trainers. Pure: all follow from the costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.planning import Calibration, Machine, Plan, plan

# Of the samples, for each of two formats: less is no mix to speak of.
LEAST_SHARE = 0.15
SLOW = 2.0  # a slow trainer takes so many times as long as one that matches the loader
_FAR = 4.0  # how far storage-bound and CPU-bound are from balanced
_BELOW = 0.8  # of the disk's rate, at most, is balanced: so that one can be faster
_TRIED = 60


@dataclass(frozen=True)
class Environment:
    """A machine and a trainer."""

    regime: str  # storage-bound, balanced or CPU-bound
    storage_rate: float
    cores: int
    trainer: str  # none, matched or slow
    step: float  # seconds a batch

    @property
    def machine(self) -> Machine:
        return Machine(storage_rate=self.storage_rate, cores=self.cores, emulated=True)

    @property
    def name(self) -> str:
        return f"{self.regime}, {self.cores} cores, trainer {self.trainer}"


def is_mix(found: Plan) -> bool:
    """Whether it has at least two formats with a share worth the name."""
    return sum(each.share >= LEAST_SHARE for each in found.shares) >= 2


def balanced_rate(calibration: Calibration, cores: int, most: float) -> float:
    """The storage rate, up to `most`, at which a mix gains most over single formats.

    Where no mix gains, `most`: then a single format is the plan on either side of it.
    """
    rates = [float(rate) for rate in np.geomspace(most / 1000, most, _TRIED)]
    return max(reversed(rates), key=lambda rate: _gain(calibration, rate, cores))


def _gain(calibration: Calibration, rate: float, cores: int) -> float:
    found = plan(calibration, Machine(storage_rate=rate, cores=cores))
    return found.gain if is_mix(found) else 1.0


def storage_rates(calibration: Calibration, most: float) -> dict[str, float]:
    """A rate for each regime, balanced for one core; no more than the disk below can be trusted to give."""
    balanced = balanced_rate(calibration, 1, _BELOW * most)
    return {"storage-bound": balanced / _FAR, "balanced": balanced, "CPU-bound": min(balanced * _FAR, most)}


def environments(calibration: Calibration, rates: dict[str, float], cores: Sequence[int]) -> Iterator[Environment]:
    """Every regime with every number of cores and every trainer."""
    for regime, rate in rates.items():
        for number in cores:
            alone = plan(calibration, Machine(storage_rate=rate, cores=number)).predicted.rate
            matched = calibration.batch_size / alone
            for trainer, step in (("none", 0.0), ("matched", matched), ("slow", SLOW * matched)):
                yield Environment(regime, rate, number, trainer, step)
