# SPDX-License-Identifier: Apache-2.0
"""Sampling by weight: in proportion, never what weighs nothing, and the same for the same position."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.loader.order import _order
from headrace.loader.order._order import WeightedOrder


def test_the_draws_never_change():
    """Frozen: a run that was saved goes on after an upgrade, on any machine."""
    order = WeightedOrder([0.1, 0.2, 0.3, 0.4, 5.0, 0.0, 1e-3, 2.0], seed=42)

    assert order.take(0, range(8)).tolist() == [4, 4, 4, 7, 4, 4, 4, 4]
    assert order.take(1, range(8)).tolist() == [7, 4, 4, 7, 4, 7, 4, 4]


def test_rows_come_in_proportion():
    """Over many epochs, within five standard deviations each."""
    weights = np.array([1, 0, 2, 3.5, 0, 10, 0.5, 0])
    order = WeightedOrder(weights, seed=3)
    drawn = np.concatenate([order.take(epoch, range(8)) for epoch in range(20_000)])
    counts = np.bincount(drawn, minlength=8)
    shares = weights / weights.sum()

    assert (counts[weights == 0] == 0).all()
    deviation = np.abs(counts - shares * len(drawn)) / np.sqrt(np.maximum(shares * (1 - shares) * len(drawn), 1))
    assert deviation.max() < 5


def test_positions_are_independent():
    """Neighbours, and the same position in two epochs, go together no more often than chance has it."""
    order = WeightedOrder(np.ones(100_000), seed=1)
    first, second = order.take(0, range(100_000)), order.take(1, range(100_000))
    for one, other in ((first[:-1], first[1:]), (first, second)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(100_000)
    # Of n draws with replacement from n, 1/e of the rows are missed.
    assert abs(len(np.unique(first)) / 100_000 - (1 - 1 / math.e)) < 0.01


@settings(max_examples=150, deadline=None)
@given(
    weights=st.lists(st.floats(0, 1e300) | st.just(0.0), min_size=1, max_size=40).filter(
        lambda weights: 1e-200 <= sum(weights) < math.inf
    ),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**32 - 1),
)
def test_a_row_without_weight_never_comes(weights, seed, epoch):
    """Whatever the scale of the weights; and a part of the positions gives that part of the rows."""
    order = WeightedOrder(weights, seed=seed)
    drawn = order.take(epoch, range(len(weights)))

    assert all(weights[row] > 0 for row in drawn)
    assert order.take(epoch, range(len(weights) - 1, len(weights))).tolist() == drawn[-1:].tolist()


def test_the_largest_draw_still_finds_a_row(monkeypatch):
    """2**53 − 1 is as near to the total as a draw comes; rounding must not carry it over the end."""
    monkeypatch.setattr(_order, "draw_many", lambda _, positions: np.full(len(positions), 2**64 - 1, np.uint64))
    for weights in ([1.0, 2.0, 0.0], [0.1] * 10 + [0.0], [1e-200, 0.0], [5e307, 1.0, 0.0], [1 / 3, 1 / 7, 1 / 9]):
        last = max(row for row, weight in enumerate(weights) if weight)
        drawn = WeightedOrder(weights).take(0, range(1))[0]
        assert drawn <= last
        assert weights[drawn] > 0


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -1], "the weight of sample 1 is -1.0"),
        ([1, math.nan], "the weight of sample 1 is nan"),
        ([math.inf], "the weight of sample 0 is inf"),
        ([0, 0], "it is 0.0"),
        ([1e308, 1e308], "it is inf"),
        ([[1, 2]], r"got an array of shape \(1, 2\)"),
    ],
)
def test_bad_weights_are_named(weights, message):
    with pytest.raises(ValueError, match=message), np.errstate(over="ignore"):
        WeightedOrder(weights)


def test_no_weights_make_an_empty_order():
    assert WeightedOrder([]).take(0, range(0)).tolist() == []
    with pytest.raises(IndexError):
        WeightedOrder([]).take(0, range(1))
