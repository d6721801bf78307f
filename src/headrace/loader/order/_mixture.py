# SPDX-License-Identifier: Apache-2.0
"""The order of a mixture: which sample of which part comes when. Pure functions; spec/order.md §3 defines it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from headrace.loader.order._interleave import STREAM, Interleave
from headrace.loader.order._keys import draw, draw_each, draw_many, epoch_key
from headrace.loader.order._order import MAX_SAMPLES, Positions, permuted_each

WEIGHT_TOTAL = 1 << 32
_PARTS = 1 << 32  # the first number of the draws that are keys of parts; those below are of blocks


class MixtureOrder:
    """The samples of an epoch, as positions in the parts laid one after the other. Safe to use from many threads."""

    unit = 1

    def __init__(
        self, shares: Sequence[int], lengths: Sequence[int], *, n: int, seed: int = 0, shuffle: bool = False
    ) -> None:
        self.n = n
        self.interleave = Interleave(shares, seed=seed, shuffle=shuffle)
        self._lengths = np.array(lengths, np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths

    def take(self, epoch: int, positions: Positions | range) -> tuple[Positions, None]:
        """Return the samples at these positions, and which pass of their part they are from in the upper bits."""
        parts, numbers = self.interleave.take(epoch, positions, self.n)
        passes, places = np.divmod(numbers, self._lengths[parts])
        if self.interleave.shuffle:
            key = epoch_key(self.interleave.seed, epoch, STREAM)
            keys = draw_each(draw_many(key, parts + _PARTS), passes)
            places = permuted_each(self._lengths[parts], keys, places)
        return self._starts[parts] + places + (passes << 30), None

    def part_key(self, epoch: int, part: int) -> int:
        """Return the key that the permutations of a part have their keys from."""
        return draw(epoch_key(self.interleave.seed, epoch, STREAM), _PARTS + part)


def shares_of(weights: Sequence[float]) -> list[int]:
    """Return integer shares with the sum 2**32, by largest remainders."""
    exact = [Fraction(weight) for weight in weights]
    total = sum(exact)
    targets = [weight * WEIGHT_TOTAL / total for weight in exact]
    shares = [int(target) for target in targets]
    by_remainder = sorted(range(len(shares)), key=lambda part: (shares[part] - targets[part], part))
    for part in by_remainder[: WEIGHT_TOTAL - sum(shares)]:
        shares[part] += 1
    return shares


def first_end(shares: Sequence[int], lengths: Sequence[int]) -> int:
    """Return the largest length of an epoch in which no part begins a second pass."""
    total = sum(shares)
    return min(n * total // share for share, n in zip(shares, lengths, strict=True) if share)


def all_end(shares: Sequence[int], lengths: Sequence[int]) -> int:
    """Return the smallest length of an epoch in which all samples of the parts with a share come."""
    total = sum(shares)
    return max(-(-n * total // share) for share, n in zip(shares, lengths, strict=True) if share)


def check_length(n: int) -> int:
    """Return the length of an epoch, checked."""
    if not 0 <= n <= MAX_SAMPLES:
        raise ValueError(f"an epoch of a mixture must have 0 to 2**48 samples; this one would have {n}")
    return n
