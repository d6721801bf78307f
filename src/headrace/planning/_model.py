# SPDX-License-Identifier: Apache-2.0
"""The cost model: how long each resource is busy per sample, and so how many samples per second there are. Pure.

The stages of the loader overlap, so the busiest resource alone decides. With x the share of the samples in each format:

    rate = 1 / max( Σ x·read_bytes / storage_rate,  Σ x·cpu_seconds / cores,  step/batch + consumer )
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from os import PathLike
from typing import Any

from headrace.documents import DocumentReader, finite

CALIBRATION_VERSION = MACHINE_VERSION = 1
_MIN_CORES = 0.05
"""A loader whose trainer uses all cores still gets this share of one: the system's scheduler is fair."""

RESOURCES = ("storage", "cores", "trainer")
"""The resources that can be the bottleneck, in the order in which a sample meets them."""

BOTTLENECK_SHARE = 0.98
"""A resource is a bottleneck if it is busy for at least this share of the busiest one's time."""

# Members that are not known are ignored: plans of earlier versions have some.
READER = DocumentReader(strict=False)


def as_json(value: Any) -> Any:
    """Return a dataclass as JSON values; null is a number without a limit, which JSON cannot express."""
    if is_dataclass(value):
        return {each.name: as_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    return finite(value) if isinstance(value, float) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The mean cost of loading one sample that is stored in one format."""

    format: str
    read_bytes: float
    """Bytes that the loader reads: of a cropped `.hri` image, the tiles that the crop touches."""
    cpu_seconds: float
    """CPU time of all threads, including the consumer's, when one core works."""
    cpu_seconds_crowded: float | None = None
    """The same when all calibrated cores work: they share caches, memory bandwidth and clock rates."""
    stored_bytes: float
    encode_seconds: float = 0.0
    """CPU time to encode the image when the dataset is built."""
    lossless: bool = True

    def __post_init__(self) -> None:
        numbers = (self.read_bytes, self.cpu_seconds, self.encode_seconds, self.stored_bytes)
        if min(*numbers, self.cpu_seconds_crowded or 0.0) < 0:
            raise ValueError(f"the costs of {self.format} must be >= 0; got {self}")

    @staticmethod
    def mean(parts: Sequence[tuple[float, Cost]]) -> Cost:
        """Return the cost of a sample of a mix, from (share, cost) of each format."""

        def total(values: Iterable[float]) -> float:
            return math.fsum(share * value for (share, _), value in zip(parts, values, strict=True))

        costs = [cost for _, cost in parts]
        return Cost(
            format=" + ".join(cost.format for cost in costs),
            read_bytes=total(cost.read_bytes for cost in costs),
            cpu_seconds=total(cost.cpu_seconds for cost in costs),
            cpu_seconds_crowded=total(cost.cpu_at(math.inf, 2) for cost in costs),
            stored_bytes=total(cost.stored_bytes for cost in costs),
            encode_seconds=total(cost.encode_seconds for cost in costs),
            lossless=all(cost.lossless for cost in costs),
        )

    def cpu_at(self, cores: float, calibrated_cores: int) -> float:
        """Return CPU seconds per sample with `cores` at work, interpolated between the measured numbers of cores."""
        if self.cpu_seconds_crowded is None or calibrated_cores <= 1 or cores <= 1:
            return self.cpu_seconds
        # Beyond the measured number of cores, use the last measured cost.
        crowding = min(1.0, (cores - 1) / (calibrated_cores - 1))
        return self.cpu_seconds + crowding * (self.cpu_seconds_crowded - self.cpu_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The costs of a source's images in each format, measured on a sample of them."""

    costs: tuple[Cost, ...]
    images: int
    """Number of images in the source."""
    sampled: int
    """Number of images that were measured."""
    batch_size: int
    cores: int = 1
    """Number of cores at work when `cpu_seconds_crowded` was measured."""
    consumer_seconds: float = 0.0
    """Seconds per sample of the thread that receives the batches; they add to the training step."""
    source_format: str = "mixed"
    """The format of the source's files, if all sampled files have the same."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.costs:
            raise ValueError("a calibration must have the cost of at least one format; got none")
        if self.images < 1 or self.batch_size < 1 or self.cores < 1:
            raise ValueError(
                f"images, batch_size and cores of a calibration must be >= 1; "
                f"got {self.images}, {self.batch_size} and {self.cores}"
            )
        if len(set(self.formats)) != len(self.costs):
            raise ValueError(f"a calibration must have each format once; got {', '.join(self.formats)}")

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats, in the order of their costs."""
        return tuple(cost.format for cost in self.costs)

    def cost(self, format_name: str) -> Cost:
        """Return the cost of one format."""
        for cost in self.costs:
            if cost.format == format_name:
                return cost
        raise ValueError(f"{format_name} was not calibrated; the calibrated formats are {', '.join(self.formats)}")

    def to_json(self) -> dict[str, Any]:
        """Return the calibration as a JSON object (spec/plan.md)."""
        return {"version": CALIBRATION_VERSION, **as_json(self)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | str | PathLike[str]) -> Calibration:
        """Read a calibration from a JSON object or a file; ValueError names what is not valid."""
        return READER.read(cls, READER.load(document, CALIBRATION_VERSION, "calibration"), "calibration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The capacities of a machine, real or assumed."""

    storage_rate: float = math.inf
    """Bytes per second, uncached, with as many reads in flight as the loader has."""
    cores: float
    trainer_cores: float = 0.0
    """Cores that the training itself keeps busy."""
    emulated: bool = False
    """Whether some of the figures were given and not measured."""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.storage_rate > 0 and self.cores > 0 and self.trainer_cores >= 0):
            raise ValueError(
                f"a machine must have storage_rate > 0, cores > 0 and trainer_cores >= 0; "
                f"got {self.storage_rate}, {self.cores} and {self.trainer_cores}"
            )

    @property
    def usable_cores(self) -> float:
        """The cores that the trainer does not use."""
        return max(self.cores - self.trainer_cores, _MIN_CORES)

    def to_json(self) -> dict[str, Any]:
        """Return the machine as a JSON object (spec/plan.md)."""
        return {"version": MACHINE_VERSION, **as_json(self)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | str | PathLike[str]) -> Machine:
        """Read a machine from a JSON object or a file; a rate of null has no limit."""
        return READER.read(cls, READER.load(document, MACHINE_VERSION, "machine"), "machine")


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
