# SPDX-License-Identifier: Apache-2.0
"""The benchmark of two prongs leaves out what was disturbed, and writes down what it found beside models and bars."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks._prongs.figures import completed, counted_rate
from benchmarks._prongs.quiet import EVERY_SECONDS, Log, is_quiet
from benchmarks._prongs.slices import Slices

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "prongs.py"


def write_log(path: Path, begin: float, samples: list[float]) -> Path:
    path.write_bytes(b"".join(struct.pack("<dd", begin + at * EVERY_SECONDS, each) for at, each in enumerate(samples)))
    return path


def test_a_core_is_quiet_while_its_samples_are_as_fast_as_the_fastest(tmp_path):
    log = Log(write_log(tmp_path / "log", 100.0, [1.0] * 20 + [1.5] * 20))
    log.read_on()

    assert log.pace(100.0, 100.9) == 1.0
    assert log.pace(101.05, 101.9) == 1.5
    assert log.pace(99.0, 100.9) is None, "half of it was not sampled: processes were stopped"
    assert is_quiet([log.pace(100.0, 100.9)])
    assert not is_quiet([log.pace(100.0, 100.9), log.pace(101.05, 101.9)])
    assert not is_quiet([None])


class FakeLoader:
    """Has made and delivered what it is told."""

    def __init__(self) -> None:
        self.taken = self.made = 0

    def stats(self):
        return {"prongs": {"near": {"cpu_seconds": 0.0, "batches": self.made}, "near_batches": self.taken, "plans": []}}


@pytest.mark.parametrize(
    ("samples", "others", "counted"),
    [([1.0, 1.0], 0.0, 2), ([1.0, 1.4], 0.0, 1), ([1.4, 1.0], 0.0, 1), ([1.0, 1.0], 0.3, 0)],
)
def test_only_quiet_slices_count(tmp_path, monkeypatch, samples, others, counted):
    """Neither those in which a neighbour slowed the core, nor those in which it served another program."""
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "process_time", lambda: clock[0])
    monkeypatch.setattr("benchmarks._prongs.slices.busy_seconds", lambda _core: (1 + others) * clock[0])
    noise = [each for each in samples for _ in range(round(1 / EVERY_SECONDS))]
    log = write_log(tmp_path / "log", 99.0, [1.0] * round(1 / EVERY_SECONDS) + noise)
    loader = FakeLoader()
    slices = Slices(loader, [log], core=0, whole_epochs=False)
    for _ in range(2):
        clock[0] += 0.99
        loader.made += 3
        loader.taken += 2
        slices.batch(16, 0.0)

    assert slices.counted.batches == counted
    assert (slices.counted.near_made, slices.counted.near_batches) == (3 * counted, 2 * counted)
    assert slices.counted.seconds == pytest.approx(0.99 * counted)
    assert slices.all.batches == 2


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
    assert "judged by" in done.stdout
