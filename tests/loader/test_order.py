# SPDX-License-Identifier: Apache-2.0
"""The permutation of an epoch is one, is well mixed, and is the one that its description gives."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from headrace.loader.order._keys import draw, draw_many, epoch_key
from headrace.loader.order._order import Order

WRAP = (1 << 64) - 1
G = 0x9E3779B97F4A7C15
BIG = [10**6 + 3, 2**31, 2**32 - 5, 10**11 + 7, 2**47 + 12345, 2**48]

# p[0], p[1], p[n // 2], p[n - 1] for (n, seed, epoch): frozen, for a run that was saved must go on after an upgrade.
VECTORS = {
    (10, 0, 0): [4, 7, 2, 8],
    (1000, 0, 0): [959, 856, 422, 87],
    (1000, 0, 1): [194, 500, 387, 627],
    (1281167, 42, 7): [705109, 918171, 1090697, 686628],
    (2**40 + 1, 2**64 - 1, 2**32 - 1): [749721694265, 140579936158, 383436985465, 738556017483],
}


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WRAP
    z = (z ^ z >> 27) * 0x94D049BB133111EB & WRAP
    return z ^ z >> 31


def by_the_book(n, seed, epoch, x):
    """One position, in plain Python, as the module's docstring says."""
    key = mix(mix(seed + G & WRAP) + (epoch + 1) * G & WRAP)
    a = next(a for a in range(math.isqrt(n), n + 2) if a * a >= n)
    b = -(-n // a)
    while True:
        right, left = divmod(x, a)
        for j in range(24 if n < 4096 else 8):
            h = ((right if j % 2 == 0 else left) ^ mix(key + (j + 1) * G & WRAP)) * G & WRAP
            upper = (h ^ h >> 32) * 0xBF58476D1CE4E5B9 % 2**64 >> 32
            if j % 2 == 0:
                left = (left + (upper * a >> 32)) % a
            else:
                right = (right + (upper * b >> 32)) % b
        x = right * a + left
        if x < n:
            return x


def p(n, seed=0, epoch=0):
    return Order(n, seed=seed, shuffle=True).take(epoch, range(n))


def four_of(n, seed, epoch):
    return Order(n, seed=seed, shuffle=True).take(epoch, np.array([0, 1, n // 2, n - 1])).tolist()


@pytest.mark.parametrize(("case", "expected"), VECTORS.items())
def test_the_order_never_changes(case, expected):
    """Neither on another machine nor in another version."""
    assert four_of(*case) == expected


@pytest.mark.parametrize("n", [2, 3, 10, 255, 4095, 4096, 99991, *BIG])
def test_the_order_is_the_one_described(n):
    """The arrays compute what the words say, one number at a time."""
    rng = np.random.default_rng(n)
    for seed, epoch in [(0, 0), (int(rng.integers(2**63)), int(rng.integers(2**32)))]:
        positions = rng.integers(0, n, 40)
        expected = [by_the_book(n, seed, epoch, int(x)) for x in positions]

        assert Order(n, seed=seed, shuffle=True).take(epoch, positions).tolist() == expected


def test_small_orders_are_permutations():
    """Every n up to 600, and some about squares, where the sides of the domain change."""
    sizes = [
        *range(600),
        *(k * k + d for k in (50, 63, 64, 90) for d in (-1, 0, 1)),
        *(k * (k + 1) + 1 for k in (60, 80)),
    ]
    for n in sizes:
        for epoch in range(2):
            assert np.array_equal(np.sort(p(n, seed=n, epoch=epoch)), np.arange(n)), (n, epoch)


@pytest.mark.parametrize("n", BIG)
def test_big_orders_have_no_repeats(n):
    """A map into [0, n) that gives 300 000 neighbours different results; two errors could not hide there."""
    start = n // 3
    taken = Order(n, seed=3, shuffle=True).take(1, range(start, start + 300_000))

    assert 0 <= taken.min() <= taken.max() < n
    assert len(np.unique(taken)) == 300_000


def test_a_million_is_a_permutation():
    assert np.array_equal(np.sort(p(1_000_003)), np.arange(1_000_003))


@pytest.mark.parametrize("n", [pytest.param(4, marks=pytest.mark.slow), 5])
def test_all_permutations_are_equally_likely(n):
    """Pearson's χ² over all n! of them in 4000 epochs; 8 rounds fail it for n = 5."""
    order = Order(n, seed=11, shuffle=True)
    counts = dict.fromkeys(permutations(range(n)), 0)
    for epoch in range(4000):
        counts[tuple(order.take(epoch, range(n)).tolist())] += 1

    assert chi_square(np.array(list(counts.values()))) < 4.5


@pytest.mark.parametrize("n", [12, 37])
def test_any_sample_can_come_at_any_position(n):
    """How often sample y stands at position x is even over all pairs, and so are pairs of neighbours."""
    table, pairs = np.zeros((n, n), np.int64), np.zeros((n, n), np.int64)
    for epoch in range(1500):
        order = p(n, seed=5, epoch=epoch)
        table[np.arange(n), order] += 1
        pairs[order[:-1], order[1:]] += 1

    assert abs(chi_square(table)) < 4.5
    assert abs(chi_square(pairs[~np.eye(n, dtype=bool)])) < 4.5
    assert pairs.trace() == 0


def chi_square(counts):
    """The deviation from evenness, in standard deviations of what chance gives."""
    expected = counts.sum() / counts.size
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = counts.size - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


def test_a_big_order_is_even_everywhere():
    """First, last and every thousandth positions fall evenly into 256 parts of the range."""
    n = 2**40 + 12345
    for positions in (range(100_000), range(n - 100_000, n), range(0, 10**8, 1000)):
        taken = Order(n, seed=1, shuffle=True).take(0, positions)

        assert abs(chi_square(np.bincount(taken * 256 // n, minlength=256))) < 4.5


def test_neighbours_part():
    """Neither sums nor differences of neighbours, nor of seeds or epochs, betray a pattern."""
    n = 1 << 20
    base = p(n)
    for other in (np.roll(base, 1), p(n, seed=1), p(n, epoch=1), p(n, seed=1 << 63)):
        assert abs(np.corrcoef(base, other)[0, 1]) < 5 / math.sqrt(n)
        assert abs(chi_square(np.bincount((base - other) % n >> 10, minlength=1024))) < 5
        assert (base == other).sum() < 12  # chance gives one


@pytest.mark.parametrize("what", ["position", "seed", "epoch"])
def test_one_bit_changes_half_of_the_bits(what):
    """Avalanche: flip one bit of what goes in, and each bit that comes out flips with probability one half."""
    n, tries = 1 << 32, 1000
    rng = np.random.default_rng(2)
    positions = rng.integers(0, n, tries)
    for bit in range(32):
        given = {"position": 0, "seed": int(rng.integers(2**63)), "epoch": int(rng.integers(2**32))}
        flipped = {**given, what: given[what] ^ 1 << bit}
        first, second = (
            Order(n, seed=g["seed"], shuffle=True).take(g["epoch"], positions ^ g["position"]) for g in (given, flipped)
        )
        shares = [((first ^ second) >> out & 1).mean() for out in range(32)]

        assert np.abs(np.array(shares) - 0.5).max() < 0.5 * 5 / math.sqrt(tries), bit


def test_not_shuffled_is_the_identity():
    positions = np.array([5, 0, 5, 99])
    taken = Order(100, seed=9).take(4, positions)

    assert taken.tolist() == positions.tolist()
    taken[0] = 1
    assert positions[0] == 5, "what comes out is the caller's own"


def test_positions_may_come_in_any_manner():
    """Parts, steps and long takes give what single positions give."""
    order = Order(100_000, seed=1, shuffle=True)
    whole = order.take(2, range(100_000))

    assert order.take(2, range(99_999, -1, -7)).tolist() == whole[::-7].tolist()
    assert order.take(2, np.array([7, 7], np.uint8)).tolist() == [whole[7]] * 2
    assert order.take(2, range(0)).tolist() == []
    assert [order.take(2, range(x, x + 1))[0] for x in (0, 16_383, 16_384, 99_999)] == whole[
        [0, 16_383, 16_384, 99_999]
    ].tolist()


@pytest.mark.parametrize("positions", [range(-1, 3), range(8, 11), np.array([0, 10]), np.array([-1])])
def test_positions_that_do_not_exist_are_refused(positions):
    with pytest.raises(IndexError, match=r"must be in \[0, 10\)"):
        Order(10, shuffle=True).take(0, positions)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"seed must be .*; got -1"):
        Order(10, seed=-1)
    with pytest.raises(ValueError, match=r"seed must be .*; got 18446744073709551616"):
        Order(10, seed=2**64)
    with pytest.raises(ValueError, match=r"epoch must be .*; got -1"):
        Order(10).take(-1, range(1))
    with pytest.raises(ValueError, match=r"0 to 2\*\*48"):
        Order(2**48 + 1)
    with pytest.raises(TypeError, match="1-D integer array"):
        Order(10).take(0, np.array([0.5]))
    with pytest.raises(TypeError):
        Order(10, seed=0.5)


def test_draws_of_arrays_are_those_of_numbers():
    """The first is SplitMix64's published one for the seed 1234567."""
    assert draw(1234567, 0) == 6457827717110365317
    numbers = np.array([0, 1, 5, 2**40], np.int64)
    key = epoch_key(3, 4, 2)

    assert draw_many(key, numbers).tolist() == [draw(key, int(i)) for i in numbers]
    assert epoch_key(3, 4, 2) != epoch_key(3, 4, 1)
