# SPDX-License-Identifier: Apache-2.0
"""Sampling with replacement by weight: a pure function of (weights, seed, epoch, position), so it can be resumed.

The draw of position i is u = draw[i] >> 11 of the epoch's key with stream = 2 (see `_keys`), a number below 2**53.
The row is the first one whose running sum of weights exceeds u / 2**53 of their total. Sums run from the first row to
the last in float64, so every operation is defined by IEEE 754.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.loader.order._keys import check_seed, draw_many, epoch_key
from headrace.loader.order._order import MAX_SAMPLES, AnyOrder, Order, Positions, as_positions

_MIN_TOTAL = 1e-200  # so that no product below loses bits to underflow


class WeightedOrder:
    """Rows drawn by weight; an epoch has as many positions as there are weights. Safe to use from many threads."""

    STREAM = 2

    def __init__(self, weights: npt.ArrayLike, *, seed: int = 0) -> None:
        table = np.asarray(weights, np.float64)
        if table.ndim != 1 or len(table) > MAX_SAMPLES:
            raise ValueError(f"weights must be one number per sample; got an array of shape {table.shape}")
        bad = np.flatnonzero(~(np.isfinite(table) & (table >= 0)))
        if bad.size:
            raise ValueError(
                f"weights must be finite and not negative; the weight of sample {bad[0]} is {table[bad[0]]}"
            )
        self.n = len(table)
        self.seed = check_seed(seed)
        self._sums = np.cumsum(table)  # a running sum: always added in this order
        total = float(self._sums[-1]) if self.n else 1.0
        if not _MIN_TOTAL <= total < np.inf:
            raise ValueError(f"the sum of the weights must be finite and at least {_MIN_TOTAL}; it is {total}")
        self._unit = total * 2.0**-53

    def take(self, epoch: int, positions: Positions | range) -> Positions:
        """Return the rows drawn at these positions, in a new array."""
        chosen = as_positions(positions, self.n)
        draws = draw_many(epoch_key(self.seed, epoch, self.STREAM), chosen)
        draws >>= np.uint64(11)
        # A row of weight 0 has the running sum of the row before it, so it is never the first to exceed a number.
        return np.searchsorted(self._sums, draws.astype(np.float64) * self._unit, side="right").astype(np.int64)


def make_order(n: int, *, seed: int, shuffle: bool, weights: npt.NDArray[np.float64] | None) -> AnyOrder:
    """Return the order of n samples: a permutation, or draws by weight."""
    if weights is None:
        return Order(n, seed=seed, shuffle=shuffle)
    if shuffle:
        raise ValueError("shuffle must not be set together with weights, which draw samples at random already")
    if weights.shape != (n,):
        raise ValueError(f"weights must have one number per sample, {n} samples; its shape is {weights.shape}")
    return WeightedOrder(weights, seed=seed)
