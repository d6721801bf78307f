# SPDX-License-Identifier: Apache-2.0
"""Sizes, rates and ranges as people write them: `500GB`, `200MB/s`, `2..96`."""

from __future__ import annotations

import re

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_LEAST_RATE = 1000.0
"""Bytes a second: no storage is as slow as that."""
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<power>[kmgtp]?)(?P<binary>i?)b?(?P<rate>/s)?", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """Read `500GB`, `256MiB` or a plain number of bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match["rate"] or (match["binary"] and not match["power"]):
        raise ValueError(f"{text!r} is no size; write 500GB, 256MiB or a number of bytes")
    return int(_value(match))


def parse_rate(text: str) -> float:
    """Read `200MB/s`, `1.5GB/s` or a plain number of bytes a second."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match["binary"] and not match["power"]) or _value(match) <= 0:
        raise ValueError(f"{text!r} is no rate; write 200MB/s, 1.5GB/s or a number of bytes a second")
    if _value(match) < _LEAST_RATE:
        raise ValueError(f"{text!r} is {_value(match):g} bytes a second; is its unit missing, as in 200MB/s?")
    return _value(match)


def parse_range(text: str) -> list[str]:
    """Cut `0.2..8GB/s` in two; the first takes the unit of the second."""
    ends = text.split("..")
    if len(ends) != 2 or not all(ends) or "," in text:
        raise ValueError(f"{text!r} is no range; write 2..96, or 0.2..8GB/s")
    return _with_unit(ends)


def parse_list(text: str) -> list[str]:
    """Cut `0.2,1,8GB/s` at its commas; what has no unit takes that of the last."""
    parts = text.split(",")
    if not all(parts):
        raise ValueError(f"{text!r} is no list; write 2,4,8, or 0.2,8GB/s")
    return _with_unit(parts)


def bytes_text(n_bytes: float) -> str:
    """Write a size with three digits, in powers of a thousand."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 999.5:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:,.4g} TB"


def _with_unit(values: list[str]) -> list[str]:
    unit = re.sub(r"^[\d.\s]+", "", values[-1])
    return [value if re.search(r"[a-zA-Z]", value) else value + unit for value in values]


def _value(match: re.Match[str]) -> float:
    base = 1024 if match["binary"] else 1000
    return float(match["number"]) * float(base ** _POWERS[match["power"].lower()])
