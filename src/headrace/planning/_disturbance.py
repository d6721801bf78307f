# SPDX-License-Identifier: Apache-2.0
"""Whether a measurement has its cores for itself, and at their full speed.

Other programs on the same cores are in the system's books. Neighbours of a virtual machine on its physical cores are
not: the same work takes half as long again for some seconds. They only slow, so of several short measurements those
that took least CPU time are the ones that were left alone, and when these agree enough were taken.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

OTHERS = 0.10
"""Of the cores: less than that goes to interrupts, and to what every system does now and then."""
AGREE = 0.04
"""How far the best three of several measurements may lie apart."""


def settled(seconds: Sequence[float]) -> bool:
    """Whether the best three agree."""
    best = sorted(seconds)[:3]
    return len(best) == 3 and best[-1] <= (1 + AGREE) * best[0]


@dataclass(frozen=True, slots=True)
class Books:
    """What the system has written down: how long the cores that this thread is held to have worked, and for us."""

    clock: float
    busy: float | None
    """Of all cores together; None where there are no books."""
    own: float
    cores: int

    @classmethod
    def now(cls) -> Books:
        held = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
        return cls(time.perf_counter(), busy_seconds(held), time.process_time(), len(held))

    def others_since(self, before: Books) -> float:
        if self.busy is None or before.busy is None or self.clock <= before.clock:
            return 0.0
        others = (self.busy - before.busy) - (self.own - before.own)
        return max(0.0, others / (self.cores * (self.clock - before.clock)))


def busy_seconds(cores: Collection[int], books: Path = Path("/proc/stat")) -> float | None:
    """How long cores have worked since the system began, for whomever, other machines too; None where nobody knows.

    That is all of a core's line but the 4th and 5th figure: idle, and waiting for storage.
    """
    wanted = {f"cpu{core}" for core in cores}
    try:
        lines = [line.split() for line in books.read_text(encoding="ascii").splitlines()]
        found = [list(map(int, figures[:8])) for name, *figures in lines if name in wanted]
    except (OSError, ValueError):
        return None
    return sum(sum(figures[:3]) + sum(figures[5:]) for figures in found) / os.sysconf("SC_CLK_TCK")
