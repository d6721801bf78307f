# SPDX-License-Identifier: Apache-2.0
"""The least CPU time that a batch was seen to take, on the host, on the near worker and in taking it over.

A neighbour on the same physical core makes everything slower for seconds or minutes, and never faster. So the fastest
turns of each prong alone, wherever in the run they were measured, say what the machine can do, and a turn of any cell
that took more CPU time for the same batches was disturbed.
"""

from __future__ import annotations

from collections import defaultdict

from benchmarks._prongs.meter import Totals
from headrace.planning._disturbance import OTHERS

_NEAR = 0.06  # above the floor: what samples differ by, and waiting threads cost
_SPARE = 0.5  # of the host's core: less work than that waits for nothing but the trainer or the near worker

HOST, TAKE, NEAR = "host", "take", "near"


class Floors:
    """Floors of one source, in CPU seconds a batch."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = defaultdict(list)
        self._with_trainer: dict[str, list[Totals]] = defaultdict(list)

    def host_alone(self, turn: Totals) -> None:
        """Take a turn of the host alone, without a trainer, into account."""
        if turn.others <= OTHERS:
            self._seen[HOST].append(turn.host_cpu / turn.batches)

    def near_alone(self, turn: Totals) -> None:
        """Take a turn of the near worker alone into account."""
        self._seen[TAKE].append(turn.host_cpu / turn.batches)
        if turn.near_made:
            self._seen[NEAR].append(turn.near_cpu / turn.near_made)

    def beside_trainer(self, trainer: str, turn: Totals) -> None:
        """Take a turn with a trainer that takes its time into account: cores that rest are slower after it."""
        if turn.others <= OTHERS:
            self._with_trainer[trainer].append(turn)

    def of(self, what: str) -> float:
        """A floor; 0 while nothing is known."""
        return min(self._seen[what], default=0.0)

    def counts(self, turn: Totals, trainer: str) -> bool:
        """Whether nothing has slowed a turn."""
        return turn.others <= OTHERS and self._host_counts(turn, trainer) and self._near_counts(turn, trainer)

    def _host_counts(self, turn: Totals, trainer: str) -> bool:
        if turn.host_cpu < _SPARE * turn.seconds:
            return True
        best = min(map(self._of_host, self._with_trainer[trainer]), default=1.0)
        return self._of_host(turn) <= (1 + _NEAR) * max(1.0, best)

    def _of_host(self, turn: Totals) -> float:
        """The host's CPU time, by what its batches and those that it took over cost at best."""
        floor = self.of(HOST) * (turn.batches - turn.near_batches) + self.of(TAKE) * turn.near_batches
        return turn.host_cpu / floor if floor else float("inf")

    def _near_counts(self, turn: Totals, trainer: str) -> bool:
        """With a slow trainer the near worker rests, and its speed decides nothing."""
        return trainer == "slow" or turn.near_cpu <= (1 + _NEAR) * self.of(NEAR) * turn.near_made
