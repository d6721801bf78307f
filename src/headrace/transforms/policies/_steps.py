# SPDX-License-Identifier: Apache-2.0
"""The operations that policies choose among, with a random or fixed amount.

An *amount* is (distribution, a, b, least, most): uniform or normal or a whole number, clamped. A *level* is an amount
with sign, base and step: base + step * amount, negated half of the time if sign is 1 (spec/recipe.md, affine_level).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.transforms import _base as arguments
from headrace.transforms._base import Operation
from headrace.transforms._photometric import BRIGHTNESS, CONTRAST, SATURATION, SHARPNESS, enhance

Amount = tuple[float, float, float, float, float]

UNIFORM, NORMAL, WHOLE = range(3)
MOVEMENTS = ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY", "TranslateXPixels", "TranslateYPixels")
ENHANCEMENTS = {"Brightness": BRIGHTNESS, "Contrast": CONTRAST, "Color": SATURATION, "Sharpness": SHARPNESS}
PLAIN = {"AutoContrast": "autocontrast", "Equalize": "equalize", "Invert": "invert"}
FILTERS = {"nearest": 0, "bilinear": 2, "bicubic": 3, "random": 4}


def fixed(value: float) -> Amount:
    return UNIFORM, value, value, value, value


def whole(low: int, high: int) -> Amount:
    return WHOLE, low, high, low, high


def level(amount: Amount, step: float, *, base: float = 0, signed: bool = False) -> tuple[float, ...]:
    return *amount, float(signed), base, step


def moved(name: str, amount: Amount, step: float, warp: tuple[float, float], p: float = 1) -> list[Operation]:
    """Return a movement to either side by step * amount."""
    parameters = (MOVEMENTS.index(name), *level(amount, step, signed=True), *warp)
    return applied(p, [("affine_level", parameters)])


def applied(p: float, operations: list[Operation]) -> list[Operation]:
    return operations if p == 1 else [("apply", (p, len(operations))), *operations]


def enhanced(name: str, p: float, levels: Sequence[float], *, base: float = 1, least: float = 0) -> list[Operation]:
    return [enhance(p, ENHANCEMENTS[name], levels, base=base, least=least)]


def checked_fill(name: str, value: Any) -> float | tuple[float, ...] | None:
    """Return None (black), one level, or three."""
    if value is None:
        return None
    if not arguments.is_sequence(value):
        return arguments.integer(name, value, -32768, 65535)
    if len(value) != 3:
        raise ValueError(f"{name} must be one number or three; got {value!r}")
    return tuple(arguments.integer(name, item, -32768, 65535) for item in value)


def filter_and_fill(interpolation: str, fill: Any) -> tuple[float, float]:
    """Return the last two parameters of a warp."""
    levels = fill if arguments.is_sequence(fill) else (fill or 0,) * 3
    packed = sum((int(value) + 32768) * 2 ** (17 * k) for k, value in enumerate(levels))
    return FILTERS[interpolation], packed
