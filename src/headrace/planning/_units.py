# SPDX-License-Identifier: Apache-2.0
"""Sizes, rates and ranges as people write them: `500GB`, `200MB/s`, `2..96`."""

from __future__ import annotations

import re

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
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
    return _value(match)


def parse_range(text: str) -> tuple[str, str]:
    """Cut `0.2..8GB/s` in two, or one value into two equal ones; the first takes the unit of the second."""
    low, dots, high = text.partition("..")
    if not dots:
        return text, text
    if not low or not high:
        raise ValueError(f"{text!r} is no range; write 2..96, or 0.2..8GB/s")
    unit = re.sub(r"^[\d.\s]+", "", high)
    return (low if re.search(r"[a-zA-Z]", low) else low + unit), high


def _value(match: re.Match[str]) -> float:
    base = 1024 if match["binary"] else 1000
    return float(match["number"]) * float(base ** _POWERS[match["power"].lower()])
