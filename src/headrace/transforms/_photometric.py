# SPDX-License-Identifier: Apache-2.0
"""Transforms of pixel values with the exact results of Pillow. Masks and boxes are not affected.

Of an image with four channels the fourth, alpha, is not changed, except by `GaussianBlur`. Images of 16 bits get the
same formulas on their own range of levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import Operation, Transform

BRIGHTNESS, CONTRAST, SATURATION, SHARPNESS = range(4)
OWN_LEVELS, EIGHT_BIT_LEVELS, WHOLE_EIGHT_BIT_LEVELS = range(3)


def constant(value: float) -> tuple[float, ...]:
    """Return the eight numbers of a level that is always `value`."""
    return (0, value, value, value, value, 0, 0, 1)


@dataclass(frozen=True)
class Invert(Transform):
    """Invert all levels with probability `p`: 255 - x, or 65535 - x. As torchvision's `RandomInvert`.

    Different from torchvision: int16 levels become -1 - x, so that the full range is mirrored.
    """

    p: float = 0.5

    op: ClassVar[str] = "invert"

    def __post_init__(self) -> None:
        self._set(p=arguments.probability("Invert: p", self.p))

    def operations(self) -> tuple[Operation, ...]:
        return (("invert", (self.p,)),)


@dataclass(frozen=True)
class Posterize(Transform):
    """Keep the `bits` highest bits of each level, with probability `p`. As torchvision's `RandomPosterize`.

    Args:
        bits: 0 to 8 for uint8 images, 0 to 16 for images of 16 bits. int16 levels are shifted to 0 and up first.
        p: Probability.

    """

    bits: int
    p: float = 0.5

    op: ClassVar[str] = "posterize"

    def __post_init__(self) -> None:
        bits = arguments.integer("Posterize: bits", self.bits, 0, 16)
        self._set(bits=bits, p=arguments.probability("Posterize: p", self.p))

    def operations(self) -> tuple[Operation, ...]:
        return (("posterize", (self.p, 0, *constant(self.bits))),)


@dataclass(frozen=True)
class Solarize(Transform):
    """Invert levels at or above `threshold`, with probability `p`. As torchvision's `RandomSolarize`.

    Args:
        threshold: In levels of the image's own dtype.
        p: Probability.

    """

    threshold: float
    p: float = 0.5

    op: ClassVar[str] = "solarize"

    def __post_init__(self) -> None:
        threshold = arguments.number("Solarize: threshold", self.threshold, -32768, 65536)
        self._set(threshold=threshold, p=arguments.probability("Solarize: p", self.p))

    def operations(self) -> tuple[Operation, ...]:
        return (("solarize", (self.p, OWN_LEVELS, *constant(self.threshold))),)


@dataclass(frozen=True)
class AutoContrast(Transform):
    """Stretch the levels of each channel to the full range, with probability `p`.

    As torchvision's `RandomAutocontrast`. The result is that of Pillow's `ImageOps.autocontrast`.
    """

    p: float = 0.5

    op: ClassVar[str] = "autocontrast"

    def __post_init__(self) -> None:
        self._set(p=arguments.probability("AutoContrast: p", self.p))

    def operations(self) -> tuple[Operation, ...]:
        return (("autocontrast", (self.p,)),)


@dataclass(frozen=True)
class Equalize(Transform):
    """Make all levels of each channel about equally frequent, with probability `p`. As torchvision's `RandomEqualize`.

    The result is that of Pillow's `ImageOps.equalize`. Images of 16 bits, which torchvision does not take, are
    equalized over all 65536 levels.
    """

    p: float = 0.5

    op: ClassVar[str] = "equalize"

    def __post_init__(self) -> None:
        self._set(p=arguments.probability("Equalize: p", self.p))

    def operations(self) -> tuple[Operation, ...]:
        return (("equalize", (self.p,)),)


@dataclass(frozen=True)
class AdjustSharpness(Transform):
    """Change the sharpness, with probability `p`. As torchvision's `RandomAdjustSharpness`.

    Args:
        sharpness_factor: 0 smooths the image, 1 leaves it, 2 sharpens it. The result is that of Pillow's
            `ImageEnhance.Sharpness`; the outermost pixels do not change.
        p: Probability.

    """

    sharpness_factor: float
    p: float = 0.5

    op: ClassVar[str] = "adjust_sharpness"

    def __post_init__(self) -> None:
        factor = arguments.number("AdjustSharpness: sharpness_factor", self.sharpness_factor, 0, 1e6)
        self._set(sharpness_factor=factor, p=arguments.probability("AdjustSharpness: p", self.p))

    def operations(self) -> tuple[Operation, ...]:
        return (enhance(self.p, SHARPNESS, constant(self.sharpness_factor)),)


@dataclass(frozen=True)
class GaussianBlur(Transform):
    """Blur with a Gaussian kernel. As torchvision's `GaussianBlur`; put it into `RandomApply` for a probability.

    Args:
        kernel_size: A number or `(height, width)`, odd, at most 255.
        sigma: Standard deviation in pixels: a number, or a range to draw from. 0.001 to 1000.

    Different from torchvision: `kernel_size` is (height, width), as all sizes here, and the kernel may be larger than
    the image, which is then mirrored repeatedly.

    """

    kernel_size: int | Sequence[int]
    sigma: float | Sequence[float] = (0.1, 2.0)

    op: ClassVar[str] = "gaussian_blur"

    def __post_init__(self) -> None:
        size = arguments.size("GaussianBlur: kernel_size", self.kernel_size)
        if max(size) > 255 or not all(side % 2 for side in size):
            raise ValueError(f"GaussianBlur: kernel_size must be odd and at most 255; got {self.kernel_size!r}")
        sigma = self.sigma if arguments.is_sequence(self.sigma) else (self.sigma, self.sigma)
        self._set(kernel_size=size, sigma=arguments.interval("GaussianBlur: sigma", sigma, 1e-3, 1e3))

    def operations(self) -> tuple[Operation, ...]:
        return (("gaussian_blur", (*_pair(self.kernel_size), *_pair(self.sigma))),)


@dataclass(frozen=True)
class GaussianNoise(Transform):
    """Add independent normal noise to each level. As torchvision's `GaussianNoise`, with `clip`.

    Args:
        mean: Mean of the noise on the 0-1 scale.
        sigma: Standard deviation on the 0-1 scale, 0 to 10.

    Different from torchvision, which takes float images only: the image keeps its dtype, and levels are rounded.

    """

    mean: float = 0.0
    sigma: float = 0.1

    op: ClassVar[str] = "gaussian_noise"

    def __post_init__(self) -> None:
        mean = arguments.number("GaussianNoise: mean", self.mean, -1, 1)
        self._set(mean=mean, sigma=arguments.number("GaussianNoise: sigma", self.sigma, 0, 10))

    def operations(self) -> tuple[Operation, ...]:
        return (("gaussian_noise", (self.mean, self.sigma)),)


@dataclass(frozen=True)
class RandomChannelPermutation(Transform):
    """Put the channels into a random order. As torchvision's `RandomChannelPermutation`; alpha stays the last one."""

    op: ClassVar[str] = "random_channel_permutation"

    def operations(self) -> tuple[Operation, ...]:
        return (("permute_channels", ()),)


@dataclass(frozen=True)
class JPEG(Transform):
    """Compress as JPEG and decompress, for its artefacts. As torchvision's `JPEG`.

    The result is that of Pillow with the default chroma subsampling, 4:2:0. Only uint8 images of 1, 3 or 4 channels.

    Args:
        quality: 1 to 100: a number, or a range to draw from.

    """

    quality: int | Sequence[int]

    op: ClassVar[str] = "jpeg"

    def __post_init__(self) -> None:
        quality = self.quality if arguments.is_sequence(self.quality) else (self.quality, self.quality)
        low, high = arguments.interval("JPEG: quality", quality, 1, 100)
        for end in (low, high):
            arguments.integer("JPEG: quality", end, 1, 100)
        self._set(quality=(low, high))

    def operations(self) -> tuple[Operation, ...]:
        return (("jpeg", _pair(self.quality)),)


def enhance(p: float, what: int, level: Sequence[float], *, base: float = 0, least: float = 0) -> Operation:
    """Return the operation that multiplies by max(least, base + level), as Pillow's `ImageEnhance` does."""
    return "enhance", (p, what, base, least, *level)


def _pair(value: Any) -> tuple[float, float]:
    first, second = value
    return first, second
