# SPDX-License-Identifier: Apache-2.0
"""Geometric transforms: resize, crop, flip, pad. Masks and boxes are transformed together with their image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import INTERPOLATIONS, PADDING_MODES, Operation, Transform


@dataclass(frozen=True)
class Resize(Transform):
    """Resize to `(height, width)`, or so that the shorter side becomes `size` and the aspect ratio stays.

    As torchvision's `Resize`; "area" is Pillow's `BOX`.

    Args:
        size: Length of the shorter side, or exactly `(height, width)`.
        interpolation: "bilinear", "bicubic", "area" or "nearest". Masks always use "nearest".
        antialias: Widen the filter when the image shrinks, as Pillow always does. Without it fine patterns alias.

    """

    size: int | Sequence[int]
    interpolation: str = "bilinear"
    antialias: bool = True

    op: ClassVar[str] = "resize"

    def __post_init__(self) -> None:
        exact = arguments.is_sequence(self.size) and len(self.size) > 1  # type: ignore[arg-type]
        height, width = arguments.size("Resize: size", self.size)
        self._set(
            size=(height, width) if exact else height,
            interpolation=arguments.choice("Resize: interpolation", self.interpolation, INTERPOLATIONS),
            antialias=arguments.flag("Resize: antialias", self.antialias),
        )

    def operations(self) -> tuple[Operation, ...]:
        height, width = arguments.size("size", self.size)
        exact = not isinstance(self.size, int)
        return (("resize", (exact, height, width, INTERPOLATIONS.index(self.interpolation), self.antialias)),)

    def for_mask(self) -> Transform:
        return replace(self, interpolation="nearest")


@dataclass(frozen=True)
class CenterCrop(Transform):
    """Crop the center to `size`, a number or `(height, width)`. As torchvision's `CenterCrop`.

    Smaller images are padded with zeros.
    """

    size: int | Sequence[int]

    op: ClassVar[str] = "center_crop"

    def __post_init__(self) -> None:
        self._set(size=arguments.size("CenterCrop: size", self.size))

    def operations(self) -> tuple[Operation, ...]:
        return (("center_crop", arguments.size("size", self.size)),)


@dataclass(frozen=True)
class RandomCrop(Transform):
    """Crop to `size` at a random position. As torchvision's `RandomCrop`, which has no `mask_fill`.

    Args:
        size: A number or `(height, width)`. A smaller image is an error unless padding is allowed.
        padding: Pad before cropping: a number, `(left and right, top and bottom)` or `(left, top, right, bottom)`.
        pad_if_needed: Pad an image that is too small by the missing amount on both sides, so that it can be anywhere in
            the crop.
        fill: Pixel value of the padding, on the scale of the image's own dtype.
        padding_mode: "constant" (the fill value), "edge" (repeat the border pixels) or "reflect" (mirror at them).
        mask_fill: Value of the padding of a mask; None means `fill`.

    """

    size: int | Sequence[int]
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: float = 0
    padding_mode: str = "constant"
    mask_fill: float | None = None

    op: ClassVar[str] = "random_crop"

    def __post_init__(self) -> None:
        self._set(
            size=arguments.size("RandomCrop: size", self.size),
            padding=None if self.padding is None else arguments.padding("RandomCrop: padding", self.padding),
            pad_if_needed=arguments.flag("RandomCrop: pad_if_needed", self.pad_if_needed),
            fill=arguments.fill("RandomCrop: fill", self.fill),
            padding_mode=arguments.choice("RandomCrop: padding_mode", self.padding_mode, PADDING_MODES),
            mask_fill=_mask_fill("RandomCrop", self.mask_fill),
        )

    def operations(self) -> tuple[Operation, ...]:
        border = (self.fill, PADDING_MODES.index(self.padding_mode))
        crop = ("random_crop", (*arguments.size("size", self.size), self.pad_if_needed, *border))
        if self.padding is None:
            return (crop,)
        return (("pad", (*arguments.padding("padding", self.padding), *border)), crop)

    def for_mask(self) -> Transform:
        return self if self.mask_fill is None else replace(self, fill=self.mask_fill)


@dataclass(frozen=True)
class RandomResizedCrop(Transform):
    """Crop a random area with a random aspect ratio and resize it. As torchvision's `RandomResizedCrop`.

    The crop comes first. Pixels outside it do not influence the result, and formats with tiles do not decode them.

    Args:
        size: Output size: a number or `(height, width)`.
        scale: Minimum and maximum area of the crop, as a share of the image.
        ratio: Minimum and maximum width / height. If ten draws do not fit into the image, the center is used.
        interpolation: As in `Resize`.
        antialias: As in `Resize`.

    """

    size: int | Sequence[int]
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (3 / 4, 4 / 3)
    interpolation: str = "bilinear"
    antialias: bool = True

    op: ClassVar[str] = "random_resized_crop"

    def __post_init__(self) -> None:
        self._set(
            size=arguments.size("RandomResizedCrop: size", self.size),
            scale=arguments.interval("RandomResizedCrop: scale", self.scale, 1e-9, 1e3),
            ratio=arguments.interval("RandomResizedCrop: ratio", self.ratio, 1e-3, 1e3),
            interpolation=arguments.choice("RandomResizedCrop: interpolation", self.interpolation, INTERPOLATIONS),
            antialias=arguments.flag("RandomResizedCrop: antialias", self.antialias),
        )

    def operations(self) -> tuple[Operation, ...]:
        resampling = (INTERPOLATIONS.index(self.interpolation), self.antialias)
        size = arguments.size("size", self.size)
        return (("random_resized_crop", (*size, *self.scale, *self.ratio, *resampling)),)

    def for_mask(self) -> Transform:
        return replace(self, interpolation="nearest")


@dataclass(frozen=True)
class HorizontalFlip(Transform):
    """Flip left and right with probability `p`. As torchvision's `RandomHorizontalFlip`, which has no `flip_pairs`.

    Args:
        p: Probability of a flip.
        flip_pairs: Pairs of keypoints, by their numbers from 0, that are exchanged if the image is mirrored, such as
            the left and the right eye: `[(1, 2), (3, 4)]`. None uses those that the dataset records; `()` exchanges
            none. Two flips of a sample, or one and a vertical one, mirror nothing.

    """

    p: float = 0.5
    flip_pairs: Sequence[Sequence[int]] | None = None

    op: ClassVar[str] = "horizontal_flip"

    def __post_init__(self) -> None:
        self._set(
            p=arguments.probability("HorizontalFlip: p", self.p),
            flip_pairs=arguments.optional_pairs("HorizontalFlip: flip_pairs", self.flip_pairs),
        )

    def operations(self) -> tuple[Operation, ...]:
        return (("horizontal_flip", (self.p,)),)


@dataclass(frozen=True)
class VerticalFlip(Transform):
    """Flip top and bottom with probability `p`. As torchvision's `RandomVerticalFlip`, which has no `flip_pairs`.

    Args:
        p: Probability of a flip.
        flip_pairs: Pairs of keypoints, by their numbers from 0, that are exchanged if the image is mirrored, such as
            the left and the right eye: `[(1, 2), (3, 4)]`. None uses those that the dataset records; `()` exchanges
            none. Two flips of a sample, or one and a vertical one, mirror nothing.

    """

    p: float = 0.5
    flip_pairs: Sequence[Sequence[int]] | None = None

    op: ClassVar[str] = "vertical_flip"

    def __post_init__(self) -> None:
        self._set(
            p=arguments.probability("VerticalFlip: p", self.p),
            flip_pairs=arguments.optional_pairs("VerticalFlip: flip_pairs", self.flip_pairs),
        )

    def operations(self) -> tuple[Operation, ...]:
        return (("vertical_flip", (self.p,)),)


@dataclass(frozen=True)
class Pad(Transform):
    """Add a border around the image. As torchvision's `Pad`, which has no `mask_fill`.

    Args:
        padding: Border width: a number, `(left and right, top and bottom)` or `(left, top, right, bottom)`.
        fill: Pixel value of a constant border, on the scale of the image's own dtype.
        padding_mode: "constant" (the fill value), "edge" (repeat the border pixels) or "reflect" (mirror at them).
        mask_fill: Value of a constant border of a mask; None means `fill`.

    """

    padding: int | Sequence[int]
    fill: float = 0
    padding_mode: str = "constant"
    mask_fill: float | None = None

    op: ClassVar[str] = "pad"

    def __post_init__(self) -> None:
        self._set(
            padding=arguments.padding("Pad: padding", self.padding),
            fill=arguments.fill("Pad: fill", self.fill),
            padding_mode=arguments.choice("Pad: padding_mode", self.padding_mode, PADDING_MODES),
            mask_fill=_mask_fill("Pad", self.mask_fill),
        )

    def operations(self) -> tuple[Operation, ...]:
        widths = arguments.padding("padding", self.padding)
        return (("pad", (*widths, self.fill, PADDING_MODES.index(self.padding_mode))),)

    def for_mask(self) -> Transform:
        return self if self.mask_fill is None else replace(self, fill=self.mask_fill)


def _mask_fill(owner: str, value: float | None) -> float | None:
    return None if value is None else arguments.fill(f"{owner}: mask_fill", value)


@dataclass(frozen=True)
class Patch(Transform):
    """Crop to `size` at a place of a grid, or at a random place. `headrace.patches` puts it first.

    Which patch of the grid it is depends on the sample number (spec/order.md). A smaller image is padded at the bottom
    and at the right.

    Args:
        size: A number or `(height, width)`.
        stride: The distance between patches, a number or `(down, across)`; None is a random place.
        fill: Pixel value of the padding of images.
        mask_fill: That of masks.

    """

    size: int | Sequence[int]
    stride: int | Sequence[int] | None = None
    fill: float = 0
    mask_fill: float = 255

    op: ClassVar[str] = "patch"
    nests: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._set(
            size=arguments.size("Patch: size", self.size),
            stride=None if self.stride is None else arguments.size("Patch: stride", self.stride),
            fill=arguments.fill("Patch: fill", self.fill),
            mask_fill=arguments.fill("Patch: mask_fill", self.mask_fill),
        )

    def operations(self) -> tuple[Operation, ...]:
        stride = (0, 0) if self.stride is None else arguments.size("stride", self.stride)
        return (("patch", (*arguments.size("size", self.size), *stride, self.fill)),)

    def for_mask(self) -> Transform:
        return replace(self, fill=self.mask_fill)
