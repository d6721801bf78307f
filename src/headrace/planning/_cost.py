# SPDX-License-Identifier: Apache-2.0
"""The cost of a sample in each format. Pure: `_calibrate` measures the figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from os import PathLike
from typing import Any

from headrace.documents import DocumentReader, finite, load_json

CALIBRATION_VERSION = 1

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
        # Beyond the measured number of cores the last figure is used.
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
            raise ValueError("a calibration must have the cost of at least one format")
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
        tree = load_json(document, "calibration")
        READER.require_version(tree, CALIBRATION_VERSION, "calibration")
        return READER.read(cls, tree, "calibration")
