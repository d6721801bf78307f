# SPDX-License-Identifier: Apache-2.0
"""Sizing: the same costs on other machines, with offload workers and prices."""

from __future__ import annotations

import json

import pytest

from headrace.planning import Machine, MachineGrid, Prices, Sizing, parse_prices, parse_values, size_machines, solve
from headrace.units import parse_rate

GRID = MachineGrid(cores=(1, 2, 4, 8, 16), storage_rates=(2e8, 2e9), steps=(0.05, 0.2))
PRICES = Prices(vcpu_hour=0.05, accelerator_hour=2.0, gb_month=0.1)


def test_every_point_is_the_plan_for_its_machine(photos):
    found = size_machines(photos, GRID, PRICES)

    assert len(found.points) == 20
    for point in found.points[::7]:
        alone = solve(photos, Machine(cores=point.cores, storage_rate=point.storage_rate), step=point.step)
        assert (point.rate, point.shares) == (alone.predicted.rate, alone.predicted.shares)
        assert point.busy == pytest.approx(min(1, alone.predicted.rate * point.step / 32))


def test_the_best_is_the_cheapest_that_keeps_the_accelerator_busy(photos):
    found = size_machines(photos, GRID, PRICES)

    assert [point.step for point in found.best] == [0.05, 0.2]
    for best in found.best:
        same_step = [point for point in found.points if point.step == best.step]
        busy = [point for point in same_step if point.busy >= 0.95]
        assert best in busy
        assert best.dollars_per_hour == min(point.dollars_per_hour for point in busy)
    fast, slow = found.best
    assert slow.cores < fast.cores


def test_if_no_machine_keeps_it_busy_the_most_images_for_the_money_win(photos):
    found = size_machines(photos, MachineGrid(cores=(1, 2), storage_rates=(1e7,), steps=(0.01,)), PRICES)

    assert found.best[0].busy < 0.95
    assert found.best[0].images_per_dollar == max(point.images_per_dollar for point in found.points)
    assert found.best[0].cores == 1  # storage is the bottleneck: another core gains nothing


def test_prices_add_up(photos):
    point = size_machines(photos, MachineGrid(cores=(4,), storage_rates=(1e9,), steps=(0.2,)), PRICES).points[0]
    stored = solve(photos, Machine(cores=4, storage_rate=1e9), step=0.2).predicted.stored_bytes

    assert point.dollars_per_hour == pytest.approx(4 * 0.05 + 2.0 + 0.1 * stored / 1e9 / 730)
    assert point.images_per_dollar == pytest.approx(point.rate * 3600 / point.dollars_per_hour)


def test_a_sizing_survives_json_with_and_without_prices(photos):
    for prices in (PRICES, None):
        found = size_machines(photos, MachineGrid(cores=(1, 2), storage_rates=(1e9,), steps=(0.1,)), prices)
        document = json.loads(json.dumps(found.to_json(), allow_nan=False))
        assert Sizing.from_json(document) == found
        assert [point["step"] for point in document["best"]] == [point.step for point in found.best]


def test_values_are_written_as_ranges_or_lists():
    assert parse_values("2..64", integers=True) == (2, 4, 8, 16, 32, 64)
    rates = parse_values("0.2..8GB/s", parse_rate)
    assert (rates[0], rates[-1]) == (pytest.approx(0.2e9), pytest.approx(8e9))
    assert parse_values("0.2,1,8GB/s", parse_rate) == (0.2e9, 1e9, 8e9)
    assert parse_values("0.5,1.5,1.5") == (0.5, 1.5)
    assert parse_values("7..7") == (7,)
    assert parse_prices("vcpu-hour=0.04, gb-month=0.1") == Prices(vcpu_hour=0.04, gb_month=0.1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1..2..3", r"a range must .* got '1\.\.2\.\.3'"),
        ("1..2,3", "a range must"),
        ("2..", "a range must"),
        ("2,", "a list must"),
        ("8..2", "0 < start <= end"),
        ("0..2", "0 < start <= end"),
        ("x", "expected a number; got 'x'"),
    ],
)
def test_wrong_values_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        parse_values(text)


def test_offload_workers_add_their_rate_until_the_trainer_is_the_bottleneck(photos):
    grid = MachineGrid(cores=(1,), storage_rates=(1e10,), steps=(0.02,), offload_workers=(0, 1, 2, 400))
    alone, one, two, many = size_machines(photos, grid, PRICES, offload_seconds=32 / 5).points

    assert alone.rate == solve(photos, Machine(cores=1, storage_rate=1e10), step=0.02).predicted.rate
    assert one.rate == pytest.approx(alone.rate + 5)
    assert two.rate == pytest.approx(alone.rate + 10)
    assert (many.bottlenecks, many.keeps_busy) == (("trainer",), True)
    assert many.rate == pytest.approx(32 / 0.02, rel=0.02)


def test_an_offload_worker_is_one_core_unless_its_time_is_given(photos):
    grid = MachineGrid(cores=(1,), storage_rates=(1e12,), steps=(0.001,), offload_workers=(0, 1))
    alone, helped = size_machines(photos, grid).points

    assert helped.rate == pytest.approx(2 * alone.rate, rel=0.01)
    with pytest.raises(ValueError, match="offload_seconds must be > 0"):
        size_machines(photos, grid, offload_seconds=0)


def test_workers_have_a_price(photos):
    grid = MachineGrid(cores=(4,), storage_rates=(1e9,), steps=(0.2,), offload_workers=(0, 3))
    alone, helped = size_machines(photos, grid, Prices(offload_hour=0.25)).points

    assert helped.dollars_per_hour - alone.dollars_per_hour == pytest.approx(0.75)


@pytest.mark.parametrize("text", ["gpu=3", "vcpu-hour=cheap", "gb-month=-1"])
def test_invalid_prices_are_named(text):
    with pytest.raises(ValueError, match=r"price|number"):
        parse_prices(text)


def test_a_grid_has_a_limit():
    with pytest.raises(ValueError, match="at most 2000 machines"):
        MachineGrid(cores=tuple(range(1, 101)), storage_rates=tuple(range(1, 31)), steps=(1.0,))
