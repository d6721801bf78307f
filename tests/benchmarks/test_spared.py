# SPDX-License-Identifier: Apache-2.0
"""What a near worker spares the host is told window by window, and beside it how sure that is."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks._prongs.report import spared
from benchmarks._prongs.savings import Window, beyond_share, beyond_share_outside, in_time, quietest, summarise

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "spared.py"


def alone(slower=1.0):
    return Window(batches=10, seconds=1.0, cpu=0.80 * slower, preparing=0.78 * slower, near=0)


def with_near(slower=1.0, taking=0.0):
    """Three batches of ten are taken."""
    return Window(10, 1.0, cpu=0.56 * slower + taking, preparing=0.546 * slower, near=3)


def test_a_host_that_pays_for_what_it_makes_and_nothing_else_saves_the_share():
    assert beyond_share([alone()], [with_near()]) == pytest.approx(0.0)
    assert beyond_share_outside([alone()], [with_near()]) == pytest.approx(0.0)


def test_what_taking_costs_is_missing():
    assert beyond_share([alone()], [with_near(taking=0.008)]) == pytest.approx(-0.01)
    assert beyond_share_outside([alone()], [with_near(taking=0.008)]) == pytest.approx(-0.01)
    assert beyond_share_outside([alone()], [replace(with_near(), cpu=0.66, preparing=0.646)]) == pytest.approx(0.0)


def test_windows_count_in_which_the_host_made_its_own_batches_alone():
    assert in_time([with_near(), replace(with_near(), redone=1)]) == [with_near()]


def test_a_quarter_of_the_windows_is_quiet():
    windows = [alone(slower) for slower in (1.3, 1.0, 1.2, 1.1, 1.4, 1.01, 1.5, 1.6)]

    assert quietest(windows) == [alone(1.0), alone(1.01)]
    assert quietest(windows[:1]) == windows[:1]


def test_neighbours_of_one_kind_s_windows_do_not_show_in_the_quiet_ones():
    told = summarise([alone() for _ in range(8)], [with_near(1.0 + 0.05 * (at > 3)) for at in range(8)])

    assert told["quiet_beyond"]["found"] == pytest.approx(0.0)
    assert told["beyond"]["found"] == pytest.approx(-0.0175)
    assert told["near_share"] == pytest.approx(0.3)
    assert told["speed"] == pytest.approx(1.0)
    assert told["quiet_outside"]["found"] == pytest.approx(0.0)
    assert told["cpu_a_batch"] == pytest.approx(0.08)


def test_the_interval_holds_what_was_found_and_is_wider_where_windows_differ():
    steady = summarise([alone()] * 8, [with_near(taking=0.008)] * 8)["beyond"]
    wild = summarise([alone(1 + at / 50) for at in range(8)], [with_near(1 + at / 50) for at in range(8)])["beyond"]

    assert steady["least"] == pytest.approx(steady["most"]) == pytest.approx(-0.01)
    assert wild["least"] < wild["found"] < wild["most"]


def test_the_table_says_what_is_missed():
    rows = [
        {"source": "png", "share": 0.25, **summarise([alone()] * 4, [with_near(taking=taking)] * 4)}
        for taking in (0.0, 0.008)
    ]
    rows[0]["quiet_beyond"]["found"] = 0.0
    table = spared(rows)

    assert [row[-1] for row in table.rows] == ["met", "MISSED"]
    assert "-1.00" in table.rows[1][4]


@pytest.mark.slow
def test_the_program(tmp_path):
    options = ["--sources", "cifar", "--shares", "0.5", "--windows", "2"]
    done = subprocess.run(
        [sys.executable, SCRIPT, *options, "-o", tmp_path / "spared.json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [row] = json.loads((tmp_path / "spared.json").read_text())["rows"]

    assert "cifar in batches of 1024" in done.stdout
    assert 0 < row["near_share"] < 1
    assert len(row["windows"]["alone"]) == 2
