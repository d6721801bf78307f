# SPDX-License-Identifier: Apache-2.0
"""Patterns are pure and can be cut anywhere; strategies decide what their models predict, and when to stay off."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headrace.offload.host._supply import Turns
from headrace.offload.strategies._patterns import HOST_ONLY, Pattern
from headrace.offload.strategies._strategies import STRATEGIES, Mte, Outlook, Paced, Times, Wrr, find_strategy

CPU_BOUND = Times(host=1.0, worker=4.0, step=0.3)


@some.composite
def patterns(draw):
    of = draw(some.integers(1, 50))
    return Pattern(draw(some.integers(0, 20)), draw(some.integers(0, of)), of, draw(some.integers(0, of - 1)))


def batches_taken(turns: Turns) -> list[int]:
    return [turns.take(prepared=turns.is_prepared(ready=False)) for _ in range(turns.remaining)]


@given(patterns(), some.integers(0, 60))
def test_what_is_left_of_a_pattern_is_a_pattern(pattern, cut):
    slots = [pattern.is_prepared(slot) for slot in range(120)]
    rest = pattern.after(cut)

    assert list(pattern.slots(120)) == slots

    assert [rest.is_prepared(slot) for slot in range(120 - cut)] == slots[cut:]
    assert [pattern.prepared_before(slot) for slot in range(121)] == [sum(slots[:slot]) for slot in range(121)]
    assert Pattern.from_json(json.loads(json.dumps(rest.to_json()))) == rest


@given(patterns())
def test_slots_of_prepared_batches_are_evenly_spread(pattern):
    """The numbers of host slots between two prepared batches differ by at most one."""
    near = [slot for slot in range(pattern.skip, pattern.skip + 300) if pattern.is_prepared(slot)]
    gaps = {after - before for before, after in itertools.pairwise(near)}

    assert len(gaps) <= 2
    assert not gaps or max(gaps) - min(gaps) <= 1


@given(patterns(), some.integers(0, 80), some.data())
def test_every_batch_is_taken_once_from_both_ends(pattern, batches, data):
    turns = Turns(batches, pattern)
    order = batches_taken(turns)

    assert sorted(order) == list(range(batches))
    near = [number for slot, number in enumerate(order) if pattern.is_prepared(slot)]
    assert near == sorted(near, reverse=True)
    again = Turns(batches, pattern)
    cut = data.draw(some.integers(0, batches))
    for number in order[:cut]:
        assert again.take(prepared=again.is_prepared(ready=True)) == number
    assert again.bottom == (min(near) if near[sum(map(pattern.is_prepared, range(cut))) :] else again.tail)
    resumed = Turns(again.remaining, pattern.after(cut))
    assert [again.head + number for number in batches_taken(resumed)] == order[cut:]


def test_an_epoch_can_be_planned_after_it_began():
    """A pattern that is decided at slot 10 is the same as one delayed by ten slots."""
    turns = Turns(40, HOST_ONLY)
    order = [turns.take(prepared=turns.is_prepared(ready=False)) for _ in range(10)]
    turns.replan(Pattern(2, 1, 3))
    order += batches_taken(turns)

    assert order == batches_taken(Turns(40, Pattern(2, 1, 3).delayed(10)))
    with pytest.raises(IndexError, match="all 40 batches"):
        turns.take(prepared=True)


@pytest.mark.parametrize(
    "tree",
    [None, [], {}, {"skip": 0, "near": 2, "of": 1, "phase": 0}, {"skip": 0, "near": 0.5, "of": 1, "phase": 0},
     {"skip": -1, "near": 0, "of": 1, "phase": 0}, {"skip": 0, "near": 1, "of": 3, "phase": 3},
     {"skip": 0, "near": True, "of": 1, "phase": 0}],
)  # fmt: skip
def test_an_invalid_pattern_is_refused(tree):
    with pytest.raises(ValueError, match="pattern"):
        Pattern.from_json(tree)


def test_paced_gives_the_offload_worker_its_share():
    """A quarter of the speed is a fifth of the batches, less a little; the first comes when it is ready."""
    decision = Paced().decide(CPU_BOUND, Outlook(1000))

    pattern = decision.pattern
    assert pattern.near / pattern.of == pytest.approx(0.98 * 0.2, abs=1e-3)
    first = next(slot for slot in range(1000) if pattern.is_prepared(slot))
    assert first * 0.8 >= 4.0, "it takes four seconds to make"
    ahead = Paced().decide(CPU_BOUND, Outlook(1000, ready=3)).pattern
    assert ahead.skip == 0, "what is there can be taken at once"


def test_mte_splits_so_that_both_end_together():
    """The offload worker also works while its own batches are trained on."""
    pattern = Mte().decide(CPU_BOUND, Outlook(1000)).pattern
    near = pattern.prepared_before(1000)

    assert near == int(1000 * 1.0 / (1.0 + 4.0 - 0.3))
    assert pattern == Pattern(1000 - near, 1, 1)
    few = Mte().decide(CPU_BOUND, Outlook(1000, capacity=10)).pattern
    assert few.prepared_before(1000) == int(10 * 4 / (4 - 0.3)), "what lies unread is limited"


def test_mte_knows_what_the_link_and_a_head_start_are_worth():
    """Prepared batches that follow each other come no faster than they are read, and nothing is written meanwhile.

    What lay ready was not waited for.
    """
    times = Times(host=1.0, worker=4.0, link=0.5)
    decision = Mte().decide(times, Outlook(1000))
    near = decision.pattern.prepared_before(1000)

    assert near == int(1000 / (1 + 4))
    ahead = Mte().decide(times, Outlook(1000, ready=90))
    assert ahead.pattern.prepared_before(1000) == int((1000 + 90 * 4) / (1 + 4))
    slow = Times(host=1.0, worker=4.0, step=0.9, link=0.5)
    assert Mte(spare_host=True).share(slow, Outlook(1000)).pattern.prepared_before(1000) == int(1000 / (1 + 4 - 0.4))


def test_mte_is_off_where_reading_takes_as_long_as_making():
    """Read one after the other nothing is gained; read beside the host's work it is."""
    times = Times(host=1.0, worker=4.0, link=0.9, take=0.2)

    assert "the link: reading prepared batches in a row" in Mte().decide(times, Outlook(1000)).off
    assert Mte(spare_host=True).decide(times, Outlook(1000)).off is None
    assert Paced().decide(times, Outlook(1000)).off is None


def test_wrr_takes_what_is_ready():
    assert Wrr().decide(CPU_BOUND, Outlook(1000)).pattern is None
    assert not Wrr.follows_pattern
    turns = Turns(4, None)
    assert [turns.take(prepared=turns.is_prepared(ready)) for ready in (False, True, True, False)] == [0, 3, 2, 1]


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize(
    ("times", "why"),
    [
        (Times(host=0.5, worker=2.0, step=0.6), "^the trainer: it takes 600 ms .* 500 ms"),
        (Times(host=0.1, worker=0.4, link=0.2, take=0.2), "^the link: reading a prepared batch takes 200 ms"),
        (Times(host=0.1, worker=0.4, take=0.09, reading=0.08), "^the link: the host waits 80.0 ms"),
        (Times(host=0.001, worker=4.0), "longer than the rest of the epoch"),
        (Times(host=0.1, worker=20.0), "less than 1%"),
    ],
)
def test_an_offload_worker_that_gains_nothing_is_off(name, times, why):
    decision = STRATEGIES[name]().decide(times, Outlook(1000))

    assert decision.pattern == HOST_ONLY
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(decision.off)


def test_an_offload_worker_can_stay_on_to_spare_the_host():
    """Beside a slow trainer, 0.9 of the time of the offload worker is planned."""
    times = Times(host=0.5, worker=1.0, step=0.8)
    pattern = Paced(spare_host=True).decide(times, Outlook(1000)).pattern

    assert pattern.near / pattern.of == pytest.approx(0.9 * 0.8, abs=1e-3)
    assert times.interleaved == times.alone


def test_the_host_gets_no_more_than_it_can_make():
    """A trainer slightly slower than both together: the offload worker's share stays above what the host lacks."""
    times = Times(host=1.0, worker=4.0, step=0.81)
    pattern = Paced().decide(times, Outlook(1000)).pattern

    assert pattern.near / pattern.of + 1e-3 >= 1 - 0.81
    assert pattern.near / pattern.of <= 0.81 / 4 + 1e-3


def test_recorded_plans_are_followed():
    plans = [{"epoch": 2, "pattern": {"skip": 3, "near": 1, "of": 4, "phase": 0}, "off": None, "times": None}]
    strategy = Paced(plans=plans)

    assert strategy.recorded(2) == Pattern(3, 1, 4)
    assert strategy.recorded(1) is None
    assert Paced(plans={2: Pattern(3, 1, 4)}) == strategy


def test_strategies_have_names():
    assert [type(find_strategy(name)) for name in ("paced", "mte", "wrr")] == [Paced, Mte, Wrr]
    mine = Paced(spare_host=True)
    assert find_strategy(mine) is mine
    with pytest.raises(ValueError, match="one of 'paced', 'mte', 'wrr'"):
        find_strategy("fast")


def test_times_must_be_positive():
    with pytest.raises(ValueError, match="must be > 0"):
        Times(host=0.0, worker=1.0)
