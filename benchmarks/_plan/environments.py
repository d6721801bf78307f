# SPDX-License-Identifier: Apache-2.0
"""Where plans are tried: three storage rates, one or more numbers of cores, two trainers. Pure: derived from costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.planning import Calibration, Machine, Plan, solve

MIN_SHARE = 0.15
"""A plan counts as a mix if two formats have at least this share of the samples."""

_FAR = 4.0  # how far storage-bound and CPU-bound are from balanced
_BELOW = 0.8  # balanced is at most this share of the disk's rate, so that CPU-bound can be faster
_TRIED_RATES = 60


@dataclass(frozen=True)
class Environment:
    """A machine and a trainer."""

    regime: str  # storage-bound, balanced or CPU-bound
    storage_rate: float
    cores: int
    trainer: str  # none or matched
    step_seconds: float

    @property
    def machine(self) -> Machine:
        return Machine(storage_rate=self.storage_rate, cores=self.cores, emulated=True)

    @property
    def name(self) -> str:
        return f"{self.regime}, {self.cores} cores, trainer {self.trainer}"


def is_mix(found: Plan) -> bool:
    """Return whether at least two formats have a share worth counting."""
    return sum(each.share >= MIN_SHARE for each in found.shares) >= 2


def balanced_rate(calibration: Calibration, cores: int, max_rate: float) -> float:
    """Return the storage rate, up to `max_rate`, at which a mix gains most over single formats.

    Where no mix gains, return `max_rate`: a single format is the plan on either side of it.
    """
    rates = [float(rate) for rate in np.geomspace(max_rate / 1000, max_rate, _TRIED_RATES)]
    return max(reversed(rates), key=lambda rate: _gain(calibration, rate, cores))


def _gain(calibration: Calibration, rate: float, cores: int) -> float:
    found = solve(calibration, Machine(storage_rate=rate, cores=cores))
    return found.gain if is_mix(found) else 1.0


def storage_rates(calibration: Calibration, max_rate: float) -> dict[str, float]:
    """Return a rate per regime, balanced for one core, and none above what the real disk sustains."""
    balanced = balanced_rate(calibration, 1, _BELOW * max_rate)
    return {"storage-bound": balanced / _FAR, "balanced": balanced, "CPU-bound": min(balanced * _FAR, max_rate)}


def environments(calibration: Calibration, rates: dict[str, float], cores: Sequence[int]) -> Iterator[Environment]:
    """Every regime with every number of cores, without a trainer and with one that is as fast as the loader."""
    for regime, rate in rates.items():
        for number in cores:
            alone = solve(calibration, Machine(storage_rate=rate, cores=number)).predicted.rate
            for trainer, step in (("none", 0.0), ("matched", calibration.batch_size / alone)):
                yield Environment(regime, rate, number, trainer, step)
