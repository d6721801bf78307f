# SPDX-License-Identifier: Apache-2.0
"""Plans: the best mix, found by a linear program, and never worse than one format."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planning.conftest import make_cost

from headrace import errors
from headrace.planning import Calibration, Machine, Plan, Prediction, predict, solve
from headrace.planning._search import MIN_GAIN
from headrace.records.plan import load_plan, parse_mixes

numbers = st.floats(0.01, 100)


def shares_of(found: Plan) -> dict[str, float]:
    return {each.format: each.share for each in found.shares}


def test_two_formats_meet_where_storage_and_cores_are_equally_busy():
    """The closed form for two formats on 8 cores and 1 GB/s: p is small and slow to decode, q large and free."""
    p, q = make_cost("png", 2.27, 60.0), make_cost("hri:fast", 3.6, 0.0)
    calibration = Calibration(costs=(p, q), images=1, sampled=1, batch_size=1)
    found = solve(calibration, Machine(storage_rate=1e9, cores=8))
    x = (0.060 / 8 - 2.27e-3) / (0.060 / 8 + (3.6 - 2.27) * 1e-3)

    assert shares_of(found)["hri:fast"] == pytest.approx(x, abs=1e-4)
    assert found.predicted.rate == pytest.approx(8 / ((1 - x) * 0.060), rel=1e-3)
    assert found.predicted.bottlenecks == ("storage", "cores")
    assert found.best_single.shares == {"hri:fast": 1.0}
    assert found.gain == pytest.approx(327 / 278, rel=0.01)


def test_slow_storage_takes_the_smallest_format_and_few_cores_the_fastest_to_decode(photos):
    assert shares_of(solve(photos, Machine(storage_rate=10e6, cores=64))) == {"hri:dense": 1.0}
    assert shares_of(solve(photos, Machine(storage_rate=1e12, cores=1))) == {"raw": 1.0}


def test_a_slow_trainer_gets_the_smallest_format_that_is_fast_enough_with_the_margin(photos):
    machine = Machine(storage_rate=1e9, cores=4)

    assert shares_of(solve(photos, machine, step=1.0)) == {"hri:dense": 1.0}  # 32 images per second
    # PNG gives 100 images per second, which is within the margin of the trainer's 95.
    only = solve(photos, machine, step=32 / 95, formats=["png", "hri:fast"])
    assert shares_of(only) == {"hri:fast": 1.0}
    assert only.predicted.bottlenecks == ("trainer",)


def test_shares_too_small_to_matter_are_dropped():
    """One per cent of raw would balance it exactly."""
    p, q = make_cost("hri:dense", 1.0, 10.0), make_cost("raw", 2.0, 0.0)
    balanced = 1.0e6 * 1.0201 / (0.010 * 0.99)
    found = solve(Calibration(costs=(p, q), images=1, sampled=1, batch_size=1), Machine(storage_rate=balanced, cores=1))

    assert shares_of(found) == {"hri:dense": 1.0}


def test_a_disk_budget_is_kept(photos):
    machine = Machine(storage_rate=5e9, cores=2)
    free = solve(photos, machine)
    tight = solve(photos, machine, disk_budget=30e9)

    assert free.predicted.stored_bytes > 30e9
    assert tight.predicted.stored_bytes <= 30e9
    assert tight.predicted.rate < free.predicted.rate
    assert tight.predicted.rate >= tight.best_single.rate
    assert tight.best_single.stored_bytes <= 30e9


def test_a_larger_dataset_must_be_worth_its_size():
    """Each doubling of the size must make the run 10 % faster, unless there is a disk budget."""
    machine = Machine(storage_rate=1e12, cores=1)

    def chosen(rate: float, times: float, **options: float) -> str:
        costs = (make_cost("jpeg", 1.0, 10.0), make_cost("raw", times, 10.0 / rate))
        calibration = Calibration(costs=costs, images=100, sampled=1, batch_size=1)
        return next(iter(shares_of(solve(calibration, machine, **options))))

    assert chosen(1.03, 5.0) == "jpeg"
    assert chosen(1.03, 5.0, disk_budget=500e6) == "raw"
    assert chosen(1.09, 2.0) == "jpeg"
    assert chosen(1.11, 2.0) == "raw"
    assert chosen(1.20, 5.0) == "jpeg"
    assert chosen(1.30, 5.0) == "raw"


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_format_alone_that_is_worth_its_size_is_passed_over(data):
    """Against every format alone, by its own prediction with the margin that a plan keeps."""
    costs = data.draw(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=4))
    named = [make_cost(f"f{k}", megabytes, ms) for k, (megabytes, ms) in enumerate(costs)]
    calibration = Calibration(costs=tuple(named), images=10, sampled=1, batch_size=4)
    found = solve(calibration, Machine(storage_rate=data.draw(numbers) * 1e9, cores=2))

    def merit(prediction: Prediction) -> float:
        return prediction.rate / prediction.stored_bytes ** math.log2(1.1)

    assert merit(found.predicted) >= max(map(merit, found.singles)) * 0.97


def test_a_disk_budget_that_is_too_small_is_an_error_with_the_size_needed(photos):
    with pytest.raises(errors.InfeasiblePlan, match=r"at least 20\.0 GB for 10,000 images; got 10\.0 GB"):
        solve(photos, Machine(cores=1), disk_budget=10e9)
    with pytest.raises(errors.InfeasiblePlan, match=r"at least 42\.0 GB for 10,000 images in two renditions"):
        solve(photos, Machine(cores=1), disk_budget=40e9, renditions=2)


def test_a_lossy_source_keeps_its_files_beside_lossless_renditions(jpegs):
    """`jpeg` is a candidate only because the source is JPEG; a lossy format of another source never is."""
    machine = Machine(storage_rate=100e6, cores=1)
    found = solve(jpegs, machine)

    assert set(shares_of(found)) == {"jpeg", "hri:dense"}
    of_pngs = dataclasses.replace(jpegs, source_format="png")
    assert "jpeg" not in shares_of(solve(of_pngs, machine))
    with pytest.raises(ValueError, match="at least one format must be lossless; got jpeg"):
        solve(of_pngs, machine, formats=["jpeg"])


def test_two_renditions_are_both_stored_and_stay_fast_when_the_machine_changes(photos):
    machine = Machine(storage_rate=800e6, cores=2)
    one, two = solve(photos, machine), solve(photos, machine, renditions=2)

    assert len(two.shares) == two.renditions == 2
    assert two.predicted.rate >= 0.9 * one.predicted.rate
    slower = Machine(storage_rate=800e6 / 3, cores=2)
    then, best = solve(photos, slower, formats=list(shares_of(two))), solve(photos, slower)
    assert then.predicted.rate >= 0.95 * best.predicted.rate
    sizes = {cost.format: cost.stored_bytes for cost in photos.costs}
    assert two.predicted.stored_bytes == pytest.approx(10_000 * sum(sizes[name] for name in shares_of(two)))
    assert min(shares_of(two).values()) >= 0.02


def test_two_renditions_need_two_formats(photos):
    with pytest.raises(errors.InfeasiblePlan, match="needs at least 2 formats"):
        solve(photos, Machine(cores=1), renditions=2, formats=["raw"])
    with pytest.raises(ValueError, match="renditions must be 1 or 2; got 3"):
        solve(photos, Machine(cores=1), renditions=3)


def test_build_and_loader_can_read_a_plan(photos, tmp_path):
    found = solve(photos, Machine(storage_rate=700e6, cores=2), step=0.05, disk_budget=50e9)
    found.save(tmp_path / "plan.json")

    assert Plan.from_json(tmp_path / "plan.json") == found
    mixes = parse_mixes(load_plan(tmp_path / "plan.json"))
    assert mixes["image"].formats == tuple(shares_of(found))
    assert json.loads((tmp_path / "plan.json").read_text())["predicted"]["rate"] == found.predicted.rate


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "must have version 1; got version 2"),
        ({"fields": {}}, "one field; got 0"),
        ({"step": "fast"}, r"plan\.step must be .* got 'fast'"),
        ({"calibration": {"version": 1}}, "calibration must have a member 'costs'"),
    ],
)
def test_an_invalid_plan_is_rejected(photos, change, message):
    document = solve(photos, Machine(cores=1)).to_json() | change
    with pytest.raises(ValueError, match=message):
        Plan.from_json(document)


def test_a_plan_of_an_earlier_version_can_be_read(photos):
    """Earlier versions wrote members for a device, which are ignored."""
    found = solve(photos, Machine(storage_rate=700e6, cores=2))
    document = json.loads(json.dumps(found.to_json()))
    document["machine"] |= {"link_rate": None, "device_headroom": 1.0, "efficiency": 1.0}
    document["predicted"]["binds"] = document["predicted"].pop("bottlenecks")
    for cost in document["calibration"]["costs"]:
        cost |= {"place": "cpu", "link_bytes": 0.0, "device_seconds": 0.0}

    assert Plan.from_json(document).shares == found.shares


def test_without_scipy_the_extra_is_named(photos, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(errors.MissingExtra, match=r"headrace\[plan\]"):
        solve(photos, Machine(cores=1))


random_costs = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=5)


@settings(max_examples=25, deadline=None)
@given(random_costs, numbers, st.sampled_from([1, 2, 8]), st.sampled_from([0.0, 0.01, 0.2]))
def test_no_single_format_and_no_pair_is_better(costs, gigabytes, cores, step):
    """With unlimited disk: a pair on a fine grid gains less than MIN_GAIN, and one format alone gains nothing."""
    named = [make_cost(f"f{k}", megabytes, ms) for k, (megabytes, ms) in enumerate(costs)]
    calibration = Calibration(costs=tuple(named), images=10, sampled=1, batch_size=4)
    machine = Machine(storage_rate=gigabytes * 1e9, cores=cores)
    found = solve(calibration, machine, step=step, disk_budget=1e15)
    rates = [
        predict(calibration, machine, {a.format: x / 20, b.format: 1 - x / 20}, step=step).rate
        for a, b in itertools.combinations(named, 2)
        for x in range(21)
    ]

    assert sum(shares_of(found).values()) == pytest.approx(1, abs=1e-9)
    assert min(shares_of(found).values()) >= 0.0199
    assert found.predicted.rate >= found.best_single.rate * (1 - 1e-9)
    assert found.predicted.rate >= (1 - MIN_GAIN) * max(rates, default=0) * (1 - 1e-3)  # shares are rounded
