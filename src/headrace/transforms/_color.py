# SPDX-License-Identifier: Apache-2.0
"""Transforms of what pixels hold: jitter, grey and normalisation. Masks and boxes are untouched by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.transforms import _arguments as arguments
from headrace.transforms._transform import Operation, Transform


@dataclass(frozen=True)
class ColorJitter(Transform):
    """Change brightness, contrast, saturation and hue by random amounts, in a random order.

    Each argument is a range `(from, to)`, or a number that stands for one: `brightness=0.4` is the factors
    `(0.6, 1.4)`, never below 0; `hue=0.1` is the turns of the colour circle `(-0.1, 0.1)`, at most half a turn each
    way. 0 leaves that step out. Saturation and hue leave an image of one channel as it is.
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
    """Turn an image of three channels grey, with probability `p`.

    Args:
        channels: How many come out, 1 or 3 equal ones; by default 1, or 3 with `p` below 1, because else the shape of a
            sample would be a matter of chance.
        p: The probability.

    """

    channels: int | None = None
    p: float = 1.0

    op: ClassVar[str] = "grayscale"

    def __post_init__(self) -> None:
        p = arguments.probability("Grayscale: p", self.p)
        channels = (1 if p == 1 else 3) if self.channels is None else self.channels
        if channels not in {1, 3}:
            raise ValueError(f"Grayscale: channels is {channels!r}; 1 or 3 can come out")
        if p < 1 and channels == 1:
            raise ValueError(f"Grayscale: with p={p} some images would have 1 channel and some 3; use channels=3")
        self._set(channels=int(channels), p=p)

    def operations(self) -> tuple[Operation, ...]:
        return (("grayscale", (self.p, self.channels or 1)),)


@dataclass(frozen=True)
class Normalize(Transform):
    """Subtract `mean` and divide by `std`, on the 0–1 scale, and make floats of it.

    Both are one number for all channels or one for each. On the 0–1 scale a uint8 level is divided by 255 and a uint16
    level by 65535, so the same figures serve any depth. It is the last declarative transform of a list.
    """

    mean: float | Sequence[float]
    std: float | Sequence[float]

    op: ClassVar[str] = "normalize"

    def __post_init__(self) -> None:
        mean, std = _channels("Normalize: mean", self.mean), _channels("Normalize: std", self.std)
        if len(mean) != len(std) and 1 not in {len(mean), len(std)}:
            raise ValueError(f"Normalize: mean has {len(mean)} channels and std {len(std)}; they must be as many")
        beyond = next((value for value in mean if abs(value) > 1), None)
        if beyond is not None:
            raise ValueError(f"Normalize: a mean is {beyond}; it is on the scale of 0 to 1: divide by 255 or 65535")
        if min(std) <= 0:
            raise ValueError(f"Normalize: a std is {min(std)}; it must be above 0")
        n_channels = max(len(mean), len(std))
        self._set(mean=_spread(mean, n_channels), std=_spread(std, n_channels))

    def operations(self) -> tuple[Operation, ...]:
        return ()  # part of the last step, not an operation of its own


def _channels(name: str, value: Any) -> tuple[float, ...]:
    plain = value.tolist() if hasattr(value, "tolist") else value  # NumPy's and torch's arrays
    values = tuple(plain) if arguments.is_sequence(plain) else (plain,)
    if not 1 <= len(values) <= 64:
        raise ValueError(f"{name} has {len(values)} channels; an image has 1 to 64")
    return tuple(arguments.number(name, item) for item in values)


def _spread(values: tuple[float, ...], n_channels: int) -> tuple[float, ...]:
    return values if len(values) == n_channels else values * n_channels
