# SPDX-License-Identifier: Apache-2.0
"""Transforms of pixel values: color jitter, grayscale, normalization. Masks and boxes are not affected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.transforms import _base as arguments
from headrace.transforms._base import Operation, Transform


@dataclass(frozen=True)
class ColorJitter(Transform):
    """Change brightness, contrast, saturation and hue by random amounts, in a random order.

    As torchvision's `ColorJitter`. Each argument is a range `(min, max)` or a number. `brightness=0.4` means factors in
    `(0.6, 1.4)`, never below 0. `hue=0.1` means a shift in `(-0.1, 0.1)` of the color circle; the limit is 0.5. 0
    skips that step. Saturation and hue do not change images with one channel.
    """

    brightness: float | Sequence[float] = 0
    contrast: float | Sequence[float] = 0
    saturation: float | Sequence[float] = 0
    hue: float | Sequence[float] = 0

    op: ClassVar[str] = "color_jitter"

    def __post_init__(self) -> None:
        self._set(
            brightness=_factors("ColorJitter: brightness", self.brightness),
            contrast=_factors("ColorJitter: contrast", self.contrast),
            saturation=_factors("ColorJitter: saturation", self.saturation),
            hue=_turns("ColorJitter: hue", self.hue),
        )

    def operations(self) -> tuple[Operation, ...]:
        factors = (_factors(name, getattr(self, name)) for name in ("brightness", "contrast", "saturation"))
        return (("color_jitter", (*(end for ends in factors for end in ends), *_turns("hue", self.hue))),)


def _factors(name: str, value: Any) -> tuple[float, float]:
    if arguments.is_sequence(value):
        return arguments.interval(name, value, 0, 1e6)
    amount = arguments.number(name, value, 0, 1e6)
    return max(0.0, 1.0 - amount), 1.0 + amount


def _turns(name: str, value: Any) -> tuple[float, float]:
    if arguments.is_sequence(value):
        return arguments.interval(name, value, -0.5, 0.5)
    amount = arguments.number(name, value, 0, 0.5)
    return -amount, amount


@dataclass(frozen=True)
class Grayscale(Transform):
    """Convert an image with three channels to grayscale, with probability `p`.

    As torchvision's `Grayscale`, and `RandomGrayscale` if `p` is below 1.

    Args:
        channels: Channels of the output: 1, or 3 equal ones. The default is 1, or 3 if `p` is below 1, so that all
            samples have the same shape.
        p: Probability of converting an image.

    """

    channels: int | None = None
    p: float = 1.0

    op: ClassVar[str] = "grayscale"

    def __post_init__(self) -> None:
        p = arguments.probability("Grayscale: p", self.p)
        channels = (1 if p == 1 else 3) if self.channels is None else self.channels
        if channels not in {1, 3}:
            raise ValueError(f"Grayscale: channels must be 1 or 3; got {channels!r}")
        if p < 1 and channels == 1:
            raise ValueError(f"Grayscale: with p={p} some images would have 1 channel and some 3; use channels=3")
        self._set(channels=int(channels), p=p)

    def operations(self) -> tuple[Operation, ...]:
        return (("grayscale", (self.p, self.channels or 1)),)


@dataclass(frozen=True)
class Normalize(Transform):
    """Subtract `mean` and divide by `std`, both on the 0–1 scale. The result is a float.

    As torchvision's `Normalize` after `ToDtype(float32, scale=True)`. Give one number for all channels or one
    per channel. The 0–1 scale divides uint8 values by 255 and uint16 values by 65535, so the same mean and std work for
    both. `Normalize` must be the last declarative transform.
    """

    mean: float | Sequence[float]
    std: float | Sequence[float]

    op: ClassVar[str] = "normalize"
    stage: ClassVar[int] = 1

    def __post_init__(self) -> None:
        mean, std = _channels("Normalize: mean", self.mean), _channels("Normalize: std", self.std)
        if len(mean) != len(std) and 1 not in {len(mean), len(std)}:
            raise ValueError(f"Normalize: mean and std must have the same length; got {len(mean)} and {len(std)}")
        beyond = next((value for value in mean if abs(value) > 1), None)
        if beyond is not None:
            raise ValueError(f"Normalize: mean must be on the 0-1 scale; got {beyond}; divide it by 255 or 65535")
        if min(std) <= 0:
            raise ValueError(f"Normalize: std must be > 0; got {min(std)}")
        n_channels = max(len(mean), len(std))
        self._set(mean=_spread(mean, n_channels), std=_spread(std, n_channels))

    def operations(self) -> tuple[Operation, ...]:
        return ()  # the core applies it while it writes the output, not as an operation


def _channels(name: str, value: Any) -> tuple[float, ...]:
    plain = value.tolist() if hasattr(value, "tolist") else value  # NumPy arrays and torch tensors
    values = tuple(plain) if arguments.is_sequence(plain) else (plain,)
    if not 1 <= len(values) <= 64:
        raise ValueError(f"{name} must have 1 to 64 values, one per channel; got {len(values)}")
    return tuple(arguments.number(name, item) for item in values)


def _spread(values: tuple[float, ...], n_channels: int) -> tuple[float, ...]:
    return values if len(values) == n_channels else values * n_channels
