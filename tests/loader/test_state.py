# SPDX-License-Identifier: Apache-2.0
"""A state survives JSON, goes on only where the order is the same, and says what is wrong where it is not."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from headrace.errors import HeadraceError, InvalidState
from headrace.loader._state import LoaderState, selection_digest
from headrace.loader.order._order import EpochPlan

STATE = LoaderState(
    epoch=3, samples=512, seed=7, shuffle=True, length=1000, selection="ab" * 16, fingerprint="0123456789abcdef"
)


def test_states_are_small_json():
    text = json.dumps(STATE.to_json())

    assert len(text) < 300
    assert LoaderState.from_json(json.loads(text)) == STATE
    assert json.loads(text)["version"] == 1


def test_the_end_of_an_epoch_is_the_start_of_the_next():
    ended = LoaderState.from_json(replace(STATE, samples=1000).to_json())

    assert (ended.epoch, ended.samples) == (4, 0)
    empty = LoaderState.from_json(replace(STATE, samples=0, length=0).to_json())
    assert (empty.epoch, empty.samples) == (3, 0)


def test_states_after_batches():
    """Repeats do not count; what is dropped does not have to come."""
    start = replace(STATE, samples=0)
    kept = EpochPlan(1000, batch_size=30, world_size=4)
    dropped = EpochPlan(1000, batch_size=30, world_size=4, drop_last=True)

    assert [start.after(kept, g).samples for g in (0, 1, 8)] == [0, 120, 960]
    assert (start.after(kept, 9).epoch, start.after(kept, 9).samples) == (4, 0)
    assert (start.after(dropped, 8).epoch, start.after(dropped, 8).samples) == (4, 0)
    resumed = EpochPlan(1000, batch_size=8, start=512)
    assert STATE.after(resumed, 3).samples == 536


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fingerprint": "other"}, "with fingerprint 'other'.*load it with the dataset"),
        ({"seed": 8}, "with seed 8; this loader has 7: give the loader the same seed"),
        ({"shuffle": False}, "with shuffle False"),
        ({"length": 2000}, "with length 2000.*same view, indices, weights or sampler"),
        ({"selection": None}, "with selection None.*same view, indices, weights or sampler"),
    ],
)
def test_a_state_of_another_run_is_refused(change, message):
    STATE.check_continues(replace(STATE, epoch=0, samples=0))
    with pytest.raises(InvalidState, match=message):
        replace(STATE, **change).check_continues(STATE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"headrace": "dataset"}, "must come from Loader.state_dict"),
        ({"version": 4}, "must be at most 3; it is 4: install"),
        ({"version": None}, "version must be .*; it is None"),
        ({"epoch": -1}, "epoch must be .*; it is -1"),
        ({"epoch": 2**32}, "epoch must be .*; it is 4294967296"),
        ({"samples": 1001}, "1001 samples of an epoch of 1000"),
        ({"samples": 1.0}, r"samples must be .*; it is 1\.0"),
        ({"samples": True}, "samples must be .*; it is True"),
        ({"seed": "7"}, "seed must be .*; it is '7'"),
        ({"shuffle": 1}, "shuffle must be .*; it is 1"),
        ({"length": None}, "length must be .*; it is None"),
        ({"selection": 5}, "selection must be .*; it is 5"),
        ({"fingerprint": None}, "fingerprint must be .*; it is None"),
    ],
)
def test_damage_is_named(change, message):
    with pytest.raises(InvalidState, match=message):
        LoaderState.from_json({**STATE.to_json(), **change})


@pytest.mark.parametrize("tree", [None, [], "x", {}, {"epoch": 3}, {"_sampler_iter_state": None}])
def test_what_is_no_state_is_refused(tree):
    with pytest.raises(InvalidState, match=r"must come from Loader\.state_dict"):
        LoaderState.from_json(tree)
    assert issubclass(InvalidState, HeadraceError)


def test_missing_members_are_named():
    for name in set(STATE.to_json()) - {"headrace", "selection"}:
        tree = STATE.to_json()
        del tree[name]
        with pytest.raises(InvalidState, match=name):
            LoaderState.from_json(tree)


def test_selections_have_names():
    """Rows and weights each count, so does their order; no selection has none."""
    rows, weights = np.arange(5), np.ones(5)
    names = [
        selection_digest(rows),
        selection_digest(rows[::-1]),
        selection_digest(None, weights),
        selection_digest(rows, weights),
        selection_digest(rows, weights * 2),
        selection_digest(rows[:0]),
    ]

    assert len(set(names)) == len(names)
    assert selection_digest() is None
    assert selection_digest(rows.astype(np.int32)) == names[0], "the numbers count, not how they are stored"
