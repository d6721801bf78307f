# SPDX-License-Identifier: Apache-2.0
"""The least CPU time that a batch was seen to take, on the host, on the near worker and in taking it over.

A neighbour on the same physical core makes everything slower for seconds or minutes, and never faster. So the fastest
slices of each prong alone, wherever in the run they were measured, say what the machine can do, and a slice of any cell
that took much more CPU time for the same batches was disturbed.
"""

from __future__ import annotations

import statistics
from collections import defaultdict

from benchmarks._prongs.slices import Totals
from headrace.planning._disturbance import OTHERS

_BEST = 3  # slices
_NEAR = 0.10  # above the floor: what samples differ by, and waiting threads cost
_SPARE = 0.5  # of the host's core: less work than that waits for nothing but the trainer or the near worker

HOST, TAKE, NEAR = "host", "take", "near"


class Floors:
    """Floors of one source, in CPU seconds a batch."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = defaultdict(list)
        self._with_trainer: dict[str, list[Totals]] = defaultdict(list)

    def host_alone(self, slices: list[Totals]) -> None:
        """Take slices of the host alone, without a trainer, into account."""
        self._seen[HOST] += [each.host_cpu / each.batches for each in slices if each.others <= OTHERS]

    def near_alone(self, slices: list[Totals]) -> None:
        """Take slices of the near worker alone into account."""
        self._seen[TAKE] += [each.host_cpu / each.batches for each in slices]
        self._seen[NEAR] += [each.near_cpu / each.near_made for each in slices if each.near_made]

    def beside_trainer(self, trainer: str, slices: list[Totals]) -> None:
        """Take slices with a trainer that takes its time into account: cores that rest are slower after it."""
        self._with_trainer[trainer] += [each for each in slices if each.others <= OTHERS]

    def of(self, what: str) -> float:
        """A floor: the mean of the best three; 0 while nothing is known."""
        best = sorted(self._seen[what])[:_BEST]
        return statistics.fmean(best) if best else 0.0

    def counts(self, part: Totals, trainer: str) -> bool:
        """Whether nothing has slowed a slice."""
        return part.others <= OTHERS and self._host_counts(part, trainer) and self._near_counts(part, trainer)

    def _host_counts(self, part: Totals, trainer: str) -> bool:
        if part.host_cpu < _SPARE * part.seconds:
            return True
        best = sorted(map(self._of_host, self._with_trainer[trainer]))[:_BEST] or [1.0]
        return self._of_host(part) <= (1 + _NEAR) * max(1.0, statistics.fmean(best))

    def _of_host(self, part: Totals) -> float:
        """The host's CPU time, by what its batches and those that it took over cost at best."""
        floor = self.of(HOST) * (part.batches - part.near_batches) + self.of(TAKE) * part.near_batches
        return part.host_cpu / floor if floor else float("inf")

    def _near_counts(self, part: Totals, trainer: str) -> bool:
        """With a slow trainer the near worker rests, and its speed decides nothing."""
        if trainer == "slow" or not part.near_made:
            return True
        return part.near_cpu <= (1 + _NEAR) * self.of(NEAR) * part.near_made
