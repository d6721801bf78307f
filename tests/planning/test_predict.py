# SPDX-License-Identifier: Apache-2.0
"""The cost model: the busiest resource sets the rate."""

from __future__ import annotations

import math

import pytest

from headrace.planning import Calibration, Cost, Machine, Prediction, predict
from headrace.planning._model import READER, as_json


def test_the_busiest_resource_limits_a_format(photos):
    slow_disk = predict(photos, Machine(storage_rate=100e6, cores=8), "hri:fast")
    few_cores = predict(photos, Machine(storage_rate=10e9, cores=1), "hri:fast")

    assert slow_disk.rate == pytest.approx(100 / 2.6)
    assert slow_disk.bottlenecks == ("storage",)
    assert few_cores.rate == pytest.approx(250)
    assert few_cores.bottlenecks == ("cores",)


def test_a_mix_costs_the_mean_of_its_formats(photos):
    mixed = predict(photos, Machine(storage_rate=200e6, cores=2), {"png": 0.25, "raw": 0.75})

    assert mixed.seconds["storage"] == pytest.approx((0.25 * 2.2 + 0.75 * 6.3) / 200)
    assert mixed.seconds["cores"] == pytest.approx((0.25 * 0.040 + 0.75 * 0.001) / 2)
    assert mixed.stored_bytes == pytest.approx(10_000 * (0.25 * 2.2e6 + 0.75 * 6.3e6))
    assert mixed.build_seconds == pytest.approx(10_000 * (0.25 * 0.02 + 0.75 * 0.1) / 2)


def test_a_slow_trainer_limits_the_rate_and_not_the_preparation(photos):
    alone = predict(photos, Machine(cores=4), "hri:fast")
    trained = predict(photos, Machine(cores=4), "hri:fast", step=0.320)

    assert trained.preparation_rate == alone.rate == alone.preparation_rate
    assert trained.rate == pytest.approx(1 / (0.320 / 32 + 1e-5))
    assert trained.bottlenecks == ("trainer",)


def test_crowded_cores_cost_more():
    cost = Cost(format="raw", read_bytes=1, cpu_seconds=1.0, cpu_seconds_crowded=1.6, stored_bytes=1)

    assert [cost.cpu_at(cores, 4) for cores in (0.5, 1, 2, 4, 64)] == pytest.approx([1.0, 1.0, 1.2, 1.6, 1.6])
    crowded = Calibration(costs=(cost,), images=1, sampled=1, batch_size=1, cores=4)
    assert predict(crowded, Machine(cores=4), "raw").rate == pytest.approx(4 / 1.6)


def test_the_loader_does_not_get_the_trainers_cores(photos):
    four, one = Machine(cores=4, trainer_cores=3), Machine(cores=1)

    assert predict(photos, four, "png").rate == predict(photos, one, "png").rate
    assert predict(photos, Machine(cores=2, trainer_cores=5), "png").rate > 0


def test_what_costs_nothing_has_no_limit():
    free = Cost(format="raw", read_bytes=0, cpu_seconds=0, stored_bytes=0)
    found = predict(Calibration(costs=(free,), images=1, sampled=1, batch_size=1), Machine(cores=1), "raw")

    assert math.isinf(found.rate)
    assert found.bottlenecks == ()
    assert READER.read(Prediction, as_json(found), "prediction") == found


@pytest.mark.parametrize("shares", [{"png": 0.5}, {"png": 1.5, "raw": -0.5}, {}])
def test_invalid_shares_are_rejected(photos, shares):
    with pytest.raises(ValueError, match="add up to 1"):
        predict(photos, Machine(cores=1), shares)


def test_a_format_that_was_not_calibrated_is_named(photos):
    with pytest.raises(ValueError, match="webp was not calibrated; the calibrated formats are png, hri:dense"):
        predict(photos, Machine(cores=1), "webp")
