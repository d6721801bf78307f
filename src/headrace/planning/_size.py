# SPDX-License-Identifier: Apache-2.0
"""Which machine keeps a GPU busy: the measured costs on other cores, storage and offload workers, with prices. Pure.

Offload workers prepare batches beside the host, so their rates add up, and the trainer limits both:

    rate = min( host + workers · worker_rate,  batch_size / step )        images per second

`host` is the plan's rate without a trainer. A worker is as fast as one core of the calibrated machine, unless its time
per batch is given.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from headrace.documents import save_json
from headrace.planning._model import BOTTLENECK_SHARE, READER, Calibration, Cost, Machine, Prediction, as_json
from headrace.planning._solve import solve
from headrace.units import parse_list, parse_number, parse_range

SIZING_VERSION = 1
BUSY = 0.95
"""A GPU is kept busy if it works this share of the time."""

_HOURS_PER_MONTH = 730.0
_VALUES_PER_RANGE = 6
_MAX_MACHINES = 2000
_PRICES = ("vcpu-hour", "accelerator-hour", "gb-month", "offload-hour")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineGrid:
    """The machines to compare: every combination of these values. All figures are per GPU."""

    cores: tuple[float, ...]
    storage_rates: tuple[float, ...]
    """Bytes per second."""
    steps: tuple[float, ...]
    """Seconds of the trainer per batch."""
    offload_workers: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        axes = (self.cores, self.storage_rates, self.steps, self.offload_workers)
        if not all(axes):
            raise ValueError("cores, storage_rates, steps and offload_workers must have at least one value each")
        if min(*self.cores, *self.storage_rates, *self.steps) <= 0 or min(self.offload_workers) < 0:
            raise ValueError(f"cores, storage_rates and steps must be > 0, and offload_workers >= 0; got {self}")
        count = math.prod(map(len, axes))
        if count > _MAX_MACHINES:
            raise ValueError(f"at most {_MAX_MACHINES} machines can be compared; got {count}: give fewer values")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of a machine's parts."""

    vcpu_hour: float = 0.0
    accelerator_hour: float = 0.0
    gb_month: float = 0.0
    """Per GB of storage that the images take."""
    offload_hour: float = 0.0
    """Per offload worker."""
    currency: str = "$"

    def __post_init__(self) -> None:
        if min(self.vcpu_hour, self.accelerator_hour, self.gb_month, self.offload_hour) < 0:
            raise ValueError(f"a price must be >= 0; got {self}")

    @property
    def are_given(self) -> bool:
        return max(self.vcpu_hour, self.accelerator_hour, self.gb_month, self.offload_hour) > 0

    def per_hour(self, cores: float, stored_bytes: float, offload_workers: int = 0) -> float:
        """Return the price of a machine with one GPU for an hour."""
        storage = self.gb_month * stored_bytes / 1e9 / _HOURS_PER_MONTH
        return self.vcpu_hour * cores + self.accelerator_hour + storage + self.offload_hour * offload_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedMachine:
    """A machine with its best mix of formats, and what is predicted for it."""

    cores: float
    storage_rate: float
    offload_workers: int = 0
    step: float
    rate: float
    """Images per second."""
    busy: float
    """Share of the time that the GPU works."""
    shares: Mapping[str, float]
    bottlenecks: tuple[str, ...] = ()
    dollars_per_hour: float
    images_per_dollar: float = math.inf
    """Or per unit of another currency; infinite without prices."""

    @property
    def keeps_busy(self) -> bool:
        """Whether the GPU hardly ever waits."""
        return self.busy >= BUSY


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """All machines of a grid, and the best one for each step."""

    prices: Prices
    batch_size: int
    images: int
    points: tuple[SizedMachine, ...]

    @property
    def best(self) -> tuple[SizedMachine, ...]:
        """For each step, the cheapest machine that keeps its GPU busy; if none does, the most images for the money.

        Of equally cheap machines, the one with fewer workers, fewer cores and slower storage.
        """
        return tuple(_best([each for each in self.points if each.step == step]) for step in self.steps)

    @property
    def steps(self) -> tuple[float, ...]:
        return tuple(sorted({each.step for each in self.points}))

    def to_json(self) -> dict[str, Any]:
        """Return all machines as a JSON object (spec/plan.md)."""
        return {
            "version": SIZING_VERSION,
            **as_json(self),
            "cores": sorted({each.cores for each in self.points}),
            "storage_rates": sorted({each.storage_rate for each in self.points}),
            "steps": list(self.steps),
            "best": as_json(self.best),
        }

    @classmethod
    def from_json(cls, document: Any) -> Sizing:
        """Read a sizing from a JSON object or a file; ValueError names what is not valid."""
        return READER.read(cls, READER.load(document, SIZING_VERSION, "sizing"), "sizing")

    def save(self, path: str | PathLike[str]) -> None:
        """Write all machines as JSON."""
        save_json(path, self.to_json())


def size_machines(
    calibration: Calibration,
    grid: MachineGrid,
    prices: Prices | None = None,
    *,
    trainer_cores: float = 0.0,
    offload_seconds: float | None = None,
    disk_budget: float | None = None,
    formats: Sequence[str] | None = None,
) -> Sizing:
    """Plan for every machine of a grid; without prices only speed is compared. Options as for `Machine` and `solve`.

    One offload worker takes `offload_seconds` per batch; None is one core of the calibrated machine.
    """
    if offload_seconds is not None and not offload_seconds > 0:
        raise ValueError(f"offload_seconds must be > 0; got {offload_seconds}")
    charged = prices or Prices()
    found: list[SizedMachine] = []
    for step, storage_rate, cores in itertools.product(grid.steps, grid.storage_rates, grid.cores):
        on = Machine(cores=cores, storage_rate=storage_rate, trainer_cores=trainer_cores, emulated=True)
        alone = solve(calibration, on, step=step, disk_budget=disk_budget, formats=formats).predicted
        worker_rate = _worker_rate(calibration, alone, offload_seconds)
        for workers in grid.offload_workers:
            hourly = charged.per_hour(cores, alone.stored_bytes, workers)
            rate, bottlenecks = _with_workers(alone, workers * worker_rate)
            found.append(
                SizedMachine(
                    cores=cores,
                    storage_rate=storage_rate,
                    offload_workers=workers,
                    step=step,
                    rate=rate,
                    busy=min(1.0, rate * step / calibration.batch_size),
                    shares=alone.shares,
                    bottlenecks=bottlenecks,
                    dollars_per_hour=hourly,
                    images_per_dollar=rate * 3600 / hourly if hourly > 0 else math.inf,
                )
            )
    return Sizing(prices=charged, batch_size=calibration.batch_size, images=calibration.images, points=tuple(found))


def _worker_rate(calibration: Calibration, alone: Prediction, offload_seconds: float | None) -> float:
    """Return the images per second of one offload worker."""
    if offload_seconds is not None:
        return calibration.batch_size / offload_seconds
    cost = Cost.mean([(share, calibration.cost(name)) for name, share in alone.shares.items()])
    return 1 / max(cost.cpu_seconds, 1e-9)


def _with_workers(alone: Prediction, workers_rate: float) -> tuple[float, tuple[str, ...]]:
    """Return the rate of host and offload workers together, and the bottlenecks."""
    if workers_rate == 0:
        return alone.rate, alone.bottlenecks
    trainer = 1 / alone.seconds["trainer"] if alone.seconds["trainer"] > 0 else math.inf
    both = alone.preparation_rate + workers_rate
    if both >= trainer / BOTTLENECK_SHARE:
        return trainer, ("trainer",)
    host = tuple(name for name in alone.bottlenecks if name != "trainer")
    return min(both, trainer), host if both < trainer * BOTTLENECK_SHARE else (*host, "trainer")


def _best(machines: Sequence[SizedMachine]) -> SizedMachine:
    busy = [each for each in machines if each.keeps_busy]
    if busy:
        return min(busy, key=lambda each: (each.dollars_per_hour, each.offload_workers, each.cores, each.storage_rate))
    return max(machines, key=lambda each: (each.images_per_dollar, each.rate, -each.offload_workers, -each.cores))


def parse_prices(text: str) -> Prices:
    """Read `vcpu-hour=0.04,accelerator-hour=2.5,gb-month=0.1,offload-hour=0.1`; prices that are missing are 0."""
    found: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, value = part.partition("=")
        if name not in _PRICES:
            raise ValueError(f"a price must be one of {', '.join(_PRICES)}, as in vcpu-hour=0.04; got {part!r}")
        found[name.replace("-", "_")] = parse_number(value)
    return Prices(**found)


def parse_values(
    text: str, read: Callable[[str], float] = parse_number, *, integers: bool = False
) -> tuple[float, ...]:
    """Read a list such as `2,4,8`, or a range such as `2..64` as 6 values in equal ratios.

    `read` parses one value; with `integers` the values of a range are rounded.
    """
    if ".." not in text:
        return tuple(dict.fromkeys(map(read, parse_list(text))))
    low, high = map(read, parse_range(text))
    if not 0 < low <= high:
        raise ValueError(f"a range must have 0 < start <= end; got {text!r}")
    ratio = (high / low) ** (1 / (_VALUES_PER_RANGE - 1))
    found = (low * ratio**k for k in range(_VALUES_PER_RANGE))
    return tuple(dict.fromkeys(float(round(each)) if integers and each >= 1 else each for each in found))
