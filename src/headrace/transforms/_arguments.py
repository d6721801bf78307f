# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments, shared by all transforms: each returns plain Python numbers or says what would be right."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

MAX_SIDE = 65535

INTERPOLATIONS = ("nearest", "area", "bilinear", "bicubic")
PADDING_MODES = ("constant", "edge", "reflect")


def integer(name: str, value: Any, least: int, most: int) -> int:
    """A whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} is {value!r}; a whole number is expected")
    whole = operator.index(value)
    if not least <= whole <= most:
        raise ValueError(f"{name} is {whole}; {least} to {most} is possible")
    return whole


def number(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number from `least` to `most`; whole ones stay whole."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} is {value!r}; a number is expected")
    plain = operator.index(value) if isinstance(value, Integral) else float(value)
    if not math.isfinite(plain) or not least <= plain <= most:
        bounds = f"{least:g} to {most:g} is possible" if math.isfinite(most - least) else "a finite number is expected"
        raise ValueError(f"{name} is {plain}; {bounds}")
    return plain


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; True or False is expected")
    return value


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """One of a few words; an enumeration whose value is such a word, as torchvision has them, will do."""
    word = getattr(value, "value", value)
    if word not in choices:
        raise ValueError(f"{name} is {value!r}; possible are {', '.join(map(repr, choices))}")
    return str(word)


def is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def size(name: str, value: Any) -> tuple[int, int]:
    """`(height, width)`; one number stands for both."""
    sides = tuple(value) if is_sequence(value) else (value,)
    if len(sides) not in {1, 2}:
        raise ValueError(f"{name} is {value!r}; a number or (height, width) is expected")
    checked = [integer(name, side, 1, MAX_SIDE) for side in sides]
    return checked[0], checked[-1]


def padding(name: str, value: Any) -> tuple[int, int, int, int]:
    """`(left, top, right, bottom)`; two numbers stand for left and right, top and bottom, one for all."""
    widths = tuple(value) if is_sequence(value) else (value,)
    if len(widths) not in {1, 2, 4}:
        raise ValueError(
            f"{name} is {value!r}; a number, (left and right, top and bottom) or (left, top, right, bottom) is expected"
        )
    checked = [integer(name, width, 0, MAX_SIDE) for width in widths]
    left, top, right, bottom = (checked * 4)[:4]
    return left, top, right, bottom


def fill(name: str, value: Any) -> float:
    """One level for all channels, in levels of the image's own depth."""
    if is_sequence(value):
        raise TypeError(f"{name} is {value!r}; one number is expected, which all channels get")
    return number(name, value, -32768, 65535)


def interval(name: str, value: Any, least: float, most: float) -> tuple[float, float]:
    """A range `(from, to)` within `least` to `most`."""
    if not is_sequence(value) or len(value) != 2:
        raise TypeError(f"{name} is {value!r}; a range (from, to) is expected")
    low, high = (number(name, end, least, most) for end in value)
    if low > high:
        raise ValueError(f"{name} is {value!r}; the range must not begin after its end")
    return low, high


def probability(name: str, value: Any) -> float:
    return number(name, value, 0, 1)
