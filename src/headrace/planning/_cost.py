# SPDX-License-Identifier: Apache-2.0
"""What a sample costs in each format, and where those figures come from. Pure: `_calibrate` measures them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from os import PathLike
from typing import Any, Literal, TypeAlias

from headrace.planning.documents import Document, read_json

CALIBRATION_VERSION = 1

Place: TypeAlias = Literal["cpu", "device"]
PLACES: tuple[Place, ...] = ("cpu", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one sample costs the loader in one format, decoded in one place, under the recipe; a mean over samples."""

    format: str
    place: Place = "cpu"
    read_bytes: float
    """What is read of it: for a crop, only the tiles that it touches, where the format has tiles."""
    cpu_seconds: float
    """Of all threads together, the consumer's too, when one core works."""
    cpu_seconds_crowded: float | None = None
    """The same when all cores work that the calibration used: they share caches, memory and clocks."""
    link_bytes: float = 0.0
    """What goes to the device."""
    device_seconds: float = 0.0
    """Of the device, for decoding, under the training's load."""
    stored_bytes: float
    encode_seconds: float = 0.0
    """Of one core, once, when the dataset is built."""
    lossless: bool = True

    def __post_init__(self) -> None:
        numbers = (self.read_bytes, self.cpu_seconds, self.link_bytes, self.device_seconds, self.encode_seconds)
        if min(*numbers, self.stored_bytes, self.cpu_seconds_crowded or 0.0) < 0:
            raise ValueError(f"a cost of {self.format} is negative: {self}")

    def cpu_at(self, cores: float, calibrated_cores: int) -> float:
        """CPU seconds a sample with so many cores at work: on a line between those that were measured."""
        if self.cpu_seconds_crowded is None or calibrated_cores <= 1 or cores <= 1:
            return self.cpu_seconds
        # Beyond what was measured nothing is known: the last figure stands.
        crowding = min(1.0, (cores - 1) / (calibrated_cores - 1))
        return self.cpu_seconds + crowding * (self.cpu_seconds_crowded - self.cpu_seconds)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> Cost:
        read = Document(document, "a cost")
        crowded = read.number("cpu_seconds_crowded", default=-1.0)
        return cls(
            format=read.text("format"),
            place="device" if read.text("place", choices=PLACES, default="cpu") == "device" else "cpu",
            read_bytes=read.number("read_bytes"),
            cpu_seconds=read.number("cpu_seconds"),
            cpu_seconds_crowded=None if crowded < 0 else crowded,
            link_bytes=read.number("link_bytes", default=0.0),
            device_seconds=read.number("device_seconds", default=0.0),
            stored_bytes=read.number("stored_bytes"),
            encode_seconds=read.number("encode_seconds", default=0.0),
            lossless=read.flag("lossless", default=True),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The costs of all formats that a source's images could be stored in, measured on a sample of them."""

    costs: tuple[Cost, ...]
    images: int
    """In the whole source."""
    sampled: int
    batch_size: int
    cores: int = 1
    """How many worked where costs are `crowded`."""
    consumer_seconds: float = 0.0
    """A sample, of the thread that takes the batches: it adds to the trainer's step."""
    source_format: str = "mixed"
    """What all files of the source are, as far as was seen."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.costs:
            raise ValueError("a calibration has the cost of at least one format")
        if self.images < 1 or self.batch_size < 1:
            raise ValueError(
                f"a calibration of {self.images} images in batches of {self.batch_size}: both are positive"
            )
        named = [(cost.format, cost.place) for cost in self.costs]
        if len(set(named)) != len(named):
            raise ValueError("a calibration has a format twice in one place")

    @property
    def formats(self) -> tuple[str, ...]:
        """Each once, in the order of their costs."""
        return tuple(dict.fromkeys(cost.format for cost in self.costs))

    def cost(self, format_name: str, place: Place = "cpu") -> Cost:
        for cost in self.costs:
            if (cost.format, cost.place) == (format_name, place):
                return cost
        raise ValueError(f"{format_name} on the {place} was not calibrated; there are {', '.join(self.formats)}")

    def to_json(self) -> dict[str, Any]:
        return {
            "version": CALIBRATION_VERSION,
            **{name: getattr(self, name) for name in ("images", "sampled", "batch_size", "cores", "consumer_seconds")},
            "source_format": self.source_format,
            "costs": [cost.to_json() for cost in self.costs],
            "recipe": dict(self.recipe),
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | str | PathLike[str]) -> Calibration:
        """Read a calibration from a JSON object or a file. What is not as it should be is a ValueError."""
        read = Document(read_json(document, "calibration"), "the calibration")
        read.version(CALIBRATION_VERSION)
        return cls(
            costs=tuple(Cost.from_json(cost) for cost in read.items("costs")),
            images=read.integer("images", least=1),
            sampled=read.integer("sampled"),
            batch_size=read.integer("batch_size", least=1),
            cores=read.integer("cores", least=1),
            consumer_seconds=read.number("consumer_seconds", default=0.0),
            source_format=read.text("source_format", default="mixed"),
            recipe=read.plain("recipe"),
            provenance=read.plain("provenance"),
        )
