# SPDX-License-Identifier: Apache-2.0
"""Which sample gets which format: a plan's shares against a hash of the key (spec/dataset.md §6)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from os import PathLike
from typing import Any

from headrace.documents import DocumentReader
from headrace.records.schema import MAX_RENDITIONS, stored_format

PLAN_VERSION = 1
_READER = DocumentReader(strict=False)


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


@dataclass(frozen=True, slots=True)
class _StoredShare:
    format: str
    share: float


@dataclass(frozen=True, slots=True)
class _StoredField:
    shares: tuple[_StoredShare, ...]
    renditions: int = 1


@dataclass(frozen=True, slots=True)
class _StoredPlan:
    """The members of a plan that a dataset depends on."""

    fields: Mapping[str, _StoredField]


def load_plan(plan: Mapping[str, Any] | str | PathLike[str]) -> dict[str, Any]:
    """Return a plan, read from a file if a path is given, after checking its version."""
    return dict(_READER.load(plan, PLAN_VERSION, "plan"))


def parse_mixes(plan: Mapping[str, Any], renditions: int | None = None) -> dict[str, Mix]:
    """Check a plan and return the mix of each field that it names; `renditions` overrides those of the plan."""
    stored = _READER.read(_StoredPlan, plan, "plan")
    return {
        name: _checked_mix(name, field.shares, field.renditions if renditions is None else renditions)
        for name, field in stored.fields.items()
    }


def _checked_mix(name: str, stored: tuple[_StoredShare, ...], renditions: int) -> Mix:
    formats, shares = tuple(each.format for each in stored), [each.share for each in stored]
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
    if abs(math.fsum(shares) - 1) > 1e-6:
        raise ValueError(f"the plan's shares of {name!r} must add up to 1; got {shares}")
    return Mix(formats, (*list(accumulate(shares))[:-1], 1.0), renditions)
