# SPDX-License-Identifier: Apache-2.0
"""Which sample gets which format is a function of its key and the plan."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from headrace.records import hash64, load_plan
from headrace.records.plan import parse_mixes, unit_interval


def plan_of(shares: dict[str, float], renditions: int = 1) -> dict:
    listed = [{"format": name, "share": share, "decode": "cpu"} for name, share in shares.items()]
    return {"version": 1, "fields": {"image": {"renditions": renditions, "shares": listed}}}


def mix_of(shares: dict[str, float], renditions: int = 1):
    return parse_mixes(load_plan(plan_of(shares, renditions)))["image"]


def test_the_hash_is_frozen():
    """Datasets that were built by shares depend on it."""
    assert hash64("train/0001.png") == 9101215553950314365
    assert 0 <= unit_interval("train/0001.png") < 1


def test_shares_are_kept():
    mix = mix_of({"hri:fast": 0.6, "png": 0.1, "raw": 0.3})
    chosen = Counter(mix.choose(f"{number}.png")[0] for number in range(20000))
    for name, share in (("hri:fast", 0.6), ("png", 0.1), ("raw", 0.3)):
        assert abs(chosen[name] / 20000 - share) < 0.015


def test_renditions_are_the_next_formats_in_turn():
    mix = mix_of({"hri:fast": 0.5, "png": 0.3, "raw": 0.2}, renditions=2)
    first_choice = mix_of({"hri:fast": 0.5, "png": 0.3, "raw": 0.2})
    following = {"hri:fast": "png", "png": "raw", "raw": "hri:fast"}
    for number in range(200):
        first, second = mix.choose(str(number))
        assert (first,) == first_choice.choose(str(number))
        assert second == following[first]


def test_a_share_of_zero_gets_nothing():
    mix = mix_of({"png": 0.0, "raw": 1.0, "webp": 0.0})
    assert {mix.choose(str(number))[0] for number in range(500)} == {"raw"}


def test_a_plan_is_read_from_a_file(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan_of({"raw": 1.0}) | {"predicted": {"rate": 3}}))
    assert parse_mixes(load_plan(path))["image"].formats == ("raw",)
    path.write_text("{")
    with pytest.raises(ValueError, match=r"plan\.json must be a JSON file with a plan"):
        load_plan(path)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"version": 2, "fields": {}}, "version 1; got version 2"),
        ({"version": 1}, "must have a member 'fields'"),
        ({"version": 1, "fields": {"image": 3}}, "plan.fields.image must be an object"),
        (plan_of({}), "at least one format"),
        (plan_of({"tiff": 1.0}), "got 'tiff'"),
        (plan_of({"raw": 0.5, "png": 0.4}), "add up to 1"),
        (plan_of({"raw": 1.5, "png": -0.5}), "plan.fields.image.shares.1..share must be 0, or"),
        (plan_of({"raw": float("nan")}), "plan.fields.image.shares.0..share must be 0, or"),
        (plan_of({"hri": 0.5, "hri:dense": 0.5}), "one twice"),
        (plan_of({"raw": 1.0}, renditions=2), "1 to 1 renditions, at most one per format; got 2"),
        (plan_of({"raw": 1.0}, renditions=0), "got 0"),
    ],
)
def test_what_is_no_plan_is_explained(plan, message):
    with pytest.raises(ValueError, match=message):
        parse_mixes(load_plan(plan))
