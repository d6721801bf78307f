# SPDX-License-Identifier: Apache-2.0
"""What windows of two kinds, with a near worker and without, say of the CPU that the host was spared.

Neighbours of a virtual machine only ever add to what a window costs. So beside the mean of all windows stands that of
the quietest quarter of either kind, which is what is held against the bar. Each comes with an interval: where 95 of 100
draws of as many windows, with replacement, put it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

_DRAWS = 1000
_QUIETEST = 0.25
_OUTSIDE = 0.025  # of the draws, on each side of the interval


@dataclass(frozen=True)
class Window:
    """So many batches of a loader, from rest to rest."""

    batches: int
    seconds: float
    cpu: float
    """Seconds of the whole process."""
    preparing: float
    """Of these, of the threads that prepare batches."""
    near: int
    """Batches that the near worker made."""
    redone: int = 0
    """Batches of its share that the host made, as they were not there in time."""

    @property
    def share(self) -> float:
        return self.near / self.batches

    @property
    def own(self) -> float:
        """CPU seconds for each batch of the host's own, by which quieter windows are told from louder ones."""
        return self.cpu / max(1, self.batches - self.near)


def in_time(windows: Sequence[Window]) -> list[Window]:
    """Give the windows in which the near worker, which is stopped meanwhile, had made enough beforehand."""
    return [window for window in windows if not window.redone]


def quietest(windows: Sequence[Window]) -> list[Window]:
    """Give the quarter of the windows that were disturbed least."""
    return sorted(windows, key=lambda window: window.own)[: max(1, round(_QUIETEST * len(windows)))]


def beyond_share(alone: Sequence[Window], spared: Sequence[Window]) -> float:
    """The part of the host's CPU that was saved, less the part of the batches that the near worker made."""
    cpu = [fmean(each.cpu / each.batches for each in kind) for kind in (alone, spared)]
    return 1 - cpu[1] / cpu[0] - fmean(each.share for each in spared)


def beyond_share_outside(alone: Sequence[Window], spared: Sequence[Window]) -> float:
    """The same if threads that prepare took as long for a batch in both kinds: then taking batches is what is missing.

    Those threads have nearly all of the CPU, and so nearly all of the noise.
    """
    outside = [fmean((each.cpu - each.preparing) / each.batches for each in kind) for kind in (alone, spared)]
    share = fmean(each.share for each in spared)
    return ((1 - share) * outside[0] - outside[1]) / fmean(each.cpu / each.batches for each in alone)


def summarise(alone: Sequence[Window], spared: Sequence[Window]) -> dict[str, Any]:
    """Give what was saved beyond the share, in all windows and in quiet ones, with intervals."""
    rng = random.Random(0)  # noqa: S311 - the same draws for the same windows
    draws = [(_drawn(alone, rng), _drawn(spared, rng)) for _ in range(_DRAWS)]

    def told(of: Callable[[Sequence[Window], Sequence[Window]], float]) -> dict[str, float]:
        found = sorted(of(*draw) for draw in draws)
        outside = int(_OUTSIDE * _DRAWS)
        return {"found": of(alone, spared), "least": found[outside], "most": found[-1 - outside]}

    return {
        "near_share": fmean(each.share for each in spared),
        "beyond": told(beyond_share),
        "quiet_beyond": told(lambda one, two: beyond_share(quietest(one), quietest(two))),
        "quiet_outside": told(lambda one, two: beyond_share_outside(quietest(one), quietest(two))),
        "cpu_a_batch": fmean(each.cpu / each.batches for each in quietest(alone)),
        "speed": _rate(spared) / _rate(alone),
    }


def _rate(windows: Sequence[Window]) -> float:
    return sum(each.batches for each in windows) / sum(each.seconds for each in windows)


def _drawn(windows: Sequence[Window], rng: random.Random) -> list[Window]:
    return rng.choices(windows, k=len(windows))
