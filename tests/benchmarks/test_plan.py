# SPDX-License-Identifier: Apache-2.0
"""The plan's benchmark: its environments, its datasets, its arithmetic and tables, and a whole run on few images."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from benchmarks._plan import mix, report
from benchmarks._plan.cells import Cell, Turn
from benchmarks._plan.environments import balanced_rate, environments, is_mix, storage_rates
from benchmarks._plan.stores import Stores
from benchmarks._plan.training import some_mix
from benchmarks.trainer import Trainer
from tests.planning.pictures import make_folder

import headrace
from headrace.planning import Calibration, Cost, Machine, plan


@pytest.fixture(scope="module")
def costs():
    return Calibration(
        costs=(
            Cost(format="png", read_bytes=2e6, cpu_seconds=0.040, stored_bytes=2e6),
            Cost(format="hri:fast", read_bytes=2.4e6, cpu_seconds=0.010, stored_bytes=2.4e6),
            Cost(format="raw", read_bytes=6e6, cpu_seconds=0.004, stored_bytes=6e6),
        ),
        images=100,
        sampled=10,
        batch_size=16,
        source_format="png",
    )


def test_balanced_is_where_a_mix_gains_about_as_much_as_it_can(costs):
    rate = balanced_rate(costs, 1, 5e9)
    best = plan(costs, Machine(storage_rate=rate, cores=1))

    assert is_mix(best)
    for factor in (0.7, 0.9, 1.2, 1.5):
        assert plan(costs, Machine(storage_rate=rate * factor, cores=1)).gain - 1 <= (best.gain - 1) / 0.88


def test_rates_stay_below_the_disks(costs):
    rates = storage_rates(costs, 800e6)

    assert rates["storage-bound"] < rates["balanced"] < rates["CPU-bound"] <= 800e6


def test_every_regime_meets_every_trainer(costs):
    found = list(environments(costs, storage_rates(costs, 5e9), [1, 2]))

    assert len({place.name for place in found}) == len(found) == 3 * 2 * 3
    matched = [place for place in found if place.trainer == "matched"]
    for place in matched:
        alone = plan(costs, place.machine).predicted.rate
        assert costs.batch_size / place.step == pytest.approx(alone)


def a_row(trainer, shares, what_if, **rates):
    cells = [{"format": name.replace("_", ":"), "predicted": p, "measured": m} for name, (p, m) in rates.items()]
    place = {"regime": "balanced", "storage_rate": 1e8, "cores": 1, "step": 0.0, "binds": ["cores"]}
    return {
        **place,
        "what_if": what_if,
        "trainer": trainer,
        "shares": shares,
        "is_mix": len(shares) > 1,
        "cells": cells,
    }


ROWS = [
    a_row("none", {"hri:fast": 0.5, "raw": 0.5}, 45, png=(10, 10), hri_fast=(30, 31), raw=(30, 25), mix=(45, 40)),
    a_row("slow", {"hri:fast": 1.0}, 20, png=(10, 10), hri_fast=(20, 20), raw=(20, 20), mix=(20, 19.8)),
]


def test_cells_come_to_what_they_should():
    found = mix.summarise(ROWS, "png")

    assert found["mix_to_best_single_least"] == pytest.approx(0.99)
    assert found["mix_to_best_single_most"] == pytest.approx(40 / 31)
    assert found["mix_to_best_single_shares"] == {"hri:fast": 0.5, "raw": 0.5}
    assert found["within_10_percent"] == 6 / 8
    assert found["largest_error"] == pytest.approx(0.2)
    assert found["what_if_within_10_percent"] == 0.5
    assert found["what_if_largest_error"] == pytest.approx(0.125)
    assert found["preparation_gain_most"] == found["preparation_gain_least"] == pytest.approx(4)
    assert found["training_gain_most"] == pytest.approx((4 * 1.98) ** 0.5)


def test_tables_hold_the_figures():
    part = {
        "source_format": "png",
        "images": 7,
        "storage_rates": {"balanced": 1e8},
        "direct": True,
        "batch_size": 16,
        "rounds": 2,
        "unsettled_cells": 0,
        "environments": ROWS,
        "summary": mix.summarise(ROWS, "png"),
    }
    document = {"mix": [part], "adaptive": [], "records": None, "training": []}
    text = "\n".join(table.markdown() for table in report.tables(document))

    assert "| balanced, 1c, none | 10.0 (10.0) | 31.0 (30.0) | 25.0 (30.0) | 40.0 (45.0) | 1.29x | 4.00x |" in text
    assert "50% hri:fast + 50% raw" in text


def test_runs_of_a_source_each_are_shown_as_one():
    def run(**parts):
        return {"mix": [], "adaptive": [], "records": None, "training": [], **parts}

    found = report.joined([run(mix=["a"]), run(mix=["b"], adaptive=["c"], records={"gain": 2})])
    assert (found["mix"], found["adaptive"], found["training"]) == (["a", "b"], ["c"], [])
    assert found["records"] == {"gain": 2}


def a_cell(*rates, others=0.0):
    """A cell of turns with these rates."""
    return Cell(tuple(Turn(rate, 1.0, 0.01 * rate, others) for rate in rates))


def test_a_cell_is_settled_when_its_fastest_turns_agree():
    assert not a_cell(100, 100, 100).settled, "a neighbour may have been there all the time"
    assert a_cell(80, 90, 100, 101, 99, 85).settled, "neighbours only slow"
    assert not a_cell(80, 90, 100, 104, 96, 85).settled
    assert not (a_cell(100) + a_cell(*[100] * 5, others=0.4)).settled, "one had its cores for itself"


def test_the_fastest_third_of_the_turns_counts():
    assert a_cell(80, 102, 100, 98).rate == 100
    assert a_cell(*[90] * 8, 98, 102, 100, 100).rate == 100


def test_turns_that_had_no_cores_do_not_count():
    assert (a_cell(100) + a_cell(170, others=0.4)).rate == 100
    assert a_cell(70, others=0.4).rate == 70, "unless there are no others"


def test_a_trainer_works_on_one_batch_while_the_next_is_fetched(monkeypatch):
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    trainer = Trainer(1.0)
    for number in range(3):
        trainer.take(None)
        assert now[0] == pytest.approx(number)


def test_of_calibrations_the_mean_counts(costs):
    dearer = replace(costs, costs=tuple(replace(cost, cpu_seconds=3 * cost.cpu_seconds) for cost in costs.costs))
    crowded = replace(costs, costs=tuple(replace(cost, cpu_seconds_crowded=1.0) for cost in costs.costs))
    assert mix.average([dearer, costs]).cost("raw").cpu_seconds == pytest.approx(2 * costs.cost("raw").cpu_seconds)
    assert mix.average([costs, crowded]).cost("raw").cpu_seconds_crowded == 1.0


def test_a_mix_is_what_the_builder_makes_of_its_plan(costs, tmp_path):
    folder = make_folder(tmp_path / "photos", 16, edge=40)
    stores = Stores(tmp_path / "stores", folder, 1000, print)
    found = some_mix(costs)
    quick = stores.mixed(found)
    headrace.build(folder, tmp_path / "slow.hr", plan=found.to_json())

    assert stores.images == 16
    assert len(headrace.open(quick).formats["image"]) == 2
    shards = [sorted((path / "shards").iterdir()) for path in (quick, tmp_path / "slow.hr")]
    assert [shard.read_bytes() for shard in shards[0]] == [shard.read_bytes() for shard in shards[1]]
    stores.drop_mixes()
    assert not quick.exists()


@pytest.mark.slow
def test_the_whole_benchmark_runs(root, tmp_path):
    folder = make_folder(tmp_path / "jpegs", 30, suffix=".jpg", edge=256)
    command = [sys.executable, str(root / "benchmarks" / "plan.py"), str(folder), "--quick"]
    command += ["--store", str(tmp_path / "stores"), "-o", str(tmp_path / "plan.json"), "--cores", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)

    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "plan.json").read_text())
    assert len(document["mix"][0]["environments"]) == 9
    assert all(document["training"][0]["same"].values())
    assert document["records"]["gain"] > 0


def test_a_part_that_there_is_not_is_named(root, tmp_path):
    command = [sys.executable, str(root / "benchmarks" / "plan.py"), str(tmp_path), "--part", "luck"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 1
    assert "there is no part 'luck'" in done.stderr
