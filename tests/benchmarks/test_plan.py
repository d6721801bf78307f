# SPDX-License-Identifier: Apache-2.0
"""The plan's benchmark: its environments, arithmetic and tables, and a short run."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from benchmarks._plan import mix, report
from benchmarks._plan.environments import balanced_rate, environments, is_mix, storage_rates
from benchmarks._plan.measure import Rate
from benchmarks.trainer import Trainer
from tests.planning.pictures import make_folder

from headrace.planning import Calibration, Cost, Machine, solve


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
    best = solve(costs, Machine(storage_rate=rate, cores=1))

    assert is_mix(best)
    for factor in (0.7, 0.9, 1.2, 1.5):
        assert solve(costs, Machine(storage_rate=rate * factor, cores=1)).gain - 1 <= (best.gain - 1) / 0.88


def test_rates_stay_below_that_of_the_disk(costs):
    rates = storage_rates(costs, 800e6)

    assert rates["storage-bound"] < rates["balanced"] < rates["CPU-bound"] <= 800e6


def test_every_regime_has_every_trainer(costs):
    found = list(environments(costs, storage_rates(costs, 5e9), [1, 2]))

    assert len({place.name for place in found}) == len(found) == 3 * 2 * 2
    matched = [place for place in found if place.trainer == "matched"]
    for place in matched:
        alone = solve(costs, place.machine).predicted.rate
        assert costs.batch_size / place.step_seconds == pytest.approx(alone)


def a_row(trainer, shares, **rates):
    rates = [{"format": name.replace("_", ":"), "predicted": p, "measured": m} for name, (p, m) in rates.items()]
    place = {"regime": "balanced", "cores": 1, "trainer": trainer}
    return {**place, "shares": shares, "is_mix": len(shares) > 1, "rates": rates}


ROWS = [
    a_row("none", {"hri:fast": 0.5, "raw": 0.5}, png=(10, 10), hri_fast=(30, 31), raw=(30, 25), mix=(45, 40)),
    a_row("matched", {"hri:fast": 1.0}, png=(10, 10), hri_fast=(20, 20), raw=(20, 20), mix=(20, 19.8)),
]


def test_the_summary_compares_mixes_and_predictions():
    found = mix.summarise(ROWS, "png")

    assert found["mix_to_best_single_min"] == pytest.approx(0.99)
    assert found["mix_to_best_single_max"] == pytest.approx(40 / 31)
    assert found["mix_to_best_single_shares"] == {"hri:fast": 0.5, "raw": 0.5}
    assert found["within_10_percent"] == 6 / 8
    assert found["largest_error"] == pytest.approx(0.2)
    assert found["loading_gain"] == pytest.approx([4, 4])
    assert found["training_gain"] == pytest.approx([(4 * 1.98) ** 0.5] * 2)


def test_tables_hold_the_figures():
    part = {
        "source_format": "png",
        "images": 7,
        "storage_rates": {"balanced": 1e8},
        "batch_size": 16,
        "environments": ROWS,
        "summary": mix.summarise(ROWS, "png"),
    }
    text = "\n".join(table.markdown() for table in report.tables({"mix": [part], "adaptive": [], "records": None}))

    assert "| balanced, 1 core, none | 10.0 (10.0) | 31.0 (30.0) | 25.0 (30.0) | 40.0 (45.0) | 1.29x | 4.00x |" in text
    assert "| best mix / best single format | 1.29x (50% hri:fast + 50% raw) |" in text


def test_the_fastest_third_of_the_repeats_counts():
    assert Rate([80, 102, 98, 90]).value == 100
    assert Rate([90] * 8 + [98, 102, 100, 100]).value == 100


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


def test_the_mean_of_calibrations_counts(costs):
    dearer = replace(costs, costs=tuple(replace(cost, cpu_seconds=3 * cost.cpu_seconds) for cost in costs.costs))
    crowded = replace(costs, costs=tuple(replace(cost, cpu_seconds_crowded=1.0) for cost in costs.costs))
    assert mix.average([dearer, costs]).cost("raw").cpu_seconds == pytest.approx(2 * costs.cost("raw").cpu_seconds)
    assert mix.average([costs, crowded]).cost("raw").cpu_seconds_crowded == 1.0


@pytest.mark.slow
def test_a_short_run_measures_every_environment(root, tmp_path):
    folder = make_folder(tmp_path / "jpegs", 30, suffix=".jpg", edge=256)
    command = [sys.executable, str(root / "benchmarks" / "plan.py"), str(folder), "--quick"]
    command += ["--store", str(tmp_path / "stores"), "-o", str(tmp_path / "plan.json"), "--cores", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)

    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "plan.json").read_text())
    assert document["command"] == "python benchmarks/plan.py jpegs --quick"
    assert len(document["mix"][0]["environments"]) == 6
    assert document["adaptive"][0]["ratio"] > 0
    assert document["records"]["gain"] > 0


def test_one_disk_rate_per_folder(root, tmp_path):
    command = [sys.executable, str(root / "benchmarks" / "plan.py"), str(tmp_path), "--disk-rate", "1000,900"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 1
    assert "--disk-rate must have one rate per folder; got 2 for 1 folders" in " ".join(done.stderr.split())
