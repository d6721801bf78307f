# SPDX-License-Identifier: Apache-2.0
"""The order of a mixture: shares within one sample, permutations within parts, and what the specification says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headrace.loader.order._interleave import MAX_BLOCK, Interleave
from headrace.loader.order._keys import draw, epoch_key
from headrace.loader.order._mixture import MixtureOrder, all_end, first_end, shares_of
from headrace.loader.order._order import Order

STREAM = 4
COPY = 1 << 30
some_shares = st.lists(
    st.one_of(st.integers(0, 9), st.integers(1, 3000), st.sampled_from([1 << 20, 1 << 30])), min_size=1, max_size=12
)


def fits(shares):
    return any(shares) and min(share for share in shares if share) * 8192 >= sum(shares)


def cells(ordered, lengths, total):
    """Which parts touch each cell of a line."""
    touching, at = [], 0
    for part in ordered:
        for cell in range(at // total, -(-(at + lengths[part]) // total)):
            while len(touching) <= cell:
                touching.append([])
            touching[cell].append(part)
        at += lengths[part]
    return touching


def reference(shares, epoch, block, length, *, seed, shuffle):
    """Return the parts of one block, as spec/order.md §3 says: in plain Python, one position after the other."""
    total = sum(shares)
    order = Interleave(shares, seed=seed)
    start, stop = block * length, (block + 1) * length
    first, last = order.counts(start), order.counts(stop)
    waiting = {(part, j) for part in range(len(shares)) for j in range(first[part], last[part])}
    windows = {
        (part, j): (
            max(j * total // shares[part], start),
            min(-(-(j + 1) * total // shares[part]) - 1, stop - 1),
        )
        for part, j in waiting
    }
    placed = []
    for position in range(start, stop):
        ready = [each for each in waiting if windows[each][0] <= position]
        chosen = min(ready, key=lambda each: (windows[each][1], each))
        assert windows[chosen][1] >= position
        placed.append(chosen)
        waiting.remove(chosen)
    if shuffle:
        key = draw(epoch_key(seed, epoch, STREAM), block)
        for sweep in range(32):
            for x in range(sweep % 2, length - 1, 2):
                one, other = placed[x], placed[x + 1]
                may = windows[one][1] >= start + x + 1 and windows[other][0] <= start + x
                if one[0] != other[0] and may and draw(draw(key, sweep), x) >> 63:
                    placed[x], placed[x + 1] = other, one
    return [part for part, _ in placed]


@settings(max_examples=40, deadline=None)
@given(some_shares, st.integers(0, 5000), st.booleans(), st.integers(0, 3))
def test_every_part_is_within_one_sample_of_its_share_at_every_point(shares, start, shuffle, epoch):
    """After every position each count is the floor or the ceiling of its target."""
    assume(fits(shares))
    order = Interleave(shares, seed=7, shuffle=shuffle)
    n = 2500
    parts, numbers = order.take(epoch, range(start, start + n), start + n)

    counts = np.zeros((n + 1, len(shares)), np.int64)
    counts[0] = order.counts(start, epoch)
    counts[np.arange(1, n + 1), parts] = 1
    counts = np.cumsum(counts, axis=0)
    for part, share in enumerate(shares):
        targets = [(start + k) * share for k in range(n + 1)]
        floors = np.array([target // order.total for target in targets])
        ceilings = np.array([-(-target // order.total) for target in targets])
        assert (floors <= counts[:, part]).all()
        assert (counts[:, part] <= ceilings).all()
        mine = np.flatnonzero(parts == part)
        assert (numbers[mine] == counts[mine, part]).all()


@settings(max_examples=8, deadline=None)
@given(some_shares, st.integers(0, 3), st.booleans())
def test_a_block_is_what_the_specification_says(shares, block, shuffle):
    """The fast order equals the plain one."""
    assume(fits(shares))
    order = Interleave(shares, seed=9, shuffle=shuffle)
    assume(order.block == 1024)
    positions = range(block * 1024, (block + 1) * 1024)
    expected = reference(shares, 2, block, 1024, seed=9, shuffle=shuffle)

    assert order.take(2, positions, positions.stop)[0].tolist() == expected


@settings(max_examples=40, deadline=None)
@given(some_shares, st.integers(1, 5))
def test_counts_at_the_start_of_a_block_fill_every_cell(shares, block):
    """Among the parts of each cell, in both orders, one is ahead; and each part at most once."""
    assume(fits(shares))
    order = Interleave(shares)
    total, k = order.total, block * order.block
    counts = order.counts(k)
    left = {part: k * share % total for part, share in enumerate(shares) if k * share % total}
    floor = {part: k * shares[part] // total for part in left}
    ahead = {part for part in left if counts[part] > floor[part]}

    assert sum(counts) == k
    deadlines = sorted(left, key=lambda part: (-(-(floor[part] + 1) * total // shares[part]), part))
    releases = sorted(left, key=lambda part: (floor[part] * total // shares[part], part))
    for ordered in (deadlines, releases):
        seen = 0.0
        for number, part in enumerate(ordered):
            seen += left[part]
            chosen = len(ahead & set(ordered[: number + 1]))
            assert chosen >= seen // total
        assert all(ahead & set(cell) for cell in cells(ordered, left, total))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 60)), min_size=1, max_size=5),
    st.booleans(),
    st.data(),
)
def test_parts_are_permuted_pass_after_pass(parts, shuffle, data):
    """Each part has all its samples once before one comes again, whatever positions are asked for."""
    shares, lengths = zip(*parts, strict=True)
    n = all_end(shares, lengths)
    order = MixtureOrder(shares, lengths, n=n, seed=3, shuffle=shuffle)
    indices, _ = order.take(1, range(n))
    some = data.draw(st.lists(st.integers(0, n - 1), max_size=20))
    assert (order.take(1, np.array(some, np.int64))[0] == indices[some]).all()

    starts = np.cumsum([0, *lengths])
    for part, length in enumerate(lengths):
        mine = indices[(indices % COPY >= starts[part]) & (indices % COPY < starts[part + 1])]
        for number in range(-(-len(mine) // length)):
            own = mine[number * length : (number + 1) * length]
            assert (own // COPY == number).all()
            assert len(set(own.tolist())) == len(own)
            places = [int(place) for place in own % COPY - starts[part]]
            if shuffle:
                key = draw(order.part_key(1, part), number)
                assert places == Order(length).take_keyed(key, range(len(places))).tolist()
            else:
                assert places == list(range(len(places)))
        assert len(mine) >= length  # "all"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 300)), min_size=1, max_size=6))
def test_epochs_end_before_the_first_repeat_or_after_the_last_sample(parts):
    """Both ends hold for every order that is within one sample of its shares, and are tight for the targets."""
    shares, lengths = zip(*parts, strict=True)
    total = sum(shares)
    first, last = first_end(shares, lengths), all_end(shares, lengths)

    assert all(-(-first * share // total) <= length for share, length in parts)
    assert any((first + 1) * share > length * total for share, length in parts)
    assert all(last * share // total >= length for share, length in parts)
    assert any((last - 1) * share < length * total for share, length in parts)


def test_samples_of_a_part_come_to_all_ranks():
    """Neighbours are exchanged at random: no rank gets much more of a part than the others."""
    for shares in ([1, 1], [1, 2], [1, 3], [1, 1, 2]):
        parts, _ = Interleave(shares, seed=1, shuffle=True).take(0, range(8192), 8192)
        for world in (2, 3, 4):
            share = [float((parts[rank::world] == 0).mean()) for rank in range(world)]
            assert max(share) - min(share) < 0.1, (shares, world, share)


def test_shares_of_weights_add_up():
    """Weights become integers with a fixed sum; equal weights differ by at most one."""
    assert sum(shares_of([0.7, 0.3])) == 1 << 32
    assert shares_of([1, 1]) == [1 << 31, 1 << 31]
    assert max(shares_of([5.0] * 3)) - min(shares_of([5.0] * 3)) == 1


@pytest.mark.parametrize("shares", [[], [0, 0], [1] * 257, [-1, 2], [1, MAX_BLOCK], [1 << 48, 1]])
def test_impossible_shares_raise(shares):
    """A mixture has 1 to 256 parts, none of which is vanishingly small."""
    with pytest.raises(ValueError, match=r"a mixture must have 1 to 256 parts|each share must be 0 or at least"):
        Interleave(shares)
