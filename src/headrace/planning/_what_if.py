# SPDX-License-Identifier: Apache-2.0
"""How many cores does an accelerator deserve? The same costs on machines that one could rent, with their prices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from headrace.planning._cost import Calibration
from headrace.planning._documents import Document, finite, write_json
from headrace.planning._machine import Machine
from headrace.planning._plan import plan
from headrace.units import parse_list, parse_range, parse_rate

WHAT_IF_VERSION = 1
BUSY = 0.95
"""An accelerator is kept busy if it works this share of the time."""

_HOURS_A_MONTH = 730.0
_STEPS_OF_A_RANGE = 6
_MOST_POINTS = 2000
_PARTS = ("cores", "storage", "step-ms")
_WRITE = "write cores=2..96 storage=0.2..8GB/s step-ms=5..200"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The machines that are looked at: every combination."""

    cores: tuple[float, ...]
    storage_rates: tuple[float, ...]
    """Bytes a second."""
    steps: tuple[float, ...]
    """The trainer's seconds a batch."""

    def __post_init__(self) -> None:
        if not (self.cores and self.storage_rates and self.steps):
            raise ValueError("a grid has at least one number of cores, one storage rate and one step")
        if min(*self.cores, *self.storage_rates, *self.steps) <= 0:
            raise ValueError("cores, storage rates and steps of a grid are positive")
        if len(self.cores) * len(self.storage_rates) * len(self.steps) > _MOST_POINTS:
            raise ValueError(f"a grid has at most {_MOST_POINTS} points; take fewer cores, storage rates or steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a machine costs."""

    vcpu_hour: float = 0.0
    accelerator_hour: float = 0.0
    gb_month: float = 0.0
    """Of the storage that the images take."""
    currency: str = "$"

    def __post_init__(self) -> None:
        if min(self.vcpu_hour, self.accelerator_hour, self.gb_month) < 0:
            raise ValueError("prices are not negative")

    def an_hour(self, cores: float, stored_bytes: float) -> float:
        """The whole machine with one accelerator, for an hour."""
        storage = self.gb_month * stored_bytes / 1e9 / _HOURS_A_MONTH
        return self.vcpu_hour * cores + self.accelerator_hour + storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A machine with the mix that suits it best, and what comes of it."""

    cores: float
    storage_rate: float
    step: float
    rate: float
    """Samples a second."""
    busy: float
    """The share of the time that the accelerator works."""
    shares: Mapping[str, float]
    binds: tuple[str, ...]
    dollars_per_hour: float
    images_per_dollar: float
    """Or what the currency is; without limit where nothing costs anything."""

    @property
    def keeps_busy(self) -> bool:
        """Whether the accelerator hardly ever waits."""
        return self.busy >= BUSY

    def to_json(self) -> dict[str, Any]:
        plain = asdict(self) | {"shares": dict(self.shares), "binds": list(self.binds)}
        return plain | {"images_per_dollar": finite(self.images_per_dollar)}

    @classmethod
    def from_json(cls, document: Any) -> Point:
        read = Document(document, "a point")
        numbers = ("cores", "storage_rate", "step", "rate", "busy", "dollars_per_hour")
        return cls(
            **{name: read.number(name) for name in numbers},
            shares=read.numbers("shares"),
            binds=tuple(map(str, read.items("binds"))),
            images_per_dollar=read.number("images_per_dollar", default=math.inf),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """All points of a grid, and the best for each step."""

    prices: Prices
    batch_size: int
    images: int
    points: tuple[Point, ...]

    @property
    def best(self) -> tuple[Point, ...]:
        """For each step the cheapest machine that keeps its accelerator busy; failing that, most images for the money.

        Of equally cheap ones that with the least storage rate, which has a price that is not known here.
        """
        return tuple(_best([point for point in self.points if point.step == step]) for step in self.steps)

    @property
    def steps(self) -> tuple[float, ...]:
        return tuple(sorted({point.step for point in self.points}))

    def to_json(self) -> dict[str, Any]:
        return {
            "version": WHAT_IF_VERSION,
            "prices": asdict(self.prices),
            "batch_size": self.batch_size,
            "images": self.images,
            "cores": sorted({point.cores for point in self.points}),
            "storage_rates": sorted({point.storage_rate for point in self.points}),
            "steps": list(self.steps),
            "points": [point.to_json() for point in self.points],
            "best": [point.to_json() for point in self.best],
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write all points as JSON."""
        write_json(path, self.to_json())

    @classmethod
    def from_json(cls, document: Any) -> WhatIf:
        read = Document(document, "the what-if")
        read.version(WHAT_IF_VERSION)
        prices = read.inner("prices")
        names = ("vcpu_hour", "accelerator_hour", "gb_month")
        return cls(
            prices=Prices(**{name: prices.number(name) for name in names}, currency=prices.text("currency")),
            batch_size=read.integer("batch_size", least=1),
            images=read.integer("images", least=1),
            points=tuple(Point.from_json(point) for point in read.items("points")),
        )


def what_if(
    calibration: Calibration,
    grid: Grid,
    prices: Prices | None = None,
    *,
    machine: Machine | None = None,
    disk_budget: float | None = None,
    formats: Sequence[str] | None = None,
) -> WhatIf:
    """Plan for every machine of a grid. Pure.

    Args:
        calibration: What a sample costs in each format.
        grid: The machines.
        prices: Theirs; None if only speed is asked for.
        machine: What all have in common: link, efficiency, the cores that the trainer takes.
        disk_budget: Bytes that the images may take in all.
        formats: Consider only these.

    """
    costs = prices or Prices()
    common = machine or Machine(cores=1)
    points = []
    for step in grid.steps:
        for storage_rate in grid.storage_rates:
            for cores in grid.cores:
                on = common.replace(cores=cores, storage_rate=storage_rate, emulated=True)
                found = plan(calibration, on, step=step, disk_budget=disk_budget, formats=formats).predicted
                hourly = costs.an_hour(cores, found.stored_bytes)
                points.append(
                    Point(
                        cores=cores,
                        storage_rate=storage_rate,
                        step=step,
                        rate=found.rate,
                        busy=min(1.0, found.rate * step / calibration.batch_size),
                        shares=found.shares,
                        binds=found.binds,
                        dollars_per_hour=hourly,
                        images_per_dollar=found.rate * 3600 / hourly if hourly > 0 else math.inf,
                    )
                )
    return WhatIf(prices=costs, batch_size=calibration.batch_size, images=calibration.images, points=tuple(points))


def _best(points: Sequence[Point]) -> Point:
    busy = [point for point in points if point.keeps_busy]
    if busy:
        return min(busy, key=lambda point: (point.dollars_per_hour, point.cores, point.storage_rate))
    return max(points, key=lambda point: (point.images_per_dollar, point.rate, -point.cores))


def parse_grid(text: str) -> Grid:
    """Read `cores=2..96 storage=0.2..8GB/s step-ms=5..200`: ranges in even ratios, or lists such as `cores=2,4,8`."""
    parts: dict[str, str] = {}
    for part in text.split():
        name, _, value = part.partition("=")
        if name not in _PARTS:
            raise ValueError(f"{part!r} is no part of a grid; {_WRITE}")
        if name in parts:
            raise ValueError(f"the grid has {name} twice; write all its values as one list, or as a range")
        parts[name] = value
    for name in _PARTS:
        if not parts.get(name):
            raise ValueError(f"the grid lacks {name}; {_WRITE}")
    return Grid(
        cores=_values(parts["cores"], _number, whole=True),
        storage_rates=_values(parts["storage"], parse_rate),
        steps=tuple(each / 1e3 for each in _values(parts["step-ms"], _number)),
    )


def parse_prices(text: str) -> Prices:
    """Read `vcpu-hour=0.04,accelerator-hour=2.5,gb-month=0.1`."""
    found: dict[str, float] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, value = part.partition("=")
        if name not in ("vcpu-hour", "accelerator-hour", "gb-month"):
            raise ValueError(f"{part!r} is no price; write vcpu-hour=0.04,accelerator-hour=2.5,gb-month=0.1")
        found[name] = _number(value)
    return Prices(
        vcpu_hour=found.get("vcpu-hour", 0.0),
        accelerator_hour=found.get("accelerator-hour", 0.0),
        gb_month=found.get("gb-month", 0.0),
    )


def _values(text: str, read: Callable[[str], float], *, whole: bool = False) -> tuple[float, ...]:
    """Each value once: those of a list, or a range's in even ratios, which may be rounded to whole numbers."""
    if ".." not in text:
        return tuple(dict.fromkeys(_positive(read, each) for each in parse_list(text)))
    low, high = (_positive(read, each) for each in parse_range(text))
    if high < low:
        raise ValueError(f"{text!r} is no range: it ends before it begins")
    ratio = (high / low) ** (1 / (_STEPS_OF_A_RANGE - 1))
    found = (low * ratio**k for k in range(_STEPS_OF_A_RANGE))
    return tuple(dict.fromkeys(float(round(each)) if whole and each >= 1 else each for each in found))


def _positive(read: Callable[[str], float], text: str) -> float:
    value = read(text)
    if value <= 0:
        raise ValueError(f"{text!r} is not positive")
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is no number")
    return value
