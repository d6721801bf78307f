# SPDX-License-Identifier: Apache-2.0
"""`ElasticTransform`: a warp by smooth random displacements, which composes with other warps into one resampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import Operation, Transform
from headrace.transforms._warp import WARP_FILTERS, WARP_INTERPOLATIONS, Fill, packed_fill, warp_fill, whole_level


@dataclass(frozen=True)
class ElasticTransform(Transform):
    """Move each pixel by a smooth random displacement. As torchvision's `ElasticTransform`.

    A displacement is uniform noise from -1 to 1 for each pixel, smoothed by a Gaussian and multiplied by `alpha` / 2
    pixels (of an image that is not square, times width / height across and height / width down). Boxes, keypoints and
    polygons go exactly where their pixels go.

    Args:
        alpha: Strength: a number, or one for displacements across and one for those down.
        sigma: Deviation of the Gaussian in pixels, 1 to 1000: a number, or `(across, down)`.
        interpolation: "nearest", "bilinear" or "bicubic".
        fill: Level outside of the image, or three for red, green and blue, on the scale of the image's own dtype.
        mask_fill: Value outside of a mask.

    Different from torchvision: displacements are a spline over nodes that are up to 0.8 `sigma` apart, which has the
    same distribution and takes less memory and time; they do not grow towards the edges of the image; pixels of the
    edge are not mixed with `fill`; and `sigma` is at least 1. Displacements that fold the image, as those with
    alpha > 4 sigma² may do, show some places twice: points then go to one of them.

    """

    alpha: float | Sequence[float] = 50.0
    sigma: float | Sequence[float] = 5.0
    interpolation: str = "bilinear"
    fill: Fill = 0
    mask_fill: int = 0

    op: ClassVar[str] = "elastic_transform"

    def __post_init__(self) -> None:
        choose = arguments.choice
        self._set(
            alpha=_two("ElasticTransform: alpha", self.alpha, 0, 1e5),
            sigma=_two("ElasticTransform: sigma", self.sigma, 1, 1e3),
            interpolation=choose("ElasticTransform: interpolation", self.interpolation, WARP_INTERPOLATIONS),
            fill=warp_fill("ElasticTransform: fill", self.fill),
            mask_fill=whole_level("ElasticTransform: mask_fill", self.mask_fill),
        )

    def operations(self) -> tuple[Operation, ...]:
        alpha, sigma = _two("alpha", self.alpha, 0, 1e5), _two("sigma", self.sigma, 1, 1e3)
        return (("elastic", (*alpha, *sigma, WARP_FILTERS[self.interpolation], packed_fill(self.fill))),)

    def for_mask(self) -> Transform:
        return replace(self, interpolation="nearest", fill=self.mask_fill)


def _two(name: str, value: Any, low: float, high: float) -> tuple[float, float]:
    """Return a number for across and one for down; a single number is used for both."""
    numbers = tuple(value) if arguments.is_sequence(value) else (value,)
    if len(numbers) not in {1, 2}:
        raise ValueError(f"{name} must be a number or (across, down); got {value!r}")
    checked = [arguments.number(name, item, low, high) for item in numbers]
    return checked[0], checked[-1]
