# SPDX-License-Identifier: Apache-2.0
"""`Mosaic`: four images of an epoch on one canvas. The partners of a sample depend on (seed, epoch, sample) alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import INTERPOLATIONS, Operation, Transform

# MosaicPart in headrace/transform.h.
PLACED = 4
_CANVAS = 8
_MAX_TILE = 32767


@dataclass(frozen=True)
class Mosaic(Transform):
    """Combine each image with three others of the epoch, around a random point. As Ultralytics' `Mosaic`.

    Each image is fitted into `size`; the canvas has twice its height and width. So what follows is a crop: usually
    `RandomAffine(..., fill=114)` and `CenterCrop(size)`. Boxes, masks, and what belongs to boxes move along. Other
    fields keep the values of the first image. It is the first transform of a list; `headrace.Loader` and
    `headrace.open` carry it out, because it reads further samples. Four images are decoded per sample, each only where
    the canvas shows it.

    Args:
        size: Size of one image: a number or `(height, width)`.
        p: Probability of a mosaic. Otherwise the image alone is fitted into `size`, in the middle of the canvas.
        center_range: Range of the point where the images meet, as a share of the canvas.
        fill: Level of the rest of the canvas, on the scale of the image's own dtype.
        mask_fill: Value of the rest of a mask.
        interpolation: As in `Resize`.
        antialias: As in `Resize`. Ultralytics resizes without it.

    """

    size: int | Sequence[int] = 640
    p: float = 1.0
    center_range: Sequence[float] = (0.25, 0.75)
    fill: float = 114
    mask_fill: float = 0
    interpolation: str = "bilinear"
    antialias: bool = True

    op: ClassVar[str] = "mosaic"
    stage: ClassVar[int] = -1
    nests: ClassVar[bool] = False

    def __post_init__(self) -> None:
        height, width = arguments.size("Mosaic: size", self.size)
        if max(height, width) > _MAX_TILE:
            raise ValueError(f"Mosaic: size must be at most {_MAX_TILE}; got {max(height, width)}")
        self._set(
            size=(height, width),
            p=arguments.probability("Mosaic: p", self.p),
            center_range=arguments.interval("Mosaic: center_range", self.center_range, 0, 1),
            fill=arguments.fill("Mosaic: fill", self.fill),
            mask_fill=arguments.fill("Mosaic: mask_fill", self.mask_fill),
            interpolation=arguments.choice("Mosaic: interpolation", self.interpolation, INTERPOLATIONS),
            antialias=arguments.flag("Mosaic: antialias", self.antialias),
        )

    def operations(self) -> tuple[Operation, ...]:
        """Return what is done on the canvas: nothing. The transforms that follow keep their numbers."""
        return self.part(_CANVAS)

    def part(self, number: int) -> tuple[Operation, ...]:
        """Return the operation of a part: tile 0 to 3, cut to what is seen; 4 more, in its place on the canvas."""
        resampling = (INTERPOLATIONS.index(self.interpolation), self.antialias)
        size = arguments.size("size", self.size)
        return (("mosaic", (*size, number, self.p, *self.center_range, self.fill, *resampling)),)

    def __call__(self, image: Any, **_: int) -> Any:  # noqa: ARG002 - the arguments of every transform
        raise TypeError("Mosaic needs further samples: use it in headrace.Loader or headrace.open")

    def for_mask(self) -> Mosaic:
        return replace(self, interpolation="nearest", fill=self.mask_fill)
