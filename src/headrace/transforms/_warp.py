# SPDX-License-Identifier: Apache-2.0
"""Transforms that turn, shear and distort: consecutive ones, and crops, flips and pads among them, are one resampling.

Pixels are those of Pillow's `Image.transform`: exact with "nearest", within one level with "bilinear" and "bicubic". An
image that a warp makes smaller is averaged, which Pillow does not do. Masks always use "nearest".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import Operation, Transform

WARP_INTERPOLATIONS = ("nearest", "bilinear", "bicubic")
WARP_FILTERS = {"nearest": 0, "bilinear": 2, "bicubic": 3}

# Flags of a warp's `resampling` (headrace/transform.h).
_EXPAND = 16
_CENTER = 32

Fill = float | Sequence[float]


def packed_fill(levels: float | Sequence[float]) -> int:
    """Return up to three whole levels as the one number that the core reads."""
    red, green, blue = levels if isinstance(levels, (tuple, list)) else (levels,) * 3
    return int(red) + 32768 + (int(green) + 32768 << 17) + (int(blue) + 32768 << 34)


def warp_fill(name: str, value: Any) -> int | tuple[int, ...]:
    """Return one whole level, or three for red, green and blue."""
    if not arguments.is_sequence(value):
        return whole_level(name, value)
    if len(value) not in {1, 3}:
        raise ValueError(f"{name} must be one level or three; got {value!r}")
    return tuple(whole_level(name, level) for level in value) if len(value) == 3 else whole_level(name, value[0])


def whole_level(name: str, value: Any) -> int:
    level = arguments.number(name, value, -32768, 65535)
    if level != int(level):
        raise ValueError(f"{name} must be whole levels; got {value!r}")
    return int(level)


def _around_zero(name: str, value: Any, most: float) -> tuple[float, float]:
    """Return a range; a number a means (-a, a)."""
    if arguments.is_sequence(value):
        return arguments.interval(name, value, -most, most)
    amount = arguments.number(name, value, 0, most)
    return -amount, amount


def _center(name: str, value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    if not arguments.is_sequence(value) or len(value) != 2:
        raise ValueError(f"{name} must be (x, y) or None; got {value!r}")
    x, y = (arguments.number(name, item, -65535, 65535) for item in value)
    return x, y


@dataclass(frozen=True)
class RandomRotation(Transform):
    """Rotate by a random angle. As torchvision's `RandomRotation` on a PIL image.

    Args:
        degrees: A range `(min, max)`, counterclockwise, or a number a, which means `(-a, a)`.
        interpolation: "nearest", "bilinear" or "bicubic".
        expand: Make the output large enough for the entire rotated image. Its size then depends on the angle.
        center: `(x, y)` in pixels from the top left corner; None means the middle. Not with `expand`.
        fill: Level outside of the image, or three for red, green and blue, on the scale of the image's own dtype.
        mask_fill: Value outside of a mask.

    """

    degrees: float | Sequence[float]
    interpolation: str = "nearest"
    expand: bool = False
    center: Sequence[float] | None = None
    fill: Fill = 0
    mask_fill: int = 0

    op: ClassVar[str] = "random_rotation"

    def __post_init__(self) -> None:
        center = _center("RandomRotation: center", self.center)
        if arguments.flag("RandomRotation: expand", self.expand) and center is not None:
            raise ValueError("RandomRotation: expand needs center=None; the image is turned about its middle")
        self._set(
            degrees=_around_zero("RandomRotation: degrees", self.degrees, 36000),
            interpolation=arguments.choice("RandomRotation: interpolation", self.interpolation, WARP_INTERPOLATIONS),
            center=center,
            fill=warp_fill("RandomRotation: fill", self.fill),
            mask_fill=whole_level("RandomRotation: mask_fill", self.mask_fill),
        )

    def operations(self) -> tuple[Operation, ...]:
        low, high = _around_zero("degrees", self.degrees, 36000)
        unchanged = (0, 0, 0, 0, 1, 1, 0, 0, 0, 0)
        resampling = WARP_FILTERS[self.interpolation] + _EXPAND * self.expand
        return (("affine", (-high, -low, *unchanged, *_tail(resampling, self.fill, self.center))),)

    def for_mask(self) -> Transform:
        return replace(self, interpolation="nearest", fill=self.mask_fill)


@dataclass(frozen=True)
class RandomAffine(Transform):
    """Rotate, move, scale and shear by random amounts. As torchvision's `RandomAffine` on a PIL image.

    Args:
        degrees: A range `(min, max)`, clockwise, or a number a, which means `(-a, a)`.
        translate: Largest movement `(across, down)` as fractions of width and height. Movements are whole pixels.
        scale: Range of the factor.
        shear: Degrees: a number a or a range for x; or `(x min, x max, y min, y max)`. A number means `(-a, a)`.
        interpolation: "nearest", "bilinear" or "bicubic".
        fill: Level outside of the image, or three for red, green and blue, on the scale of the image's own dtype.
        center: `(x, y)` in pixels from the top left corner; None means the middle.
        mask_fill: Value outside of a mask.

    Different from torchvision: an image that becomes smaller is averaged instead of sampled, unless "nearest".

    """

    degrees: float | Sequence[float]
    translate: Sequence[float] | None = None
    scale: Sequence[float] | None = None
    shear: float | Sequence[float] | None = None
    interpolation: str = "nearest"
    fill: Fill = 0
    center: Sequence[float] | None = None
    mask_fill: int = 0

    op: ClassVar[str] = "random_affine"

    def __post_init__(self) -> None:
        self._set(
            degrees=_around_zero("RandomAffine: degrees", self.degrees, 36000),
            translate=None if self.translate is None else _fractions("RandomAffine: translate", self.translate),
            scale=None if self.scale is None else arguments.interval("RandomAffine: scale", self.scale, 1e-3, 1e3),
            shear=None if self.shear is None else _shear("RandomAffine: shear", self.shear),
            interpolation=arguments.choice("RandomAffine: interpolation", self.interpolation, WARP_INTERPOLATIONS),
            fill=warp_fill("RandomAffine: fill", self.fill),
            center=_center("RandomAffine: center", self.center),
            mask_fill=whole_level("RandomAffine: mask_fill", self.mask_fill),
        )

    def operations(self) -> tuple[Operation, ...]:
        degrees = _around_zero("degrees", self.degrees, 36000)
        across, down = self.translate or (0, 0)
        moves = (*degrees, -across, across, -down, down, *(self.scale or (1, 1)))
        shear = (0.0,) * 4 if self.shear is None else _shear("shear", self.shear)
        return (("affine", (*moves, *shear, *_tail(WARP_FILTERS[self.interpolation], self.fill, self.center))),)

    def for_mask(self) -> Transform:
        return replace(self, interpolation="nearest", fill=self.mask_fill)


@dataclass(frozen=True)
class RandomPerspective(Transform):
    """Look at the image from a random direction, with probability `p`. As torchvision's `RandomPerspective`.

    Args:
        distortion_scale: How far the corners move inwards: at most this share of half the width and height.
        p: Probability of changing an image.
        interpolation: "nearest", "bilinear" or "bicubic".
        fill: Level outside of the image, or three for red, green and blue, on the scale of the image's own dtype.
        mask_fill: Value outside of a mask.

    Different from torchvision: an image that becomes smaller is averaged instead of sampled, unless "nearest".

    """

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: str = "bilinear"
    fill: Fill = 0
    mask_fill: int = 0

    op: ClassVar[str] = "random_perspective"

    def __post_init__(self) -> None:
        choose = arguments.choice
        self._set(
            distortion_scale=arguments.number("RandomPerspective: distortion_scale", self.distortion_scale, 0, 1),
            p=arguments.probability("RandomPerspective: p", self.p),
            interpolation=choose("RandomPerspective: interpolation", self.interpolation, WARP_INTERPOLATIONS),
            fill=warp_fill("RandomPerspective: fill", self.fill),
            mask_fill=whole_level("RandomPerspective: mask_fill", self.mask_fill),
        )

    def operations(self) -> tuple[Operation, ...]:
        parameters = (self.p, self.distortion_scale, WARP_FILTERS[self.interpolation], packed_fill(self.fill))
        return (("perspective", parameters),)

    def for_mask(self) -> Transform:
        return replace(self, interpolation="nearest", fill=self.mask_fill)


def _tail(resampling: int, fill: Fill, center: Sequence[float] | None) -> tuple[float, ...]:
    """Return the last four parameters of `affine`."""
    return (resampling + _CENTER * (center is not None), packed_fill(fill), *(center or (0, 0)))


def _fractions(name: str, value: Any) -> tuple[float, float]:
    if not arguments.is_sequence(value) or len(value) != 2:
        raise TypeError(f"{name} must be two fractions (across, down) or None; got {value!r}")
    across, down = (arguments.number(name, item, 0, 1) for item in value)
    return across, down


def _shear(name: str, value: Any) -> tuple[float, float, float, float]:
    if arguments.is_sequence(value) and len(value) == 4:
        x, y = (arguments.interval(name, value[k : k + 2], -89, 89) for k in (0, 2))
        return *x, *y
    return *_around_zero(name, value, 89), 0.0, 0.0
