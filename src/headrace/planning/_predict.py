# SPDX-License-Identifier: Apache-2.0
"""The cost model: how long each resource is busy per sample, and so how many samples per second there are.

The stages of the loader overlap, so the busiest resource alone decides. With x the share of the samples in each format:

    rate = 1 / max( Σ x·read_bytes / storage_rate,  Σ x·cpu_seconds / cores,  step/batch + consumer )
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.planning._cost import Calibration, Cost
from headrace.planning._machine import Machine

RESOURCES = ("storage", "cores", "trainer")
"""The resources that can be the bottleneck, in the order in which a sample meets them."""

BOTTLENECK_SHARE = 0.98
"""A resource is a bottleneck if it is busy for at least this share of the busiest one's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the cost model predicts for a mix of formats on a machine."""

    shares: Mapping[str, float]
    seconds: Mapping[str, float]
    """Busy seconds per sample of each resource."""
    rate: float = math.inf
    """Samples per second, trainer included."""
    preparation_rate: float = math.inf
    """Samples per second for a trainer that takes no time."""
    bottlenecks: tuple[str, ...] = ()
    stored_bytes: float
    """Size of all images on disk."""
    build_seconds: float = 0.0
    """Time to encode all images on this machine."""


def resource_seconds(cost: Cost, calibration: Calibration, machine: Machine) -> tuple[float, float]:
    """Return how long storage and the cores are busy with one sample in this format."""
    cores = machine.usable_cores
    return cost.read_bytes / machine.storage_rate, cost.cpu_at(cores, calibration.cores) / cores


def trainer_seconds(calibration: Calibration, step: float) -> float:
    """Return the trainer's seconds per sample: its part of the step, and of receiving the batch."""
    if not (math.isfinite(step) and step >= 0):
        raise ValueError(f"step must be a number of seconds >= 0; got {step}")
    return step / calibration.batch_size + calibration.consumer_seconds


def predict(
    calibration: Calibration, machine: Machine, shares: str | Mapping[str, float], *, step: float = 0.0
) -> Prediction:
    """Predict the speed and size of a format, or of a mix of formats with shares that add up to 1, on a machine.

    `step` is the trainer's seconds per batch.
    """
    mix = {shares: 1.0} if isinstance(shares, str) else dict(shares)
    if not mix or min(mix.values()) < 0 or abs(math.fsum(mix.values()) - 1) > 1e-6:
        raise ValueError(f"shares must be >= 0 and add up to 1; got {mix}")
    cost = Cost.mean([(share, calibration.cost(name)) for name, share in mix.items()])
    storage, cores = resource_seconds(cost, calibration, machine)
    seconds = dict(zip(RESOURCES, (storage, cores, trainer_seconds(calibration, step)), strict=True))
    busiest = max(seconds.values())
    without_step = max(storage, cores, trainer_seconds(calibration, 0.0))
    return Prediction(
        shares=mix,
        seconds=seconds,
        rate=1 / busiest if busiest > 0 else math.inf,
        preparation_rate=1 / without_step if without_step > 0 else math.inf,
        bottlenecks=tuple(name for name, each in seconds.items() if 0 < BOTTLENECK_SHARE * busiest <= each),
        stored_bytes=calibration.images * cost.stored_bytes,
        build_seconds=calibration.images * cost.encode_seconds / machine.cores,
    )
