# SPDX-License-Identifier: Apache-2.0
"""The cost model: how long each resource is busy with a sample, and so how many samples a second there are.

The stages of the loader run side by side, so the busiest resource alone decides:

    rate = 1 / max( Σ x·read_bytes / storage_rate,   Σ x·cpu_seconds / (cores · efficiency),
                    Σ x·link_bytes / link_rate,      step + consumer_seconds + Σ x·device_seconds )

with x the share of the samples that each format has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.planning._cost import Calibration, Cost
from headrace.planning._machine import Machine
from headrace.planning.documents import Document, finite

RESOURCES = ("storage", "cores", "link", "trainer")
"""What can be busy, in the order of the path of a picture."""

BOTTLENECK_SHARE = 0.98
"""A resource is a bottleneck if it is busy for this share of the busiest one's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the model says of a mix of formats on a machine."""

    shares: Mapping[str, float]
    seconds: Mapping[str, float]
    """How long each resource is busy with a sample."""
    rate: float
    """Samples a second, trainer and all."""
    preparation_rate: float
    """Samples a second for a trainer that takes no time."""
    binds: tuple[str, ...]
    stored_bytes: float
    """Of all images."""
    build_seconds: float
    """To encode all of them on this machine."""

    def to_json(self) -> dict[str, Any]:
        return {
            "shares": dict(self.shares),
            "seconds": dict(self.seconds),
            "rate": finite(self.rate),
            "preparation_rate": finite(self.preparation_rate),
            "binds": list(self.binds),
            "stored_bytes": self.stored_bytes,
            "build_seconds": self.build_seconds,
        }

    @classmethod
    def from_json(cls, document: Any) -> Prediction:
        read = Document(document, "a prediction")
        return cls(
            shares=read.numbers("shares"),
            seconds=read.numbers("seconds"),
            rate=read.number("rate", default=math.inf),
            preparation_rate=read.number("preparation_rate", default=math.inf),
            binds=tuple(map(str, read.items("binds"))),
            stored_bytes=read.number("stored_bytes"),
            build_seconds=read.number("build_seconds", default=0.0),
        )


def loads(cost: Cost, calibration: Calibration, machine: Machine) -> tuple[float, ...]:
    """Seconds of each resource for a sample in this format, in the order of `RESOURCES`."""
    cores = machine.usable_cores
    return (
        cost.read_bytes / machine.storage_rate,
        cost.cpu_at(cores, calibration.cores) / (cores * machine.efficiency),
        cost.link_bytes / machine.link_rate,
        cost.device_seconds / machine.device_headroom,
    )


def trainer_seconds(calibration: Calibration, step: float) -> float:
    """A sample's part of the step and of taking its batch, whatever its format."""
    if not (math.isfinite(step) and step >= 0):
        raise ValueError(f"a step takes 0 seconds or more, not {step}")
    return step / calibration.batch_size + calibration.consumer_seconds


def predict(
    calibration: Calibration, machine: Machine, shares: str | Mapping[str, float], *, step: float = 0.0
) -> Prediction:
    """Say what a mix, or a single format, gives on a machine.

    Args:
        calibration: What a sample costs in each format.
        machine: What there is to spend.
        shares: A format decoded by the CPU, or several with the share of the samples that each has.
        step: The trainer's seconds a batch of the calibration's size; 0 for none.

    """
    mix = {shares: 1.0} if isinstance(shares, str) else dict(shares)
    return predict_costs(calibration, machine, [calibration.cost(name) for name in mix], list(mix.values()), step=step)


def predict_costs(
    calibration: Calibration, machine: Machine, costs: Sequence[Cost], shares: Sequence[float], *, step: float
) -> Prediction:
    """Like `predict`, for costs of any place. The shares add up to 1."""
    if not costs or min(shares) < 0 or abs(math.fsum(shares) - 1) > 1e-6:
        raise ValueError(f"shares are positive and add up to 1, not {list(shares)}")
    of_formats = [loads(cost, calibration, machine) for cost in costs]
    busy = [math.fsum(x * each[r] for x, each in zip(shares, of_formats, strict=True)) for r in range(len(RESOURCES))]
    without_step = max(*busy[:-1], busy[-1] + trainer_seconds(calibration, 0.0))
    busy[-1] += trainer_seconds(calibration, step)
    most = max(busy)
    encode = math.fsum(x * cost.encode_seconds for x, cost in zip(shares, costs, strict=True))
    return Prediction(
        shares={cost.format: x for cost, x in zip(costs, shares, strict=True)},
        seconds=dict(zip(RESOURCES, busy, strict=True)),
        rate=1 / most if most > 0 else math.inf,
        preparation_rate=1 / without_step if without_step > 0 else math.inf,
        binds=tuple(
            name for name, each in zip(RESOURCES, busy, strict=True) if most > 0 and each >= BOTTLENECK_SHARE * most
        ),
        stored_bytes=calibration.images
        * math.fsum(x * cost.stored_bytes for x, cost in zip(shares, costs, strict=True)),
        build_seconds=calibration.images * encode / (machine.cores * machine.efficiency),
    )
