# SPDX-License-Identifier: Apache-2.0
"""What if: the same costs on other machines, and what they cost."""

from __future__ import annotations

import json

import pytest

from headrace.planning import Grid, Machine, Prices, WhatIf, parse_grid, parse_prices, plan, what_if

GRID = Grid(cores=(1, 2, 4, 8, 16), storage_rates=(2e8, 2e9), steps=(0.05, 0.2))
PRICES = Prices(vcpu_hour=0.05, accelerator_hour=2.0, gb_month=0.1)


def test_every_point_is_the_plan_for_its_machine(photos):
    found = what_if(photos, GRID, PRICES)

    assert len(found.points) == 20
    for point in found.points[::7]:
        alone = plan(photos, Machine(cores=point.cores, storage_rate=point.storage_rate), step=point.step)
        assert (point.rate, point.shares) == (alone.predicted.rate, alone.predicted.shares)
        assert point.busy == pytest.approx(min(1, alone.predicted.rate * point.step / 32))


def test_the_best_is_the_cheapest_that_keeps_the_accelerator_busy(photos):
    found = what_if(photos, GRID, PRICES)

    assert [point.step for point in found.best] == [0.05, 0.2]
    for best in found.best:
        same_step = [point for point in found.points if point.step == best.step]
        busy = [point for point in same_step if point.busy >= 0.95]
        assert best in busy
        assert best.dollars_per_hour == min(point.dollars_per_hour for point in busy)
    fast, slow = found.best
    assert slow.cores < fast.cores


def test_where_nothing_keeps_it_busy_most_images_for_the_money_win(photos):
    found = what_if(photos, Grid(cores=(1, 2), storage_rates=(1e7,), steps=(0.01,)), PRICES)

    assert found.best[0].busy < 0.95
    assert found.best[0].images_per_dollar == max(point.images_per_dollar for point in found.points)
    assert found.best[0].cores == 1  # storage binds: another core brings nothing


def test_prices_add_up(photos):
    point = what_if(photos, Grid(cores=(4,), storage_rates=(1e9,), steps=(0.2,)), PRICES).points[0]
    stored = plan(photos, Machine(cores=4, storage_rate=1e9), step=0.2).predicted.stored_bytes

    assert point.dollars_per_hour == pytest.approx(4 * 0.05 + 2.0 + 0.1 * stored / 1e9 / 730)
    assert point.images_per_dollar == pytest.approx(point.rate * 3600 / point.dollars_per_hour)


def test_it_comes_back_from_json_also_when_nothing_costs_anything(photos):
    for prices in (PRICES, None):
        found = what_if(photos, Grid(cores=(1, 2), storage_rates=(1e9,), steps=(0.1,)), prices)
        document = json.loads(json.dumps(found.to_json(), allow_nan=False))
        assert WhatIf.from_json(document) == found
        assert document["best"] == [point.to_json() for point in found.best]


def test_grids_are_written_as_ranges_or_lists():
    grid = parse_grid("cores=2..64 storage=0.2..8GB/s step-ms=5,35,200")

    assert grid.cores == (2, 4, 8, 16, 32, 64)
    assert grid.storage_rates[0] == pytest.approx(0.2e9)
    assert grid.storage_rates[-1] == pytest.approx(8e9)
    assert grid.steps == (0.005, 0.035, 0.2)
    assert parse_prices("vcpu-hour=0.04, gb-month=0.1") == Prices(vcpu_hour=0.04, gb_month=0.1)
    listed = parse_grid("cores=0.5,1.5,1.5 storage=0.2,1,8GB/s step-ms=7..7")
    assert (listed.cores, listed.storage_rates, listed.steps) == ((0.5, 1.5), (0.2e9, 1e9, 8e9), (0.007,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cores=2", "lacks storage"),
        ("cores= storage=1GB/s step-ms=5", "lacks cores"),
        ("cores=2 cores=3 storage=1GB/s step-ms=5", "has cores twice"),
        ("cores=1..2..3 storage=1GB/s step-ms=5", r"a range must .* got '1\.\.2\.\.3'"),
        ("cores=1..2,3 storage=1GB/s step-ms=5", "a range must"),
        ("cores=2, storage=1GB/s step-ms=5", "a list must"),
        ("cores=8..2 storage=1GB/s step-ms=5", "ends before it begins"),
        ("cores=2 storage=fast step-ms=5", "a rate must .* got 'fast'"),
        ("cores=x storage=1GB/s step-ms=5", "'x' is no number"),
        ("cores=2 storage=1GB/s step-ms=0", "'0' is not positive"),
        ("gpus=2", "'gpus=2' is no part"),
        ("cores=2.. storage=1GB/s step-ms=5", "a range must"),
    ],
)
def test_grids_that_are_none_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        parse_grid(text)


@pytest.mark.parametrize("text", ["gpu=3", "vcpu-hour=cheap", "gb-month=-1"])
def test_prices_that_are_none_are_named(text):
    with pytest.raises(ValueError, match=r"price|number"):
        parse_prices(text)


def test_a_grid_has_a_limit():
    with pytest.raises(ValueError, match="at most 2000 points"):
        Grid(cores=tuple(range(1, 101)), storage_rates=tuple(range(1, 31)), steps=(1.0,))
