# SPDX-License-Identifier: Apache-2.0
"""Base class of declarative transforms, and the argument checks that they share."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar, TypeAlias

MAX_SIDE = 65535

INTERPOLATIONS = ("nearest", "area", "bilinear", "bicubic")
PADDING_MODES = ("constant", "edge", "reflect")


Operation: TypeAlias = tuple[str, tuple[float, ...]]
"""Name and parameters of an operation of the C++ core (`OpKind` in headrace/transform.h)."""


@dataclass(frozen=True)
class Transform:
    """A declarative transform: an immutable value that describes an operation and holds no code and no state.

    Random transforms draw from (seed, epoch, sample, operation, view) only, so a sample of an epoch comes out the same
    wherever and whenever it is prepared.
    """

    op: ClassVar[str]
    """Name in JSON."""
    stage: ClassVar[int] = 0
    """Its place in a list: 0 for pixels, 1 `Normalize`, 2 finished images, 3 batches."""

    nests: ClassVar[bool] = True
    """Whether it may be inside a transform that runs others, such as `RandomApply`."""

    def to_json(self) -> dict[str, Any]:
        """Return this transform as a JSON object. `from_json` makes an equal transform from it (spec/recipe.md)."""
        return {"op": self.op} | {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations for the C++ core, in order."""
        raise NotImplementedError

    def __call__(self, image: Any, *, seed: int = 0, epoch: int = 0, sample: int = 0, view: int = 0) -> Any:
        """Return a transformed NumPy image `[H, W]` or `[H, W, C]`, or PIL image, of the same kind as the given one.

        The draws are those of row `sample` of a dataset in this epoch, so the same arguments give the same image.
        """
        from headrace.transforms.looking._single import apply_to_image  # noqa: PLC0415  # it imports this module

        return apply_to_image((self,), image, seed=seed, epoch=epoch, sample=sample, view=view)

    def for_mask(self) -> Transform:
        """Return the same transform with the same draws for a mask, whose class ids must not be mixed."""
        return self

    def _set(self, **checked: Any) -> None:
        """Store checked arguments. Only for `__post_init__`."""
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def _plain(value: Any) -> Any:
    if isinstance(value, Transform):
        return value.to_json()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


# Argument checks. Each returns a plain Python value or raises an error.


def integer(name: str, value: Any, low: int, high: int) -> int:
    """Return an integer in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    whole = operator.index(value)
    if not low <= whole <= high:
        raise ValueError(f"{name} must be in [{low}, {high}]; got {whole}")
    return whole


def number(name: str, value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """Return a finite number in [low, high]. An integer stays an integer."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number; got {value!r}")
    plain = operator.index(value) if isinstance(value, Integral) else float(value)
    if not math.isfinite(plain) or not low <= plain <= high:
        bounds = f"in [{low:g}, {high:g}]" if math.isfinite(high - low) else "finite"
        raise ValueError(f"{name} must be {bounds}; got {plain}")
    return plain


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False; got {value!r}")
    return value


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return one of `choices`. Enums with such a value, such as torchvision's InterpolationMode, are accepted."""
    word = getattr(value, "value", value)
    if word not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")
    return str(word)


def is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def size(name: str, value: Any) -> tuple[int, int]:
    """Return `(height, width)`; a single number is used for both."""
    sides = tuple(value) if is_sequence(value) else (value,)
    if len(sides) not in {1, 2}:
        raise ValueError(f"{name} must be a number or (height, width); got {value!r}")
    checked = [integer(name, side, 1, MAX_SIDE) for side in sides]
    return checked[0], checked[-1]


def padding(name: str, value: Any) -> tuple[int, int, int, int]:
    """Return `(left, top, right, bottom)` from one number, `(horizontal, vertical)` or all four."""
    widths = tuple(value) if is_sequence(value) else (value,)
    if len(widths) not in {1, 2, 4}:
        raise ValueError(
            f"{name} must be a number, (left and right, top and bottom) or (left, top, right, bottom); got {value!r}"
        )
    checked = [integer(name, width, 0, MAX_SIDE) for width in widths]
    left, top, right, bottom = (checked * 4)[:4]
    return left, top, right, bottom


def fill(name: str, value: Any) -> float:
    """Return one pixel value for all channels, on the scale of the image's own dtype."""
    if is_sequence(value):
        raise TypeError(f"{name} must be one number, used for all channels; got {value!r}")
    return number(name, value, -32768, 65535)


def interval(name: str, value: Any, low: float, high: float) -> tuple[float, float]:
    """Return a range `(min, max)` within [low, high]."""
    if not is_sequence(value) or len(value) != 2:
        raise TypeError(f"{name} must be a range (min, max); got {value!r}")
    start, end = (number(name, item, low, high) for item in value)
    if start > end:
        raise ValueError(f"{name} must be (min, max) with min <= max; got {value!r}")
    return start, end


MAX_KEYPOINTS = 1024


def optional_pairs(name: str, value: Any) -> tuple[tuple[int, int], ...] | None:
    """Return pairs of keypoints, of which each is in one pair at most, or None."""
    if value is None:
        return None
    listed = value if is_sequence(value) else ()
    if listed is not value or not all(is_sequence(each) and len(each) == 2 for each in listed):
        raise ValueError(f"{name} must be pairs of numbers, as in [(1, 2), (3, 4)]; got {value!r}")
    checked = tuple((_keypoint(name, one), _keypoint(name, other)) for one, other in listed)
    numbers = [number for pair in checked for number in pair]
    if len(set(numbers)) != len(numbers):
        raise ValueError(f"{name} must have each keypoint in one pair at most; got {value!r}")
    return checked


def _keypoint(name: str, value: Any) -> int:
    return integer(name, value, 0, MAX_KEYPOINTS - 1)


def probability(name: str, value: Any) -> float:
    return number(name, value, 0, 1)
