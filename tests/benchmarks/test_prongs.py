# SPDX-License-Identifier: Apache-2.0
"""The benchmark of two prongs leaves out what was disturbed, and writes down what it found beside models and bars."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks._prongs.figures import completed, counted_rate
from benchmarks._prongs.floors import Floors
from benchmarks._prongs.meter import Meter, Totals

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "prongs.py"


def turn(**changes: float) -> Totals:
    """One second, in which the host made eight batches and took two of the near worker's over."""
    usual = Totals(1.0, 10, 160, host_cpu=0.84, near_cpu=0.25, near_batches=2, near_made=2, core_busy=0.86)
    return replace(usual, **changes)


@pytest.fixture
def floors() -> Floors:
    """The host needs 0.1 s of CPU time for a batch, and 0.02 s to take one over; the near worker 0.12 s."""
    floors = Floors()
    for cpu in (1.6, 1.0):
        floors.host_alone(Totals(1.0, 10, 160, host_cpu=cpu, core_busy=cpu))
    floors.near_alone(Totals(1.0, 2, 32, host_cpu=0.04, near_cpu=0.24, near_batches=2, near_made=2))
    return floors


def test_a_turn_counts_that_took_as_little_cpu_time_as_its_batches_do_at_best(floors):
    assert floors.counts(turn(), "none")
    assert not floors.counts(turn(host_cpu=0.99, core_busy=1.0), "none"), "the host's core had a neighbour"
    assert not floors.counts(turn(near_cpu=0.32), "none"), "the near worker's had one"
    assert not floors.counts(turn(core_busy=1.0), "none"), "another program was at work"


def test_what_does_not_decide_is_not_asked_for(floors):
    assert floors.counts(turn(host_cpu=0.4, core_busy=0.42, batches=3), "none"), "the host's core had time to spare"
    assert floors.counts(turn(near_cpu=0.9), "slow"), "the trainer sets the pace"


def test_a_core_that_rests_between_batches_is_held_against_others_that_do(floors):
    slow = turn(host_cpu=0.99, core_busy=1.0)
    floors.beside_trainer("slow", slow)

    assert floors.counts(slow, "slow")
    assert not floors.counts(slow, "none")


def test_nothing_counts_while_nothing_is_known():
    assert not Floors().counts(turn(host_cpu=5.0, core_busy=5.0, near_batches=0), "none")


class FakeLoader:
    """Has made and delivered what it is told."""

    def __init__(self) -> None:
        self.taken = self.made = 0

    def stats(self):
        return {"prongs": {"near": {"cpu_seconds": 0.0, "batches": self.made}, "near_batches": self.taken, "plans": []}}


def test_a_meter_tells_what_happened_between_two_moments(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(time, "process_time", lambda: clock[0])
    monkeypatch.setattr("benchmarks._prongs.meter.busy_seconds", lambda _core: 1.5 * clock[0])
    loader = FakeLoader()
    meter = Meter(loader, core=0)
    meter.batch(16)
    meter.cut()
    for _ in range(2):
        clock[0] += 0.6
        loader.made += 3
        loader.taken += 2
        meter.batch(16)
    found = meter.cut()

    assert (found.batches, found.samples, found.near_made, found.near_batches) == (2, 32, 6, 4)
    assert found.seconds == pytest.approx(1.2)
    assert found.others == pytest.approx(0.5)


def test_what_lay_ready_before_the_clock_ran_is_not_counted():
    row = {"step": 0.0, "batches": 100, "samples": 1600, "seconds": 10.0, "near_batches": 30, "near_made": 20}

    assert counted_rate(row) == pytest.approx(144)
    assert counted_rate({**row, "near_made": 40}) == pytest.approx(160), "what was not taken brings nothing"
    assert counted_rate({**row, "step": 0.1}) == pytest.approx(160), "the trainer sets the pace"


def test_model_and_simulator_stand_beside_a_measurement():
    row = {
        "source": "png", "strategy": "wrr", "trainer": "none", "step": 0.0, "batches": 125, "samples": 1250,
        "seconds": 100.0, "near_batches": 25, "near_made": 25, "host_cpu": 100.0, "near_cpu": 25.0, "epoch_batches": 99,
        "host_seconds_a_batch": 1.0, "near_seconds_a_batch": 4.0, "take": 0.0, "fetch": 0.0, "prefetch": 4,
        "buffer_bytes": 1.0, "host_rate": 10.0, "near_rate": 2.5,
    }  # fmt: skip
    done = completed(row, None)

    assert done["modelled"] == pytest.approx(0.8)
    assert done["model_error"] == pytest.approx(0.0, abs=1e-6)
    assert done["simulation_error"] == pytest.approx(0.0, abs=0.02)


@pytest.mark.slow
def test_it_measures_each_strategy_beside_its_model(tmp_path):
    output = tmp_path / "prongs.json"
    options = ["--sources", "cifar", "--shares", "0.5", "--ratios", "", "--trainers", "none,slow", "--seconds", "0.3",
               "--epoch", "0.5", "-o", str(output)]  # fmt: skip
    done = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(output.read_text())
    rows = {(row["trainer"], row["strategy"]): row for row in document["rows"]}
    assert {"CPU only", "mte", "wrr", "paced"} <= {strategy for _, strategy in rows}
    assert ("slow", "paced, sparing") in rows
    assert all(row["rate"] > 0 and row["modelled"] > 0 and row["simulated"] > 0 for row in rows.values())
    assert all(row["quiet_seconds"] <= row["all_seconds"] for row in rows.values())
    assert rows["none", "paced"]["near_rate"] > 0
    assert document["watts"]["near"] > 0
    assert "claim" in done.stdout
