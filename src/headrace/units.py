# SPDX-License-Identifier: Apache-2.0
"""Parse and format sizes, rates and times: `500GB`, `200MB/s`, `2..96`."""

from __future__ import annotations

import math
import os
import re
import sys

from headrace import system

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_MIN_RATE = 1000.0
"""Bytes per second. In a smaller rate the unit is probably missing."""
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<power>[kmgtp]?)(?P<binary>i?)b?(?P<rate>/s)?", re.IGNORECASE)


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    cores = system.affinity()
    return len(cores) if cores is not None else os.cpu_count() or 1


def parse_bytes(text: str) -> int:
    """Parse `500GB`, `256MiB` or a number of bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match["rate"] or (match["binary"] and not match["power"]):
        raise ValueError(f"a size must be written as 500GB, 256MiB or a number of bytes; got {text!r}")
    return int(_value(match))


def parse_rate(text: str) -> float:
    """Parse `200MB/s`, `1.5GB/s` or a number of bytes per second."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match["binary"] and not match["power"]) or _value(match) <= 0:
        raise ValueError(
            f"a rate must be written as 200MB/s, 1.5GB/s or a number of bytes per second, and be > 0; got {text!r}"
        )
    if _value(match) < _MIN_RATE:
        raise ValueError(f"{text!r} is {_value(match):g} bytes per second; is its unit missing, as in 200MB/s?")
    return _value(match)


def parse_number(text: str) -> float:
    """Parse a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"expected a number; got {text!r}")
    return value


def parse_range(text: str) -> list[str]:
    """Split `0.2..8GB/s` into its two ends; the first one gets the unit of the second."""
    ends = text.split("..")
    if len(ends) != 2 or not all(ends) or "," in text:
        raise ValueError(f"a range must be written as 2..96 or 0.2..8GB/s; got {text!r}")
    return _with_unit(ends)


def parse_list(text: str) -> list[str]:
    """Split `0.2,1,8GB/s` at its commas; a value without a unit gets the unit of the last one."""
    parts = text.split(",")
    if not all(parts):
        raise ValueError(f"a list must be written as 2,4,8 or 0.2,8GB/s; got {text!r}")
    return _with_unit(parts)


def _with_unit(values: list[str]) -> list[str]:
    unit = re.sub(r"^[\d.\s]+", "", values[-1])
    return [value if re.search(r"[a-zA-Z]", value) else value + unit for value in values]


def _value(match: re.Match[str]) -> float:
    base = 1024 if match["binary"] else 1000
    return float(match["number"]) * float(base ** _POWERS[match["power"].lower()])


def number_text(value: float) -> str:
    """Format with three significant digits and thousands separators: `0.123`, `12.3`, `1,230`."""
    if not math.isfinite(value):
        return "∞"
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def rate_text(rate: float) -> str:
    return f"{number_text(rate)} images/s"


def bytes_text(n_bytes: float) -> str:
    """Format a size in powers of 1000."""
    if n_bytes < 999.5:
        return f"{n_bytes:.0f} B"
    for unit in ("kB", "MB", "GB"):
        n_bytes /= 1000
        if n_bytes < 999.5:
            return f"{number_text(n_bytes)} {unit}"
    return f"{number_text(n_bytes / 1000)} TB"


def bytes_per_second_text(rate: float) -> str:
    return "no limit" if math.isinf(rate) else f"{bytes_text(rate)}/s"


def seconds_text(seconds: float) -> str:
    """Format a duration in the unit that keeps the number between 1 and 1000, from microseconds to minutes."""
    if seconds >= 120:
        return f"{number_text(seconds / 60)} min"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{number_text(seconds / size)} {unit}"
    return f"{number_text(seconds * 1e6)} µs"


def joules_text(joules: float) -> str:
    return f"{number_text(joules)} J" if joules >= 1 else f"{number_text(joules * 1e3)} mJ"


def percent_text(share: float) -> str:
    """Format a share in percent, without decimals; only exactly 0 and 1 are printed as 0 % and 100 %."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{share * 100:.{1 if 0 < share < 0.005 or 0.995 <= share < 1 else 0}f} %"


def cores_text(cores: float) -> str:
    return f"{cores:g} core{'' if cores == 1 else 's'}"
