# SPDX-License-Identifier: Apache-2.0
"""The least CPU time that a sample was seen to take, format by format: what tells whether a slice was left alone.

A neighbour on the same physical core makes everything slower for seconds or minutes, and never faster. So the fastest
slices of a format, wherever in the run they were measured, say what the machine can do, and a slice of any cell that
took much more CPU time a sample was disturbed.
"""

from __future__ import annotations

import statistics
from collections import defaultdict

from benchmarks._plan.cells import Cell

_BEST = 3  # slices: one alone may have met small images only


class Floors:
    """Floors of formats with so many cores at work, found from all slices that were busy."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], list[float]] = defaultdict(list)

    def add(self, format_name: str, cores: int, cell: Cell) -> None:
        """Take a cell of a single format into account."""
        self._seen[format_name, cores] += [each.cpu_seconds / each.samples for each in cell.alone if not each.spare]

    def of(self, cores: int) -> dict[str, float]:
        """The floors of all formats that were seen at work often enough."""
        best = {name: sorted(seen)[:_BEST] for (name, number), seen in self._seen.items() if number == cores}
        return {name: statistics.fmean(seen) for name, seen in best.items() if len(seen) == _BEST}
