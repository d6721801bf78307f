# SPDX-License-Identifier: Apache-2.0
"""`mte`: moving towards each other, with a split that is fixed beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import ClassVar

from headrace.offload.strategies._model import Times, host_only, split_epoch
from headrace.offload.strategies._pattern import Pattern
from headrace.offload.strategies._strategy import Decision, Outlook, Strategy, shown

# Of the host's time for a batch that the link may take for one; what is read is still being written to, too.
_MOST_OF_HOST = 0.8


@dataclass(frozen=True)
class Mte(Strategy):
    """All of the host's batches first, in order, then all of the offload worker's, from the last one down.

        slot            0  1  2  3  4  5  6  7  8  9
        taken from      h  h  h  h  h  h  h  N  N  N
        near works on   └── N−1 ──┘└── N−2 ──┘└── N−3 ──┘     and goes on while its first ones are read

    With m = max(host, step + copy) and t = max(step + read, link), the offload worker gets
    S = N · m / (m + near − t + link) of N batches: it works while the host's part lasts, and while its own earlier
    batches are trained on, but for the time in which they are read from the storage that it writes to. An epoch takes
    (N − S) · m + S · t. The order follows from S alone. Prepared batches lie unread until the host's part
    ends, so S is limited by what may lie there at a time. Where that gains nothing, as the link is as slow as the host,
    offloading is off. A host whose part is done while the offload worker is behind makes some of its last ones.
    """

    name: ClassVar[str] = "mte"

    def share(self, times: Times, outlook: Outlook) -> Decision:
        """Split once, so that both sides end together."""
        n, pace = outlook.batches, host_only(times)
        gap = times.supply - times.link_free
        head_start = outlook.ready * times.supply
        near = n if gap <= 0 else floor((n * pace + head_start) / (pace + gap))
        if outlook.capacity is not None and gap > 0:
            # What does not lie there when the host's part ends must be made while the rest is trained on.
            near = min(near, floor(max(1, outlook.capacity) * times.supply / gap))
        near = min(near, n)
        return Decision(Pattern(n - near, 1, 1), None, split_epoch(times, n, near, outlook.ready))

    def why_off(self, times: Times, batches: int) -> str | None:
        """Say so too where batches that follow each other gain next to nothing, though here and there one would."""
        why = super().why_off(times, batches)
        if why is not None or self.spare_host or times.link <= max(times.step + times.read, _MOST_OF_HOST * times.host):
            return why
        return (
            f"the link: prepared batches in a row take {shown(times.link)} each to read, and the host makes one in "
            f"{shown(times.host)}; `paced` and `wrr` read them beside the host's work"
        )
