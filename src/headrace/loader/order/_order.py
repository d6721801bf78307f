# SPDX-License-Identifier: Apache-2.0
"""The permutation of an epoch, and its split among batches and ranks. Pure functions.

The permutation is a keyed bijection, computed for each position on its own. So it needs no memory and no start-up time,
and positions can be computed in any order. This text, that of `_keys` and the vectors in the test suffice to implement
it in another language. Numbers are unsigned 64-bit integers and wrap around:

    key[j]    draw[j] of the epoch's key with stream = 1, for the rounds j = 0, 1 …: 24 rounds if n < 4096, else 8
    F(j, x):  h = (x ^ key[j]) · G;  h ^= h >> 32;  h *= 0xBF58476D1CE4E5B9;  the upper 32 bits of h

Let a be the smallest number with a · a ≥ n, and b the smallest with a · b ≥ n. A position x is written as
x = right · a + left with left < a. Even rounds set left = (left + (F(j, right) · a >> 32)) mod a, odd rounds set
right = (right + (F(j, left) · b >> 32)) mod b. The result is right · a + left. While it is ≥ n, the rounds are applied
again.

Short orders need more rounds: with 8 rounds, the 120 orders of five samples are visibly not equally likely. From about
25 samples on, no test finds a difference.

This is a Feistel network over residues instead of bits: its domain exceeds n by less than a, whereas a domain of whole
bits can be four times as large as n.
"""

from __future__ import annotations

import operator
from math import isqrt
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.loader.order._keys import (
    GOLDEN,
    MULTIPLIER,
    check_epoch,
    check_seed,
    draw,
    draw_each,
    draw_many,
    epoch_key,
)

Positions: TypeAlias = npt.NDArray[np.int64]

MAX_SAMPLES = 1 << 48
"""A row number must fit the counter of the augmentations' random generator."""
_ROUNDS = 8
_SHORT = 4096
_SHORT_ROUNDS = 24
_HALF = np.uint64(32)

# Positions per step: the four arrays of this length stay in a core's L2 cache.
_CHUNK = 16384
# Positions computed ahead: NumPy takes 70 µs for a few positions and 160 µs for 4096.
_AHEAD = 4096
_MIN_TOTAL = 1e-200  # of weights, so that no product loses bits to underflow


class Order:
    """The permutation p of [0, n) in each epoch; the identity if not shuffled. Safe to use from many threads."""

    STREAM = 1

    def __init__(self, n: int, *, seed: int = 0, shuffle: bool = False) -> None:
        if not 0 <= operator.index(n) <= MAX_SAMPLES:
            raise ValueError(f"an order must have 0 to 2**48 samples; got {n}")
        self.n = operator.index(n)
        self.seed = check_seed(seed)
        self.shuffle = bool(shuffle)
        self._side = isqrt(self.n - 1) + 1 if self.n else 0
        self._rounds = _SHORT_ROUNDS if self.n < _SHORT else _ROUNDS
        self._other = -(-self.n // self._side) if self.n else 0

    def take(self, epoch: int, positions: Positions | range) -> Positions:
        """Return p[positions] in a new array: about 20 million per second for many positions, 70 µs for a few."""
        check_epoch(epoch)
        if not self.shuffle:
            return as_positions(positions, self.n).copy()
        return self.take_keyed(epoch_key(self.seed, epoch, self.STREAM), positions)

    def take_keyed(self, key: int, positions: Positions | range) -> Positions:
        """Return p[positions] for a key in place of an epoch's."""
        chosen = as_positions(positions, self.n)
        if self.n < 2:
            return chosen.copy()
        keys = np.array([draw(key, j) for j in range(self._rounds)], np.uint64)
        result = np.empty(len(chosen), np.uint64)
        source = chosen.astype(np.uint64)
        for start in range(0, len(chosen), _CHUNK):
            part = slice(start, start + _CHUNK)
            self._permute_within(source[part], keys, result[part])
        return result.view(np.int64)

    def _permute_within(
        self, x: npt.NDArray[np.uint64], keys: npt.NDArray[np.uint64], out: npt.NDArray[np.uint64]
    ) -> None:
        """Permute until all results are below n."""
        out[:] = self._permute(x, keys)
        outside = np.flatnonzero(out >= np.uint64(self.n))
        while outside.size:
            out[outside] = self._permute(out[outside], keys)
            outside = outside[out[outside] >= np.uint64(self.n)]

    def _permute(self, x: npt.NDArray[np.uint64], keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        side, other = np.uint64(self._side), np.uint64(self._other)
        right = x // side
        left = x - right * side
        h, scratch = np.empty_like(x), np.empty_like(x)
        for j, key in enumerate(keys):
            read, changed, modulus = (right, left, side) if j % 2 == 0 else (left, right, other)
            np.bitwise_xor(read, key, out=h)
            np.multiply(h, np.uint64(GOLDEN), out=h)
            np.right_shift(h, _HALF, out=scratch)
            np.bitwise_xor(h, scratch, out=h)
            np.multiply(h, np.uint64(MULTIPLIER), out=h)
            np.right_shift(h, _HALF, out=h)
            np.multiply(h, modulus, out=h)  # both are below 2**32
            np.right_shift(h, _HALF, out=h)
            np.add(changed, h, out=changed)
            np.subtract(changed, modulus, out=scratch)
            np.minimum(changed, scratch, out=changed)  # a negative difference wraps around and is the larger number
        right *= side
        right += left
        return right


def permuted_each(lengths: npt.NDArray[np.int64], keys: npt.NDArray[np.uint64], positions: Positions) -> Positions:
    """Return p[position] for each (length, key, position): as `Order.take_keyed`, of many permutations at once.

    Lengths must be below 2**48 and positions below their length.
    """
    result = positions.astype(np.uint64)
    for short in (True, False):
        left = np.flatnonzero((lengths > 1) & ((lengths < _SHORT) == short))
        rounds = _SHORT_ROUNDS if short else _ROUNDS
        while left.size:
            n = lengths[left].astype(np.uint64)
            side = np.ceil(np.sqrt(lengths[left])).astype(np.uint64)
            side -= (side - np.uint64(1)) ** 2 >= n  # the square root may have been rounded
            other = -(-lengths[left] // side.astype(np.int64)).astype(np.int64)
            result[left] = _rounds_of(result[left], side, other.astype(np.uint64), keys[left], rounds)
            left = left[result[left] >= n]
    return result.view(np.int64)


def _rounds_of(
    x: npt.NDArray[np.uint64],
    side: npt.NDArray[np.uint64],
    other: npt.NDArray[np.uint64],
    keys: npt.NDArray[np.uint64],
    rounds: int,
) -> npt.NDArray[np.uint64]:
    left, right = x % side, x // side
    for j in range(rounds):
        read, changed, modulus = (right, left, side) if j % 2 == 0 else (left, right, other)
        h = (read ^ draw_each(keys, j)) * np.uint64(GOLDEN)
        h = (h ^ (h >> _HALF)) * np.uint64(MULTIPLIER) >> _HALF
        changed += h * modulus >> _HALF
        np.minimum(changed, changed - modulus, out=changed)
    return right * side + left


class WeightedOrder:
    """Rows drawn by weight; an epoch has as many positions as there are weights. Safe to use from many threads.

    The draw of position i is u = draw[i] >> 11 of the epoch's key with stream = 2 (see `_keys`), a number below 2**53.
    The row is the first one whose running sum of weights exceeds u / 2**53 of their total. Sums run from the first row
    to the last in float64, so every operation is defined by IEEE 754.
    """

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


def make_order(n: int, *, seed: int, shuffle: bool, weights: npt.NDArray[np.float64] | None) -> Order | WeightedOrder:
    """Return the order of n samples: a permutation, or draws by weight."""
    if weights is None:
        return Order(n, seed=seed, shuffle=shuffle)
    if shuffle:
        raise ValueError("shuffle must not be set together with weights, which draw samples at random already")
    if weights.shape != (n,):
        raise ValueError(f"weights must have one number per sample, {n} samples; its shape is {weights.shape}")
    return WeightedOrder(weights, seed=seed)


class EpochPlan:
    """The batches of one epoch for one rank, as positions.

    With batch size B and world size W, global batch g is the positions g·B·W to (g+1)·B·W, counted from `start`, and
    rank r takes r, r + W, r + 2W … of them. The last, partial global batch before `stop` is dropped, or filled from
    position 0 on to the next multiple of W, so that all ranks have the same lengths; the filling is marked.

    The epoch has n positions. In a run that is resumed, all ranks together had those before `start`, and those from
    `stop` on, which were returned from the end of the epoch; with any batch and world size.
    """

    def __init__(
        self,
        n: int,
        *,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        if n < 0:
            raise ValueError(f"n must be >= 0; got {n}")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; got {batch_size}")
        if world_size < 1 or not 0 <= rank < world_size:
            raise ValueError(f"rank must be in [0, world_size); got rank {rank}, world_size {world_size}")
        stop = n if stop is None else stop
        if not 0 <= start <= stop <= n:
            raise ValueError(f"0 <= start <= stop <= n must hold; got start {start}, stop {stop}, n {n}")
        self.n, self.batch_size, self.rank, self.world_size = n, batch_size, rank, world_size
        self.drop_last, self.start, self.stop = drop_last, start, stop
        self._stride = batch_size * world_size

    def __len__(self) -> int:
        """Return the number of batches in the complete epoch, wherever this plan starts."""
        return self._batches(self.n)

    @property
    def remaining(self) -> int:
        """The number of batches from `start` to `stop`."""
        return self._batches(self.stop - self.start)

    def _batches(self, positions: int) -> int:
        return positions // self._stride if self.drop_last else -(-positions // self._stride)

    def samples_after(self, g: int) -> int:
        """Return how many samples all ranks together had after g batches from `start` on, without repeats."""
        return min(self.stop, self.start + g * self._stride)

    def batch(self, g: int) -> tuple[Positions, npt.NDArray[np.bool_] | None]:
        """Return (this rank's positions of batch g, which of them are repeats or None)."""
        return self.batches(g, g + 1)[0]

    def batches(self, first: int, stop: int) -> list[tuple[Positions, npt.NDArray[np.bool_] | None]]:
        """Return batches `first` to `stop`, as `batch` does."""
        if not 0 <= first <= stop <= self.remaining:
            raise IndexError(f"batches must be in [0, {self.remaining}]; got {first} to {stop}")
        return [self._one(self.start + g * self._stride) for g in range(first, stop)]

    def _one(self, begin: int) -> tuple[Positions, npt.NDArray[np.bool_] | None]:
        end = min(begin + self._stride, self.stop)
        end += -(end - begin) % self.world_size
        positions = np.arange(begin + self.rank, end, self.world_size, dtype=np.int64)
        if end <= self.stop:
            return positions, None
        repeat = positions >= self.stop
        if not repeat.any():
            return positions, None
        # An epoch shorter than the world size is repeated as often as necessary.
        positions[repeat] = (positions[repeat] - self.stop) % self.n
        return positions, repeat


class EpochBatches:
    """The batches of one epoch for one rank, as samples of an order.

    The order is computed for thousands of positions at a time, upwards or downwards from the requested batch. For one
    thread at a time.
    """

    def __init__(self, order: Order | WeightedOrder, plan: EpochPlan, epoch: int, *, descending: bool = False) -> None:
        if order.n < plan.n:
            raise ValueError(f"the order must cover the plan; got {plan.n} positions and an order of {order.n}")
        self.plan, self.epoch = plan, epoch
        self._order, self._descending = order, descending
        self._block = max(1, _AHEAD // plan.batch_size)
        self._first = 0
        self._ready: list[tuple[Positions, npt.NDArray[np.bool_] | None]] = []

    def __len__(self) -> int:
        return self.plan.remaining

    def batch(self, g: int) -> tuple[Positions, npt.NDArray[np.bool_] | None]:
        """Return (samples of batch g, counted from the plan's start; which of them are repeats or None)."""
        if not self._first <= g < self._first + len(self._ready):
            self._load(g)
        return self._ready[g - self._first]

    def _load(self, g: int) -> None:
        first = max(0, g + 1 - self._block) if self._descending else g
        stop = g + 1 if self._descending else min(g + self._block, max(g + 1, self.plan.remaining))
        planned = self.plan.batches(first, stop)
        taken = self._order.take(self.epoch, np.concatenate([positions for positions, _ in planned]))
        ends = np.cumsum([len(positions) for positions, _ in planned])
        parts = np.split(taken, ends[:-1])
        self._first, self._ready = first, [(part, repeat) for part, (_, repeat) in zip(parts, planned, strict=True)]


def as_positions(positions: Positions | range, n: int) -> Positions:
    """Check positions of an order of n, and return them as an array."""
    if isinstance(positions, range):
        chosen = np.arange(positions.start, positions.stop, positions.step, dtype=np.int64)
    else:
        chosen = np.asarray(positions)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise TypeError(f"positions must be a 1-D integer array; got {chosen.dtype} {chosen.shape}")
    if chosen.size and not 0 <= chosen.min() <= chosen.max() < n:
        raise IndexError(f"positions must be in [0, {n}); got {chosen.min()} to {chosen.max()}")
    return chosen.astype(np.int64, copy=False)
