# SPDX-License-Identifier: Apache-2.0
"""Policies as torchvision has them: AutoAugment, RandAugment, TrivialAugmentWide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import Operation, Transform
from headrace.transforms._control import choice
from headrace.transforms._photometric import EIGHT_BIT_LEVELS
from headrace.transforms.policies._steps import (
    ENHANCEMENTS,
    FILTERS,
    PLAIN,
    Amount,
    checked_fill,
    enhanced,
    filter_and_fill,
    fixed,
    level,
    moved,
    whole,
)

INTERPOLATIONS = tuple(name for name in FILTERS if name != "random")

# Sub-policies of the paper (Cubuk et al., 2019, https://arxiv.org/abs/1805.09501, tables 7 to 9): an operation, its
# probability in tenths and its magnitude of 0 to 9, twice. Operations without a magnitude have a dash.
_POLICIES = {
    "imagenet": """
        Posterize 4 8 Rotate 6 9 | Solarize 6 5 AutoContrast 6 - | Equalize 8 - Equalize 6 -
        Posterize 6 7 Posterize 6 6 | Equalize 4 - Solarize 2 4 | Equalize 4 - Rotate 8 8
        Solarize 6 3 Equalize 6 - | Posterize 8 5 Equalize 10 - | Rotate 2 3 Solarize 6 8
        Equalize 6 - Posterize 4 6 | Rotate 8 8 Color 4 0 | Rotate 4 9 Equalize 6 - | Equalize 0 - Equalize 8 -
        Invert 6 - Equalize 10 - | Color 6 4 Contrast 10 8 | Rotate 8 8 Color 10 2 | Color 8 8 Solarize 8 7
        Sharpness 4 7 Invert 6 - | ShearX 6 5 Equalize 10 - | Color 4 0 Equalize 6 - | Equalize 4 - Solarize 2 4
        Solarize 6 5 AutoContrast 6 - | Invert 6 - Equalize 10 - | Color 6 4 Contrast 10 8
        Equalize 8 - Equalize 6 -""",
    "cifar10": """
        Invert 1 - Contrast 2 6 | Rotate 7 2 TranslateX 3 9 | Sharpness 8 1 Sharpness 9 3
        ShearY 5 8 TranslateY 7 9 | AutoContrast 5 - Equalize 9 - | ShearY 2 7 Posterize 3 7
        Color 4 3 Brightness 6 7 | Sharpness 3 9 Brightness 7 9 | Equalize 6 - Equalize 5 -
        Contrast 6 7 Sharpness 6 5 | Color 7 7 TranslateX 5 8 | Equalize 3 - AutoContrast 4 -
        TranslateY 4 3 Sharpness 2 6 | Brightness 9 6 Color 2 8 | Solarize 5 2 Invert 0 -
        Equalize 2 - AutoContrast 6 - | Equalize 2 - Equalize 6 - | Color 9 9 Equalize 6 -
        AutoContrast 8 - Solarize 2 8 | Brightness 1 3 Color 7 0 | Solarize 4 5 AutoContrast 9 -
        TranslateY 9 9 TranslateY 7 9 | AutoContrast 9 - Solarize 8 3 | Equalize 8 - Invert 1 -
        TranslateY 7 9 AutoContrast 9 -""",
    "svhn": """
        ShearX 9 4 Invert 2 - | ShearY 9 8 Invert 7 - | Equalize 6 - Solarize 6 6 | Invert 9 - Equalize 6 -
        Equalize 6 - Rotate 9 3 | ShearX 9 4 AutoContrast 8 - | ShearY 9 8 Invert 4 - | ShearY 9 5 Solarize 2 6
        Invert 9 - AutoContrast 8 - | Equalize 6 - Rotate 9 3 | ShearX 9 4 Solarize 3 3 | ShearY 8 8 Invert 7 -
        Equalize 9 - TranslateY 6 6 | Invert 9 - Equalize 6 - | Contrast 3 3 Rotate 8 4
        Invert 8 - TranslateY 0 2 | ShearY 7 6 Solarize 4 8 | Invert 6 - Rotate 8 4 | ShearY 3 7 TranslateX 9 3
        ShearX 1 6 Invert 6 - | Solarize 7 2 TranslateY 6 7 | ShearY 8 4 Invert 8 - | ShearX 7 9 TranslateY 8 3
        ShearY 8 5 AutoContrast 7 - | ShearX 7 2 Invert 1 -""",
}


@cache
def sub_policies(policy: str) -> tuple[tuple[tuple[str, float, int], ...], ...]:
    """Return (operation, probability, magnitude) of both operations of each sub-policy, by its name or its table."""
    words = _POLICIES.get(policy, policy).replace("|", " ").split()
    steps = [
        (name, int(tenths) / 10, 0 if magnitude == "-" else int(magnitude))
        for name, tenths, magnitude in zip(words[::3], words[1::3], words[2::3], strict=True)
    ]
    return tuple(zip(steps[::2], steps[1::2], strict=True))


@dataclass(frozen=True)
class Space:
    """What each operation does at the greatest magnitude, which is `last`; it is in proportion below that."""

    last: int
    shear: float = 0.3
    translate: float = 150 / 331
    translate_names: tuple[str, str] = ("TranslateX", "TranslateY")
    rotate: float = 30.0
    enhance: float = 0.9
    posterize: float = 4.0
    """Bits that are dropped."""
    bits: int = 8
    """That `posterize` drops bits of."""

    def operations(self, name: str, amount: Amount, warp: tuple[float, float], p: float = 1) -> list[Operation]:
        """Return the operations of one step of a policy."""
        if name == "Identity":
            return []
        if name in PLAIN:
            return [(PLAIN[name], (p,))]
        if name in ENHANCEMENTS:
            return enhanced(name, p, level(amount, self.enhance / self.last, signed=True))
        if name == "Posterize":  # to the nearest number of bits
            return [("posterize", (p, 0, *level(amount, -self.posterize / self.last, base=self.bits + 0.5)))]
        if name == "Solarize":
            return [("solarize", (p, EIGHT_BIT_LEVELS, *level(amount, -255 / self.last, base=255)))]
        at_most = {"Rotate": self.rotate, "ShearX": self.shear, "ShearY": self.shear}.get(name, self.translate)
        movement = self.translate_names[name == "TranslateY"] if name.startswith("Translate") else name
        return moved(movement, amount, at_most / self.last, warp, p)


RAND_NAMES = (
    *("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast"),
    *("Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize"),
)


@dataclass(frozen=True)
class AutoAugment(Transform):
    """Apply one of the 25 learned sub-policies of a dataset. As torchvision's `AutoAugment`.

    Args:
        policy: "imagenet", "cifar10" or "svhn".
        interpolation: Of rotations, shears and translations: "nearest", "bilinear" or "bicubic".
        fill: Level outside of the moved image: None (0), one number, or one for each of three channels.

    Pixel values change as Pillow changes them, exactly. Different from torchvision: translations are not rounded to
    whole pixels towards zero.

    """

    policy: str = "imagenet"
    interpolation: str = "nearest"
    fill: int | Sequence[int] | None = None

    op: ClassVar[str] = "auto_augment"

    def __post_init__(self) -> None:
        policy = arguments.choice("AutoAugment: policy", self.policy, tuple(_POLICIES))
        self._set(policy=policy, **_checked_warp("AutoAugment", self))

    def operations(self) -> tuple[Operation, ...]:
        space, warp = Space(9), filter_and_fill(self.interpolation, self.fill)
        bodies = [
            [each for name, p, magnitude in steps for each in space.operations(name, fixed(magnitude), warp, p)]
            for steps in sub_policies(self.policy)
        ]
        return choice(bodies, (1,) * len(bodies))

    def for_mask(self) -> Transform:
        return replace(self, fill=None)


@dataclass(frozen=True)
class RandAugment(Transform):
    """Apply `num_ops` randomly chosen operations with one magnitude. As torchvision's `RandAugment`.

    Args:
        num_ops: Operations per image, 1 to 16.
        magnitude: 0 to num_magnitude_bins - 1.
        num_magnitude_bins: How many magnitudes there are.
        interpolation: Of rotations, shears and translations: "nearest", "bilinear" or "bicubic".
        fill: Level outside of the moved image: None (0), one number, or one for each of three channels.

    For timm's variant, such as "rand-m9-mstd0.5-inc1", use `TimmAugment`. Differences from torchvision as in
    `AutoAugment`.

    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: int | Sequence[int] | None = None

    op: ClassVar[str] = "rand_augment"

    def __post_init__(self) -> None:
        bins = arguments.integer("RandAugment: num_magnitude_bins", self.num_magnitude_bins, 2, 1000)
        self._set(
            num_ops=arguments.integer("RandAugment: num_ops", self.num_ops, 1, 16),
            magnitude=arguments.integer("RandAugment: magnitude", self.magnitude, 0, bins - 1),
            num_magnitude_bins=bins,
            **_checked_warp("RandAugment", self),
        )

    def operations(self) -> tuple[Operation, ...]:
        space, warp = Space(self.num_magnitude_bins - 1), filter_and_fill(self.interpolation, self.fill)
        bodies = [space.operations(name, fixed(self.magnitude), warp) for name in RAND_NAMES]
        return choice(bodies, (1,) * len(bodies)) * self.num_ops

    def for_mask(self) -> Transform:
        return replace(self, fill=None)


@dataclass(frozen=True)
class TrivialAugmentWide(Transform):
    """Apply one randomly chosen operation with a random magnitude. As torchvision's `TrivialAugmentWide`.

    Args:
        num_magnitude_bins: How many magnitudes there are.
        interpolation: Of rotations, shears and translations: "nearest", "bilinear" or "bicubic".
        fill: Level outside of the moved image: None (0), one number, or one for each of three channels.

    Pixel values change as Pillow changes them, exactly.

    """

    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: int | Sequence[int] | None = None

    op: ClassVar[str] = "trivial_augment_wide"

    def __post_init__(self) -> None:
        bins = arguments.integer("TrivialAugmentWide: num_magnitude_bins", self.num_magnitude_bins, 2, 1000)
        self._set(num_magnitude_bins=bins, **_checked_warp("TrivialAugmentWide", self))

    def operations(self) -> tuple[Operation, ...]:
        last = self.num_magnitude_bins - 1
        pixels = ("TranslateXPixels", "TranslateYPixels")
        space = Space(last, 0.99, 32.0, pixels, rotate=135.0, enhance=0.99, posterize=6.0)
        warp = filter_and_fill(self.interpolation, self.fill)
        bodies = [space.operations(name, whole(0, last), warp) for name in RAND_NAMES]
        return choice(bodies, (1,) * len(bodies))

    def for_mask(self) -> Transform:
        return replace(self, fill=None)


def _checked_warp(name: str, item: Any) -> dict[str, Any]:
    return {
        "interpolation": arguments.choice(f"{name}: interpolation", item.interpolation, INTERPOLATIONS),
        "fill": checked_fill(f"{name}: fill", item.fill),
    }
