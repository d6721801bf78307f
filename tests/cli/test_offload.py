# SPDX-License-Identifier: Apache-2.0
"""`headrace offload`: what it is asked for, what it says, and how it ends. What it makes is tested in tests/offload."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

import headrace
from headrace.cli.offload import _line, parse_ranks
from headrace.offload.exchange import HostExchange, Stretch
from headrace.offload.worker import OffloadWorker, WorkerProgress


@pytest.fixture
def dataset(folder):
    samples = ({"image": np.full((9, 7, 3), number, np.uint8)} for number in range(8))
    headrace.build(samples, folder / "eight.hr", format="raw")
    (folder / "exchange").mkdir()
    return folder / "eight.hr"


def test_it_serves_a_loader_and_leaves_with_it(run, dataset, monkeypatch):
    with headrace.Loader(dataset, batch_size=2, output="numpy", num_workers=1) as loader:
        exchange = HostExchange("exchange", run="run", rank=0, recipe=loader.recipe)
    exchange.request([Stretch(0, 0, 8, 3, 4)])
    publish = OffloadWorker._publish

    def then_close(self, *arguments):
        publish(self, *arguments)
        exchange.close()

    monkeypatch.setattr(OffloadWorker, "_publish", then_close)
    monkeypatch.setattr("headrace.cli.offload._LINE_SECONDS", 0.0)
    ran = run("offload", dataset, "exchange", "--once", "--ahead", "1MB", "--workers", 2)

    assert ran.code == 0
    assert ran.err.splitlines()[0] == "serving rank 0 of run run: batches of 2 samples"
    assert "serving 1 rank: prepared 1 batch, 8.19 kB" in ran.err
    assert "finished rank 0 of run run: prepared 1 batch, 8.19 kB" in ran.err
    assert ran.err.splitlines()[-1] == "ended: prepared 1 batch, 8.19 kB"
    assert list(Path("exchange").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["offload"], "Missing argument"),
        (["offload", "absent.hr", "exchange"], "absent.hr"),
        (["offload", "eight.hr", "exchange", "--ahead", "much"], "a size must"),
        (["offload", "eight.hr", "exchange", "--ranks", "1-x"], "must be a list of ranks"),
    ],
)
def test_what_is_wrong_is_said(run, dataset, arguments, message):
    ran = run(*arguments)

    assert dataset.exists()
    assert ran.code != 0
    assert message in " ".join(ran.err.split())


def test_ranks_are_read_as_they_are_written():
    assert parse_ranks("0") == {0}
    assert parse_ranks("0, 2-5,9") == {0, 2, 3, 4, 5, 9}
    with pytest.raises(typer.BadParameter):
        parse_ranks("-1")


def test_the_line_says_how_it_goes():
    now = WorkerProgress(
        2, batches=41, written_bytes=7 * 10**9, seconds_per_batch=0.25, held_bytes=10, cpu_seconds=12.0, trouble=""
    )

    line = "serving 2 ranks: prepared 41 batches, 7.00 GB, 0.25 s per batch, 10 B not read yet, 12.0 CPU seconds"
    assert _line(now, Path("x")) == line
    assert _line(now._replace(ranks=0), Path("x")) == "waiting for a loader in x"
    assert _line(now._replace(ranks=0, trouble="what"), Path("x")).endswith("; what")


def test_under_nohup_it_goes_on_when_its_terminal_is_closed(dataset, tmp_path):
    command = [sys.executable, "-m", "headrace", "offload", str(dataset), str(tmp_path)]
    ignored = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    with subprocess.Popen(
        [sys.executable, "-c", ignored + "os.execv(sys.argv[1], sys.argv[1:])", *command],
        stderr=subprocess.PIPE,
        text=True,
    ) as near:
        assert near.stderr is not None
        assert "waiting for a loader" in near.stderr.readline()
        near.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            near.wait(0.3)
        near.terminate()
        assert near.wait(20) == 0


def test_it_can_be_quiet(run, dataset, monkeypatch):
    monkeypatch.setattr("headrace.cli.offload._LINE_SECONDS", 0.0)
    monkeypatch.setattr(OffloadWorker, "_work", OffloadWorker.stop)
    assert run("offload", dataset, "exchange", "--quiet").err == ""
    assert "ended: prepared 0 batches, 0 B" in run("offload", dataset, "exchange").err
