# SPDX-License-Identifier: Apache-2.0
"""Random erasing: rectangles of the finished image are overwritten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import Operation, Transform

_FILLS = ("color", "random")
_MAX_VALUES = 7
_MAX_RECTANGLES = 100


@dataclass(frozen=True)
class RandomErasing(Transform):
    """Overwrite random rectangles of the image with probability `p`, after `Normalize`.

    The twin of torchvision's `v2.RandomErasing` and of timm's `RandomErasing`. Masks and boxes do not change. A
    rectangle that does not fit into the image in ten draws is omitted.

    Args:
        p: Probability of erasing.
        scale: Minimum and maximum area of a rectangle, as a share of the image. With several rectangles, each has its
            part of it, as in timm.
        ratio: Minimum and maximum height / width.
        value: A number, or one for each channel (at most 7), on the scale of the output: after `Normalize`, 0 is the
            mean color. `"random"` gives each pixel its own value from the normal distribution (torchvision's
            `"random"`, timm's `"pixel"`), `"color"` each channel (timm's `"rand"`). If the output is not a float, these
            values are uniform over all levels.
        count: Number of rectangles, or a range of it.

    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: float | Sequence[float] | str = 0
    count: int | Sequence[int] = 1

    op: ClassVar[str] = "random_erasing"
    stage: ClassVar[int] = 2

    def __post_init__(self) -> None:
        self._set(
            p=arguments.probability("RandomErasing: p", self.p),
            scale=arguments.interval("RandomErasing: scale", self.scale, 1e-9, 1),
            ratio=arguments.interval("RandomErasing: ratio", self.ratio, 1e-3, 1e3),
            value=_value("RandomErasing: value", self.value),
            count=_count("RandomErasing: count", self.count),
        )

    def operations(self) -> tuple[Operation, ...]:
        counts = self.count if isinstance(self.count, tuple) else (self.count, self.count)
        values: tuple[float, ...] = ()
        if not isinstance(self.value, str):
            values = self.value if isinstance(self.value, tuple) else (self.value,)
        fill = 1 + _FILLS.index(self.value) if isinstance(self.value, str) else 0
        return (("random_erasing", (self.p, *self.scale, *self.ratio, *counts, fill, len(values), *values)),)


def _value(name: str, value: Any) -> float | tuple[float, ...] | str:
    if isinstance(value, str):
        return arguments.choice(name, value, _FILLS)
    if not arguments.is_sequence(value):
        return arguments.number(name, value, -1e6, 1e6)
    if not 1 <= len(value) <= _MAX_VALUES:
        raise ValueError(f"{name} must be one number, or 1 to {_MAX_VALUES} of them, one per channel; got {value!r}")
    return tuple(arguments.number(name, item, -1e6, 1e6) for item in value)


def _count(name: str, value: Any) -> int | tuple[int, int]:
    if not arguments.is_sequence(value):
        return arguments.integer(name, value, 1, _MAX_RECTANGLES)
    if len(value) != 2:
        raise ValueError(f"{name} must be a number or a range (min, max); got {value!r}")
    low, high = (arguments.integer(name, item, 1, _MAX_RECTANGLES) for item in value)
    if low > high:
        raise ValueError(f"{name} must be (min, max) with min <= max; got {value!r}")
    return low, high
