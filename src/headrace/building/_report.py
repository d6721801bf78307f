# SPDX-License-Identifier: Apache-2.0
"""What a build did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Skipped:
    """A sample of the source that is not in the dataset, and why."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class BuildReport:
    """The result of a build. Rates are of this run: shards that an earlier one had finished do not count in them."""

    path: Path
    samples: int
    shards: int
    kept_shards: int
    """Shards that an earlier, interrupted run had finished."""
    source_bytes: int
    n_bytes: int
    """Size of the dataset."""
    seconds: float
    samples_per_second: float
    skipped_count: int
    skipped: tuple[Skipped, ...]
    """The first thousand."""
    fingerprint: str
    ignored: tuple[str, ...] = ()
    """Files of the source that are not samples, counted by suffix: `3 .txt (such as readme.txt)`."""
    warnings: tuple[str, ...] = ()
    """What is worth knowing though nothing went wrong, such as a dataset that is much larger than its source."""
    was_finished: bool = False
    """An earlier run had finished this very build; nothing was left to do."""
