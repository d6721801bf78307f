# SPDX-License-Identifier: Apache-2.0
"""`paced`: the interleave that `wrr` would settle into, worked out beforehand and frozen for the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import ClassVar

from headrace.offload.strategies._model import Times, interleaved
from headrace.offload.strategies._pattern import Pattern
from headrace.offload.strategies._strategy import Decision, Outlook, Strategy

# A share of so many: half a batch of error in an epoch of eight thousand.
_MOST_OF = 4096

# How busy the offload worker is kept. Asked for a part more than it can make, it is waited for, and the host must help;
# asked for less, it rests for a part of its own share, which is small. Where the trainer sets the pace, that is free.
_UTILISATION, _BESIDE_TRAINER = 0.98, 0.9


@dataclass(frozen=True)
class Paced(Strategy):
    """Near batches in a fixed rhythm, each in the slot in which it is due.

    With T the seconds of a slot, T = max(host · near / (host + near), step + copy), and one near batch every `near`
    seconds, r = T / near of the slots could be the offload worker's. It gets 0.98 of that, evenly spread (Bresenham):
    an estimate that is a little off must not hold up the rest. The first of them comes late enough for the offload
    worker to have made it and for the loader to have read it:

        slot            0  1  2  3  4  5  6  7  8  9          host = 1, near = 4: r = 1/5
        taken from      h  h  h  h  h  N  h  h  h  h  N …
        host works on   0  1  2  3  4  5  6  7  8 …           one a second
        near works on   └──── N−1 ────┘└──── N−2 ───┘ …       one in four seconds

    An epoch takes N · T, as with `wrr`, to half a per cent or so. The order follows from the pattern alone, so a run
    with the recorded pattern has the same order, whatever its timing; a batch that is late is waited for, up to a
    bound, and then made by the host for the very same slot. An offload worker that has slowed down holds up nobody for
    long: a host that is ahead while it waits makes some of those that come after.
    """

    name: ClassVar[str] = "paced"

    def share(self, times: Times, outlook: Outlook) -> Decision:
        """Spread what the offload worker can make over the slots."""
        slot = interleaved(times)
        most = _UTILISATION * slot / times.supply
        if slot > times.both:
            # The trainer sets the pace: any share will do that leaves the host no more than it can make.
            needed = max(0.0, 1 - slot / times.host)
            most = max(needed, _BESIDE_TRAINER * slot / times.supply)
        ratio = Fraction(min(1.0, most)).limit_denominator(_MOST_OF)
        if not ratio:
            ratio = Fraction(1, _MOST_OF)
        # Near batch j is made after (j + 1) · near seconds and its slot begins at (skip - 1 + (j + 1) / r) · T.
        # One that is there already takes the first place of the rhythm, others let it begin earlier.
        phase = ratio.denominator - 1 if outlook.ready else 0
        head_start = max(0, outlook.ready - 1) * times.supply / slot
        skip = max(0, ceil(2 + times.link / slot - head_start))
        pattern = Pattern(min(skip, outlook.batches), ratio.numerator, ratio.denominator, phase)
        return Decision(pattern, None, outlook.batches * max(slot, float(1 - ratio) * times.host))
