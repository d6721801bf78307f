# SPDX-License-Identifier: Apache-2.0
"""The benchmark of two prongs counts what was left alone, and writes its figures beside models and bars."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from benchmarks._prongs.cell import ALONE, NEAR_ALONE
from benchmarks._prongs.figures import completed, rate_of
from benchmarks._prongs.meter import Meter, Totals
from benchmarks._prongs.report import bars, gains, origin, provenance
from benchmarks._prongs.runs import Cell, Disturbed, Line
from benchmarks.tables import NOTHING

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "prongs.py"


def test_a_run_counts_that_had_its_core():
    usual = Totals(1.0, 10, 160, host_cpu=0.84, core_busy=0.86)

    assert usual.counts
    assert not replace(usual, core_busy=1.0).counts


def a_run(*rates, disturbed=(), busy=0.0, ready=0, cpu=1.0):
    """What a run tells that had a turn of a second at each rate, and how a gauge tells of its turns."""
    parts = [
        Totals(1.0, 10, rate, host_cpu=cpu, near_batches=5 + ready, near_made=5, core_busy=busy, preparing_cpu=cpu / 2)
        for rate in rates
    ]
    told = {
        "turns": [asdict(part) for part in parts],
        "times": [(at, at + 1.0) for at in range(len(parts))],
        "plans": [None] * len(parts),
        "buffer_bytes": 0,
        "prongs": None,
    }
    return told, lambda begun, _ended: Disturbed(*dict(enumerate(disturbed)).get(int(begun), (0.0, 0.0)))


def a_cell(*runs, strategy="wrr", step=0.0):
    cell = Cell(strategy, "none", 99, 4, whole_epochs=False, step=step)
    for run in runs:
        cell.add(*run)
    return cell


def test_turns_count_in_which_no_other_program_had_the_core():
    assert rate_of(a_cell(a_run(98, 102), a_run(300, busy=2)).row()) == pytest.approx(100)
    assert rate_of(a_cell(a_run(90, 110, busy=2)).row()) == pytest.approx(100), "there are no others"


def test_what_lay_ready_when_a_run_began_is_taken_off_all_its_turns():
    cell = a_cell(a_run(100, 100, ready=1))

    assert cell.row()["ready"] == pytest.approx(2)
    assert rate_of(cell.row()) == pytest.approx(90)


def test_a_line_goes_through_what_was_seen_and_never_falls():
    line = Line.fit([(0.0, 1.0), (0.2, 1.1), (0.4, 1.2)])
    assert (line.at(0.0), line.at(0.6)) == (pytest.approx(1.0), pytest.approx(1.3))
    assert Line.fit([(0.0, 1.2), (0.4, 1.0)]).at(0.0) == pytest.approx(1.1), "what is disturbed costs no less"
    assert Line.fit([(0.3, 2.0), (0.3, 4.0)]).at(0.9) == pytest.approx(3.0), "one disturbance tells no slope"


def test_a_prong_alone_is_told_at_another_disturbance():
    host = a_cell(a_run(100, 80, disturbed=[(0.0, 0.9), (0.4, 0.1)]), strategy=ALONE)
    near = a_cell(a_run(100, 80, disturbed=[(0.9, 0.0), (0.1, 0.4)]), strategy=NEAR_ALONE)

    for alone, quiet, loud in (
        (host, Disturbed(0.0, 0.5), Disturbed(0.4, 0.5)),
        (near, Disturbed(), Disturbed(0.5, 0.4)),
    ):
        mean = alone.row()
        assert rate_of(alone.row_at(quiet)) / rate_of(mean) == pytest.approx(1.125 / 1.0, rel=0.01)
        assert rate_of(alone.row_at(loud)) / rate_of(mean) == pytest.approx(0.9, rel=0.01)
        assert alone.row_at(loud)["preparing_cpu"] == pytest.approx(mean["preparing_cpu"] / 0.9, rel=0.01)


def test_where_the_trainer_sets_the_pace_disturbance_changes_the_cpu_alone():
    alone = a_cell(a_run(100, 80, disturbed=[(0.0, 0.0), (0.4, 0.0)]), strategy=ALONE, step=0.1)

    assert rate_of(alone.row_at(Disturbed(0.0))) == rate_of(alone.row())
    assert alone.row_at(Disturbed(0.0))["host_cpu"] < alone.row()["host_cpu"]


def test_a_cell_is_as_uncertain_as_disturbance_does_not_explain():
    assert a_cell(a_run(100, 100)).uncertainty is None, "two do not tell"
    assert a_cell(a_run(*[98, 102] * 8)).uncertainty == pytest.approx(2 * 0.0207 / 4, rel=0.01)
    slower = a_run(*[1 / 0.01, 1 / 0.011, 1 / 0.012] * 4, disturbed=[(0.0, 0), (0.2, 0), (0.4, 0)] * 4)
    assert a_cell(slower).uncertainty == pytest.approx(0.0, abs=1e-6)


class FakeLoader:
    """Has made and delivered what it is told."""

    def __init__(self) -> None:
        self.taken = self.made = 0

    def stats(self):
        return {
            "prongs": {
                "near": {"cpu_seconds": 0.0, "batches": self.made},
                "near_batches": self.taken,
                "plans": [{"epoch": 1}],
            }
        }


def test_a_meter_tells_what_happened_between_two_moments(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(time, "process_time", lambda: clock[0])
    monkeypatch.setattr("benchmarks._prongs.meter.busy_seconds", lambda _core: 1.5 * clock[0])
    loader = FakeLoader()
    meter = Meter(loader, core=0)
    meter.batch(16)
    meter.clear()
    for _ in range(2):
        clock[0] += 0.6
        loader.made += 3
        loader.taken += 2
        meter.batch(16)
    meter.end_epoch()
    (found,) = meter.turns

    assert meter.plans == [{"epoch": 1}]
    assert meter.seconds == pytest.approx(1.2)
    assert (found.batches, found.samples, found.near_made, found.near_batches) == (2, 32, 6, 4)
    assert found.seconds == pytest.approx(1.2)
    assert found.others == pytest.approx(0.5)


def measured(**changes):
    """A hundred seconds, in which the host made four batches for each of the near worker's."""
    return {
        "source": "png", "strategy": "wrr", "trainer": "none", "step": 0.0, "batches": 125, "samples": 1250,
        "seconds": 100.0, "near_batches": 25, "ready": 0, "walked": [], "host_cpu": 100.0,
        "near_cpu": 25.0, "epoch_batches": 99,
        "host_seconds_a_batch": 1.0, "near_seconds_a_batch": 4.0, "take": 0.0, "fetch": 0.0, "prefetch": 4,
        "buffer_bytes": 1.0, "host_rate": 10.0, "near_rate": 2.5, **changes,
    }  # fmt: skip


def test_what_lay_ready_before_the_clock_ran_is_not_counted():
    assert rate_of(measured(ready=10)) == pytest.approx(11.5)
    assert rate_of(measured(ready=10, step=0.1)) == pytest.approx(12.5), "the trainer sets the pace"


def test_model_and_simulator_stand_beside_a_measurement():
    done = completed(measured(), None)

    assert done["modelled"] == pytest.approx(0.8)
    assert done["model_error"] == pytest.approx(0.0, abs=1e-6)
    assert done["simulation_error"] == pytest.approx(0.0, abs=0.02)


def walked(link):
    """An epoch of `mte` of which the near worker had 20 of 99 batches; its first lay ready."""
    times = {"host": 1.0, "near": 4.0, "link": link}
    pattern = {"skip": 79, "near": 1, "of": 1, "phase": 0}
    return {"batches": 99, "plan": {"pattern": pattern, "ready": 0, "off": None, "times": times}}


@pytest.mark.parametrize(("link", "seconds"), [(0.1, 79 + 20 * 0.1), (0.5, 79 + 20 * 0.5)])
def test_an_epoch_of_mte_is_modelled_by_its_own_split_and_reads(link, seconds):
    row = measured(strategy="mte", batches=99, seconds=seconds, walked=[walked(link)], fetch=0.01)

    assert completed(row, None)["model_error"] == pytest.approx(0.0, abs=0.02)


def test_several_runs_of_a_cell_count_as_one_by_how_certain_they_are():
    given = {"ratio": 0.25, "near_ratio": 0.25, "uncertainty": 0.01, "alone_uncertainty": 0.0}
    sure = completed(measured(seconds=100.0, **given), completed(measured(strategy=ALONE, **given), None))
    unsure = {**sure, "rate": 0.9 * sure["rate"], "uncertainty": 0.03}
    (claim, _, found, cells, verdict) = bars([sure, unsure]).rows[0]

    assert claim.startswith("wrr, paced of the sum")
    assert (found, cells, verdict) == ("99.0%", "1", "met")


def test_gains_are_told_by_source():
    row = {"source": "cifar", "trainer": "none", "host_rate": 100.0}
    rows = [
        {**row, "strategy": "wrr", "near_rate": 31.0, "rate": 131.0, "gain": 1.31},
        {**row, "strategy": "wrr", "near_rate": 25.0, "rate": 120.0, "gain": 1.20},
        {**row, "strategy": "paced", "near_rate": 31.0, "rate": 131.0, "gain": 1.31},
        {**row, "strategy": "paced", "near_rate": 31.0, "rate": 100.0, "gain": 1.0, "trainer": "slow"},
    ]

    assert gains(rows).rows == [
        ["cifar", "0.25 to 0.31", NOTHING, NOTHING, "1.20x to 1.31x", "98.0% (96.0%)", "1.31x", "100.0% (100.0%)"]
    ]


def a_document(command, **more):
    machine = {"cpu": "CPU", "cores": 2, "python": "Python"}
    return {"machine": machine, "watts": {"host": 12.0}, "command": command, "commit": "abc", **more}


def test_runs_that_differ_in_their_sources_alone_are_told_as_one_command():
    commands = [
        "bench.py --sources png --rounds 3",
        "bench.py --sources hri --rounds 3",
        "bench.py --sources hri --rounds 4",
    ]
    said = provenance([a_document(command) for command in commands])

    assert (
        "- `bench.py --sources png,hri --rounds 3` at commit abc\n- `bench.py --sources hri --rounds 4` at commit abc\n"
        in said
    )


def test_every_machine_is_named_with_its_runs():
    runs = [a_document("bench.py --sources png"), a_document("bench.py --sources png", target="avx2")]

    assert provenance(runs).startswith(
        "Measured on CPU (2 cores, Python) with\n\n- `bench.py --sources png` at commit abc\n\n"
        "Measured on CPU (2 cores, avx2 target, Python) with\n\n"
    )
    assert origin(runs) == (
        "Measured by 2 runs of `bench.py`, on CPU (2 cores, Python) and on CPU (2 cores, avx2 target, Python)."
    )


@pytest.mark.slow
def test_it_measures_each_strategy_beside_its_model(tmp_path):
    output = tmp_path / "prongs.json"
    options = ["--sources", "cifar", "--shares", "0.5", "--ratios", "", "--trainers", "none,slow", "--seconds", "0.3",
               "--epoch", "0.5", "--rounds", "2", "-o", str(output)]  # fmt: skip
    done = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(output.read_text())
    rows = {(row["trainer"], row["strategy"]): row for row in document["rows"]}
    assert {"CPU only", "mte", "wrr", "paced"} <= {strategy for _, strategy in rows}
    assert ("slow", "paced, sparing") in rows
    assert all(row["rate"] > 0 and row["modelled"] > 0 and row["simulated"] > 0 for row in rows.values())
    assert rows["none", "paced"]["near_rate"] > 0
    assert document["watts"]["near"] > 0
    assert "claim" in done.stdout
