# SPDX-License-Identifier: Apache-2.0
"""How figures and foreign words are written in a report: three digits, a unit, and nothing that a terminal obeys."""

from __future__ import annotations

import math


def number_text(value: float) -> str:
    """Three significant digits, thousands apart: `0.123`, `1.23`, `12.3`, `123`, `1,230`."""
    if not math.isfinite(value):
        return "∞"
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def brief_text(value: float) -> str:
    """A number for where there is little room: `950`, `12,300`, `1.23M`."""
    return number_text(value) if value < 999_500 or not math.isfinite(value) else f"{number_text(value / 1e6)}M"


def rate_text(rate: float) -> str:
    return f"{number_text(rate)} images/s"


def bytes_text(n_bytes: float) -> str:
    """Powers of a thousand, as disks are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 999.5:
            return f"{number_text(n_bytes)} {unit}"
        n_bytes /= 1000
    return f"{number_text(n_bytes)} TB"


def seconds_text(seconds: float) -> str:
    """The unit that leaves the number between 1 and 1000, down to microseconds."""
    if seconds >= 120:
        return f"{number_text(seconds / 60)} min"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{number_text(seconds / size)} {unit}"
    return f"{number_text(seconds * 1e6)} µs"


def joules_text(joules: float) -> str:
    return f"{number_text(joules)} J" if joules >= 1 else f"{number_text(joules * 1e3)} mJ"


def percent_text(share: float) -> str:
    """Whole per cents, but neither none of it nor all of it unless that is so."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{share * 100:.{1 if 0 < share < 0.005 or 0.995 <= share < 1 else 0}f} %"


def sentence_text(words: str) -> str:
    """Begin as a sentence does, and end as one."""
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "…")) else ".")


def cores_text(cores: float) -> str:
    return f"{cores:g} core{'' if cores == 1 else 's'}"


def printable(text: str) -> str:
    """Replace what is not seen: control characters, overrides of the direction of writing, halves of surrogates."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)
