# SPDX-License-Identifier: Apache-2.0
"""Which sample gets which format: a plan's shares against a hash of the key (spec/dataset.md §6)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any

from headrace.records.schema import MAX_RENDITIONS, stored_format

PLAN_VERSION = 1


def hash64(key: str) -> int:
    """Return the 64-bit hash of a sample's key, which never changes between machines or versions."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "little")


def unit_interval(key: str) -> float:
    """Map a key to a number in [0, 1)."""
    return (hash64(key) >> 11) / (1 << 53)


@dataclass(frozen=True, slots=True)
class Mix:
    """The formats of one field, the cumulative ends of their shares, and the renditions per sample."""

    formats: tuple[str, ...]
    ends: tuple[float, ...]
    renditions: int = 1

    @property
    def is_plan(self) -> bool:
        """Whether it mixes formats, which must then all store the same pixels."""
        return len(self.formats) > 1

    def choose(self, key: str) -> tuple[str, ...]:
        """Return the format of each rendition of the sample with this key."""
        if len(self.formats) == 1:
            return self.formats
        position = unit_interval(key)
        first = next(k for k, end in enumerate(self.ends) if position < end)
        return tuple(self.formats[(first + r) % len(self.formats)] for r in range(self.renditions))


def single(format_name: str) -> Mix:
    return Mix((format_name,), (1.0,))


def load_plan(plan: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """Return a plan, read from a file if a path is given, after checking its version."""
    if not isinstance(plan, Mapping):
        path = Path(plan)
        try:
            plan = json.loads(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path} must be JSON: {error}") from None
        if not isinstance(plan, dict):
            raise ValueError(f"{path} must contain a plan, which is a JSON object")
    if plan.get("version") != PLAN_VERSION:
        raise ValueError(f"the plan must have version {PLAN_VERSION}; got {plan.get('version')!r}")
    if not isinstance(plan.get("fields"), Mapping):
        raise ValueError("the plan must have 'fields'")
    return dict(plan)


def with_renditions(plan: Mapping[str, Any], renditions: int) -> dict[str, Any]:
    """Return a copy of a plan with this number of renditions for each of its fields."""
    fields = {name: {**entry, "renditions": renditions} for name, entry in plan["fields"].items()}
    return {**plan, "fields": fields}


def parse_mixes(plan: Mapping[str, Any]) -> dict[str, Mix]:
    """Check a plan and return the mix of each field that it names."""
    return {str(name): _parse_mix(str(name), entry) for name, entry in plan["fields"].items()}


def _parse_mix(name: str, entry: Any) -> Mix:
    try:
        renditions = int(entry.get("renditions", 1))
        formats = tuple(str(share["format"]) for share in entry["shares"])
        shares = [float(share["share"]) for share in entry["shares"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the plan's field {name!r} is not valid: {error!r}") from None
    try:
        distinct = {stored_format(format_name) for format_name in formats}
    except ValueError as error:
        raise ValueError(f"the plan's field {name!r}: {error}") from None
    if len(distinct) != len(formats) or not formats:
        raise ValueError(f"the plan must give {name!r} at least one format, and none twice")
    if not 1 <= renditions <= min(MAX_RENDITIONS, len(formats)):
        raise ValueError(
            f"the plan must give {name!r} 1 to {min(MAX_RENDITIONS, len(formats))} renditions, at most one per format; "
            f"got {renditions}"
        )
    if not all(math.isfinite(share) and share >= 0 for share in shares) or abs(math.fsum(shares) - 1) > 1e-6:
        raise ValueError(f"the plan's shares of {name!r} must be positive and add up to 1; got {shares}")
    return Mix(formats, (*list(accumulate(shares))[:-1], 1.0), renditions)
