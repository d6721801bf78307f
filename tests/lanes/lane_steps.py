# SPDX-License-Identifier: Apache-2.0
"""What 32 lanes do together, in NumPy: scans, unary sections, gathers of bits, and waves over the rows of a tile.

Every operation is vectorised over its items, and `Steps` counts the operations that depend on one another: a map over
any number of items is one step, a prefix sum of m items is log2(m), a wave is one a column and a few more for its skew.
What remains is the length of the longest chain, which no number of lanes can shorten (spec/image.md §8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

LANES = 32


class Steps:
    """A counter of dependent steps."""

    def __init__(self) -> None:
        self.count = 0

    def take(self, steps: int = 1) -> None:
        self.count += steps

    def side_by_side(self, function: Callable[[Any, Steps], Ints], items: Sequence[Any]) -> list[Ints]:
        """Independent chains: only the longest counts."""
        chains = [Steps() for _ in items]
        results = [function(item, chain) for item, chain in zip(items, chains, strict=True)]
        self.take(max(chain.count for chain in chains))
        return results


def inclusive_sums(values: Ints, steps: Steps) -> Ints:
    """Prefix sums along the last axis, by doubling: each step adds what lies 1, 2, 4, … items back."""
    sums, distance = values.copy(), 1
    while distance < sums.shape[-1]:
        shifted = np.zeros_like(sums)
        shifted[..., distance:] = sums[..., :-distance]
        sums, distance = sums + shifted, 2 * distance
        steps.take()
    return sums


def exclusive_sums(values: Ints, steps: Steps) -> Ints:
    """Where each item begins if items of these sizes lie back to back."""
    return inclusive_sums(values, steps) - values


def unary_numbers(section: bytes, steps: Steps) -> Ints:
    """The numbers of a unary section: positions of the ones by popcount and scan, then differences of neighbours."""
    octets = np.frombuffer(section, np.uint8).astype(np.int64)  # [bytes]
    ones = octets[:, None] >> np.arange(8) & 1  # [bytes, 8]
    first = exclusive_sums(ones.sum(1), steps)  # where the numbers of a byte go
    positions = np.zeros(ones.sum(), np.int64)
    rank = first.copy()
    for bit in range(8):
        found = np.flatnonzero(ones[:, bit])
        positions[rank[found]] = 8 * found + bit
        rank[found] += 1
        steps.take()
    steps.take()
    return (np.diff(positions, prepend=-1) - 1) % 256


def unzigzag(z: Ints, n: int = 8) -> Ints:
    return np.where(z % 2 == 0, z >> 1, (1 << n) - 1 - (z >> 1))


def bits_at(data: Ints, position: Ints, count: Ints | np.int64, steps: Steps) -> Ints:
    """Up to 8 bits at any bit position: each item loads two bytes of its own."""
    padded = np.append(data, [0, 0])
    at = np.minimum(position >> 3, len(data))
    window: Ints = padded[at] | padded[at + 1] << 8
    steps.take()
    return (window >> (position & 7)) & ((1 << count) - 1)


def samples_at(data: Ints, start: Ints, i: Ints, b: Ints, run: int, steps: Steps) -> Ints:
    """Sample i of `run` samples of b bits that begin at byte `start`; where b exceeds 8, low bytes come first."""
    low_bits = np.minimum(b, 8)
    low = bits_at(data, 8 * start + i * low_bits, low_bits, steps)
    high_bits = b - low_bits
    high = bits_at(data, 8 * (start + run) + i * high_bits, high_bits, steps)
    return low | high << 8


def wave(
    shape: tuple[int, int, int],
    skew: int,
    value: Callable[[Ints, Ints, Ints, Ints, Ints], Ints],
    steps: Steps,
) -> Ints:
    """Decode [planes, h, w]: lane r decodes row r, `skew` columns behind lane r - 1, all planes side by side.

    `value` gives the samples of a step from the lanes' columns [32] and W, N, NW, NE, each [planes, 32]. The registers
    of a lane are its own last value and what it was handed from above: one shuffle a step. A skew of 1 gives no NE.
    """
    planes, h, w = shape
    lanes = np.arange(LANES)
    image = np.zeros(shape, np.int64)
    west, north, north_west, north_east = (np.zeros((planes, LANES), np.int64) for _ in range(4))
    for t in range(w + skew * (h - 1)):
        from_above = np.roll(west, 1, axis=1)
        if skew == 2:
            north_west, north, north_east = north, north_east, from_above
        else:
            north_west, north = north, from_above
        columns = t - skew * lanes
        active = (columns >= 0) & (columns < w) & (lanes < h)
        west = np.where(active, value(np.clip(columns, 0, w - 1), west, north, north_west, north_east), west)
        image[:, lanes[active], columns[active]] = west[:, active]
        steps.take()
    return image
