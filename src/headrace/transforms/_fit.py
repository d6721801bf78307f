# SPDX-License-Identifier: Apache-2.0
"""Transforms for detection and segmentation that change the size of an image and keep its shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import INTERPOLATIONS, MAX_SIDE, Operation, Transform

_MAX_SIZES = 12


@dataclass(frozen=True)
class ScaleJitter(Transform):
    """Resize so that the image fits into `target_size` times a random factor. As torchvision's `ScaleJitter`.

    Args:
        target_size: A number or `(height, width)`.
        scale_range: Range of the factor.
        interpolation: As in `Resize`.
        antialias: As in `Resize`.

    """

    target_size: int | Sequence[int]
    scale_range: Sequence[float] = (0.1, 2.0)
    interpolation: str = "bilinear"
    antialias: bool = True

    op: ClassVar[str] = "scale_jitter"

    def __post_init__(self) -> None:
        self._set(
            target_size=arguments.size("ScaleJitter: target_size", self.target_size),
            scale_range=arguments.interval("ScaleJitter: scale_range", self.scale_range, 1e-3, 1e3),
            interpolation=arguments.choice("ScaleJitter: interpolation", self.interpolation, INTERPOLATIONS),
            antialias=arguments.flag("ScaleJitter: antialias", self.antialias),
        )

    def operations(self) -> tuple[Operation, ...]:
        size = arguments.size("target_size", self.target_size)
        resampling = (INTERPOLATIONS.index(self.interpolation), self.antialias)
        return (("scale_jitter", (*size, *self.scale_range, *resampling)),)

    def for_mask(self) -> Transform:
        return replace(self, interpolation="nearest")


@dataclass(frozen=True)
class RandomShortestSize(Transform):
    """Resize the shorter side to one of several sizes. As torchvision's `RandomShortestSize`.

    Args:
        min_size: Length of the shorter side, or up to 12 lengths to choose from.
        max_size: The longer side becomes no longer than this; the shorter one is then less than `min_size`.
        interpolation: As in `Resize`.
        antialias: As in `Resize`.

    """

    min_size: int | Sequence[int]
    max_size: int | None = None
    interpolation: str = "bilinear"
    antialias: bool = True

    op: ClassVar[str] = "random_shortest_size"

    def __post_init__(self) -> None:
        name = "RandomShortestSize"
        sizes = tuple(self.min_size) if arguments.is_sequence(self.min_size) else (self.min_size,)  # type: ignore[arg-type]
        if not 1 <= len(sizes) <= _MAX_SIZES:
            raise ValueError(f"{name}: min_size must have 1 to {_MAX_SIZES} sizes; got {len(sizes)}")
        longest = self.max_size
        self._set(
            min_size=tuple(arguments.integer(f"{name}: min_size", side, 1, MAX_SIDE) for side in sizes),
            max_size=None if longest is None else arguments.integer(f"{name}: max_size", longest, 1, MAX_SIDE),
            interpolation=arguments.choice(f"{name}: interpolation", self.interpolation, INTERPOLATIONS),
            antialias=arguments.flag(f"{name}: antialias", self.antialias),
        )

    def operations(self) -> tuple[Operation, ...]:
        sizes: tuple[int, ...] = tuple(self.min_size)  # type: ignore[arg-type]
        resampling = (INTERPOLATIONS.index(self.interpolation), self.antialias)
        return (("shortest_size", (self.max_size or 0, *resampling, len(sizes), *sizes)),)

    def for_mask(self) -> Transform:
        return replace(self, interpolation="nearest")


@dataclass(frozen=True)
class Letterbox(Transform):
    """Resize to fit into `size` and fill the rest, so that all images have the same size. As Ultralytics' `LetterBox`.

    Args:
        size: A number or `(height, width)`.
        fill: Level of the border, on the scale of the image's own dtype.
        scaleup: Whether smaller images are enlarged.
        center: Whether the image is in the middle; else at the top left.
        interpolation: As in `Resize`.
        antialias: As in `Resize`. Ultralytics resizes without it.
        mask_fill: Value of the border of a mask.

    """

    size: int | Sequence[int]
    fill: float = 114
    scaleup: bool = True
    center: bool = True
    interpolation: str = "bilinear"
    antialias: bool = True
    mask_fill: float = 0

    op: ClassVar[str] = "letterbox"

    def __post_init__(self) -> None:
        self._set(
            size=arguments.size("Letterbox: size", self.size),
            fill=arguments.fill("Letterbox: fill", self.fill),
            scaleup=arguments.flag("Letterbox: scaleup", self.scaleup),
            center=arguments.flag("Letterbox: center", self.center),
            interpolation=arguments.choice("Letterbox: interpolation", self.interpolation, INTERPOLATIONS),
            antialias=arguments.flag("Letterbox: antialias", self.antialias),
            mask_fill=arguments.fill("Letterbox: mask_fill", self.mask_fill),
        )

    def operations(self) -> tuple[Operation, ...]:
        size = arguments.size("size", self.size)
        resampling = (INTERPOLATIONS.index(self.interpolation), self.antialias)
        return (("letterbox", (*size, self.scaleup, self.center, self.fill, *resampling)),)

    def for_mask(self) -> Transform:
        return replace(self, interpolation="nearest", fill=self.mask_fill)


@dataclass(frozen=True)
class RandomZoomOut(Transform):
    """Place the image at random on a larger canvas, with probability `p`. As torchvision's `RandomZoomOut`.

    Args:
        fill: Level of the canvas, on the scale of the image's own dtype.
        side_range: Range of the factor by which both sides grow, at least 1.
        p: Probability of changing an image.
        mask_fill: Value of the canvas of a mask.

    """

    fill: float = 0
    side_range: Sequence[float] = (1.0, 4.0)
    p: float = 0.5
    mask_fill: float = 0

    op: ClassVar[str] = "random_zoom_out"

    def __post_init__(self) -> None:
        self._set(
            fill=arguments.fill("RandomZoomOut: fill", self.fill),
            side_range=arguments.interval("RandomZoomOut: side_range", self.side_range, 1, 1e3),
            p=arguments.probability("RandomZoomOut: p", self.p),
            mask_fill=arguments.fill("RandomZoomOut: mask_fill", self.mask_fill),
        )

    def operations(self) -> tuple[Operation, ...]:
        return (("zoom_out", (self.p, *self.side_range, self.fill)),)

    def for_mask(self) -> Transform:
        return replace(self, fill=self.mask_fill)
