# SPDX-License-Identifier: Apache-2.0
"""Checks what the other side of an exchange has written: every value is a claim until its type and range are known.

All functions raise ValueError, and nothing else, for a claim that does not hold.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

MAX_INTEGER = 2**63 - 1
"""Larger numbers fit neither a file's size nor a NumPy array, and a float cannot hold some of them."""
MAX_SECONDS = 1e9
MAX_TEXT = 300
"""Characters of a text that is shown to people."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
# What code that takes foreign values apart may raise, beside OSError.
MALFORMED = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


def parse_object(content: bytes | str) -> dict[str, Any]:
    """Parse JSON whose outermost value is an object. Deep nesting, NaN and infinity are errors as others are."""
    try:
        document = _DECODER.decode(content if isinstance(content, str) else str(content, "utf-8"))
    except (RecursionError, ValueError) as error:
        raise ValueError(f"not valid JSON: {_shown(error)}") from None
    if not isinstance(document, dict):
        raise ValueError(f"a JSON object is expected; found a {type(document).__name__}")
    return document


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _shown(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else printable(str(error))


# Made once: `json.loads` with an option makes one for each call, which takes 5 µs.
_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def integer(name: str, value: Any, low: int = 0, high: int = MAX_INTEGER) -> int:
    """Return a whole number in [low, high]."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} must be an integer in [{low}, {high}]; found {briefly(value)}")
    return value


def number(name: str, value: Any, high: float = MAX_SECONDS) -> float:
    """Return a finite number in [0, high], as a float."""
    if type(value) is not float and type(value) is not int:
        raise ValueError(f"{name} must be a number; found {briefly(value)}")
    if not 0 <= value <= high:
        raise ValueError(f"{name} must be in [0, {high:g}]; found {briefly(value)}")
    return float(value)


def token(name: str, value: Any) -> str:
    """Return a random name, as sessions and workers have."""
    if type(value) is not str or not _TOKEN.fullmatch(value):
        raise ValueError(f"{name} must be 1 to 64 letters, digits, '-' and '_'; found {briefly(value)}")
    return value


def text(name: str, value: Any) -> str:
    """Return a text for people: printable, and not longer than `MAX_TEXT`."""
    if type(value) is not str:
        raise ValueError(f"{name} must be a string; found {briefly(value)}")
    return printable(value)


def printable(value: str) -> str:
    """Shorten a foreign text, and escape what would control a terminal or break a line of a log."""
    shown = value[: MAX_TEXT + 1]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown)
    return shown if len(shown) <= MAX_TEXT else shown[: MAX_TEXT - 1] + "…"


def briefly(value: Any) -> str:
    """Show a foreign value, however large, in a few characters."""
    if type(value) is int and value.bit_length() > 64:  # some have more digits than Python is willing to print
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (dict, list)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return repr(value[:40] if isinstance(value, (str, bytes)) else value)
