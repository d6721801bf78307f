# SPDX-License-Identifier: Apache-2.0
"""How an epoch falls into batches and ranks: every sample exactly once, repeats marked, also after a resumption."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.loader._state import LoaderState
from headrace.loader.order._order import EpochBatches, EpochPlan, Order, WeightedOrder


def plans(n, batch_size, world_size, drop_last, start=0):
    return [
        EpochPlan(n, batch_size=batch_size, rank=r, world_size=world_size, drop_last=drop_last, start=start)
        for r in range(world_size)
    ]


def rank_batches(plan):
    return [plan.batch(g) for g in range(plan.remaining)]


def split(batch):
    """A batch's own positions and those that repeat."""
    positions, repeat = batch
    repeat = np.zeros(len(positions), bool) if repeat is None else repeat
    return positions[~repeat].tolist(), positions[repeat].tolist()


def run(all_plans, batches=None):
    """The positions that all ranks have in the first batches, and those that they repeat."""
    own, again = [], []
    for plan in all_plans:
        for g in range(plan.remaining if batches is None else batches):
            mine, repeated = split(plan.batch(g))
            own += mine
            again += repeated
    return own, again


SIZES = {"n": st.integers(0, 200), "batch_size": st.integers(1, 20), "world_size": st.integers(1, 12)}


@settings(max_examples=400, deadline=None)
@given(**SIZES, drop_last=st.booleans())
def test_global_batches_are_those_of_the_design(n, batch_size, world_size, drop_last):
    """Written down plainly: cut p, drop or fill, deal out."""
    p, stride = list(range(n)), batch_size * world_size
    expected = [p[at : at + stride] for at in range(0, n, stride)]
    marks = [[False] * len(batch) for batch in expected]
    if expected and len(expected[-1]) < stride:
        if drop_last:
            del expected[-1], marks[-1]
        else:
            missing = -len(expected[-1]) % world_size
            expected[-1] = expected[-1] + (p * world_size)[:missing]
            marks[-1] += [True] * missing

    for rank, plan in enumerate(plans(n, batch_size, world_size, drop_last)):
        assert len(plan) == plan.remaining == len(expected)
        for g in range(len(expected)):
            positions, repeat = plan.batch(g)
            assert positions.dtype == np.int64
            assert positions.tolist() == expected[g][rank::world_size]
            assert (repeat is not None) == any(marks[g][rank::world_size])
            if repeat is not None:
                assert repeat.tolist() == marks[g][rank::world_size]


@settings(max_examples=400, deadline=None)
@given(**SIZES, drop_last=st.booleans(), kills=st.lists(st.tuples(st.integers(0, 30), *SIZES.values()), max_size=4))
def test_every_sample_comes_once_whatever_dies_when(n, batch_size, world_size, drop_last, kills):
    """A run is killed at any batch and goes on with other batch and world sizes, several times."""
    state = LoaderState(0, 0, 0, True, n, None, "f")
    seen = []
    for kill, _, new_batch_size, new_world_size in kills:
        current = plans(n, batch_size, world_size, drop_last, state.samples)
        batches = min(kill, max(0, current[0].remaining - 1))
        own, again = run(current, batches)
        assert again == [], "only the last batch of an epoch has repeats"
        seen += own
        if current[0].remaining:
            state = LoaderState.from_json(state.after(current[0], batches).to_json())
        assert (state.epoch, state.samples) == (0, len(seen))
        batch_size, world_size = new_batch_size, new_world_size
    last = plans(n, batch_size, world_size, drop_last, state.samples)
    own, again = run(last)
    seen += own

    assert len({plan.remaining for plan in last}) == 1
    stride = batch_size * world_size
    left_out = (n - state.samples) % stride if drop_last else 0
    assert sorted(seen) == list(range(n - left_out)), "the head of p, each position once"
    assert len(again) == (0 if drop_last else -(n - state.samples) % world_size)
    after = state.after(last[0], last[0].remaining)
    assert (after.epoch, after.samples) == (1, 0), "the end of an epoch is the start of the next"


@settings(max_examples=150, deadline=None)
@given(**SIZES, drop_last=st.booleans(), seed=st.integers(0, 2**64 - 1), kill=st.integers(0, 30))
def test_the_resumed_batches_are_the_uninterrupted_ones(n, batch_size, world_size, drop_last, seed, kill):
    """With the same sizes, what follows a kill equals what would have followed without one."""
    order = Order(n, seed=seed, shuffle=True)
    for rank in range(world_size):
        sizes = {"batch_size": batch_size, "rank": rank, "world_size": world_size, "drop_last": drop_last}
        whole = EpochBatches(order, EpochPlan(n, **sizes), 3)
        killed_at = min(kill, len(whole))
        start = whole.plan.samples_after(killed_at)
        resumed = EpochBatches(order, EpochPlan(n, **sizes, start=start), 3)

        assert len(resumed) == len(whole) - killed_at
        assert len(resumed.plan) == len(whole.plan), "len is always that of the whole epoch"
        for g in range(len(resumed)):
            for mine, other in zip(resumed.batch(g), whole.batch(killed_at + g), strict=True):
                np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_union_over_ranks_is_the_permutation(shuffle):
    n, world_size = 10_007, 3
    order = Order(n, seed=8, shuffle=shuffle)
    ranks = [
        EpochBatches(order, EpochPlan(n, batch_size=32, rank=r, world_size=world_size), epoch=2)
        for r in range(world_size)
    ]
    dealt = [[split(batches.batch(g)) for g in range(len(batches))] for batches in ranks]
    own = list(chain.from_iterable(mine for rank in dealt for mine, _ in rank))
    again = list(chain.from_iterable(repeated for rank in dealt for _, repeated in rank))

    assert sorted(own) == list(range(n))
    assert again == order.take(2, range(1)).tolist(), "one short of 3 · 3336: one sample fills, the first of p"


def test_blocks_do_not_show():
    """The order is worked out ahead; batches asked for out of turn are those asked for in turn."""
    order = Order(50_000, seed=1, shuffle=True)
    plan = EpochPlan(50_000, batch_size=64, rank=1, world_size=2)
    in_turn = EpochBatches(order, plan, 0)
    expected = [in_turn.batch(g)[0].tolist() for g in range(len(in_turn))]
    other = EpochBatches(order, plan, 0)
    turns = np.random.default_rng(0).permutation(len(other))[:60]

    assert [other.batch(int(g))[0].tolist() for g in turns] == [expected[g] for g in turns]
    with pytest.raises(IndexError):
        other.batch(len(other))
    with pytest.raises(IndexError):
        other.batch(-1)


def test_weights_go_through_plans_too():
    order = WeightedOrder([1, 0, 3], seed=5)
    batches = EpochBatches(order, EpochPlan(3, batch_size=2), 0)

    assert [batches.batch(g)[0].tolist() for g in range(2)] == [
        order.take(0, range(2)).tolist(),
        order.take(0, range(2, 3)).tolist(),
    ]


def test_an_epoch_shorter_than_the_world_gives_every_rank_a_sample():
    dealt = [split(plan.batch(0)) for plan in plans(2, 4, 5, drop_last=False)]

    assert dealt == [([0], []), ([1], []), ([], [0]), ([], [1]), ([], [0])]
    assert [len(plan) for plan in plans(2, 4, 5, drop_last=True)] == [0] * 5


def test_an_empty_epoch_has_no_batches():
    for drop_last in (True, False):
        plan = EpochPlan(0, batch_size=4, drop_last=drop_last)
        assert (len(plan), plan.remaining) == (0, 0)
        with pytest.raises(IndexError):
            plan.batch(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1; got 0"),
        ({"batch_size": 1, "rank": 2, "world_size": 2}, "got rank 2, world_size 2"),
        ({"batch_size": 1, "rank": -1}, "rank -1"),
        ({"batch_size": 1, "world_size": 0}, "world_size 0"),
        ({"batch_size": 1, "start": 11}, "got start 11, stop 10"),
    ],
)
def test_bad_plans_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        EpochPlan(10, **options)
    with pytest.raises(ValueError, match="got 10 positions and an order of 9"):
        EpochBatches(Order(9), EpochPlan(10, batch_size=1), 0)
