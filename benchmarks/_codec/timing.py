# SPDX-License-Identifier: Apache-2.0
"""Best-of-n timing of interleaved calls, so that other load on the machine affects all of them alike."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Clock = Callable[[], float]


@dataclass(frozen=True)
class Effort:
    """How often a call is timed."""

    rounds: int = 7
    span_seconds: float = 0.002  # a call is repeated until a timed span is about this long
    slow_seconds: float = 0.2  # a peer's encode above this gets `slow_rounds`; never the reference's or ours
    slow_rounds: int = 2


class Contender:
    """A call and its best time so far, in seconds per call."""

    def __init__(self, call: Callable[[], Any], effort: Effort, clock: Clock = time.process_time) -> None:
        """Time the call once or twice, which also warms its buffers, to choose its repeats per span."""
        self._call = call
        self._clock = clock
        self.rounds = effort.rounds
        self.best = math.inf
        self.probed = self._time(1)
        if self.probed < effort.span_seconds * 10:
            self.probed = self._time(1)
        self._repeats = max(1, math.ceil(effort.span_seconds / max(self.probed, 1e-7)))

    def run(self) -> None:
        """Time one round."""
        self.best = min(self.best, self._time(self._repeats))

    def _time(self, repeats: int) -> float:
        call, clock = self._call, self._clock
        start = clock()
        for _ in range(repeats):
            call()
        return (clock() - start) / repeats


def interleave(contenders: Sequence[Contender]) -> None:
    """Run every contender for its number of rounds, one round of each at a time, without garbage collection."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for index in range(max((contender.rounds for contender in contenders), default=0)):
            for contender in contenders:
                if index < contender.rounds:
                    contender.run()
    finally:
        if was_enabled:
            gc.enable()
