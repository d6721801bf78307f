# SPDX-License-Identifier: Apache-2.0
"""SIGTERM, SIGINT and SIGHUP end an offload worker, whatever it is doing and whatever it is fed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.offload.exchanges import make_loader, name_of, stretch, wait_until
from tests.offload.test_attacks_worker import ATTACKS, Scene

from headrace.offload.exchange import HostExchange
from headrace.offload.worker import StopOnSignals

ENDING = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


@contextmanager
def near(dataset, folder, *options):
    command = [sys.executable, "-m", "headrace", "offload", str(dataset), str(folder), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, list[str]]:
    """Send a signal; give the exit code and what was printed."""
    process.send_signal(number)
    _, printed = process.communicate(timeout=20)
    return process.returncode, printed.splitlines()


@pytest.mark.parametrize("number", ENDING)
def test_while_it_waits(dataset, folder, number):
    with near(dataset, folder) as process:
        assert "waiting for a loader" in process.stderr.readline()
        code, printed = ended(process, number)
    assert code == 0
    assert printed[-1] == f"stopped by {number.name}: prepared 0 batches, 0 B"


def test_while_it_works(dataset, folder):
    with make_loader(dataset) as loader, HostExchange(folder, run="run", rank=0, recipe=loader.recipe) as exchange:
        exchange.request([stretch()])
        with near(dataset, folder) as process:
            wait_until(lambda: exchange.ready(name_of(9)))
            code, printed = ended(process, signal.SIGTERM)
        assert code == 0
        assert printed[0].startswith("serving rank 0 of run run: batches of 4 samples")
        assert any(line.startswith("left rank 0 of run run: prepared ") for line in printed)
        assert printed[-1].startswith("stopped by SIGTERM: prepared ")
        assert exchange.heartbeat().state == "ended"


def test_while_it_is_fed_garbage(dataset, folder):
    with make_loader(dataset) as loader:
        recipe = loader.recipe
    for number, attack in enumerate(ATTACKS.values()):
        scene = Scene(folder, recipe)
        attack(scene)
        if (folder.parent / "elsewhere").exists():
            (folder.parent / "elsewhere").rename(folder.parent / f"elsewhere {number}")
        (folder / "evil").rename(folder / f"evil-{number}")
    with near(dataset, folder) as process:
        wait_until(lambda: "ignored" in process.stderr.readline())
        code, printed = ended(process, signal.SIGTERM)
    assert code == 0
    assert all(line.isprintable() for line in printed)


STUCK = """
import sys, time
from headrace.offload.worker import StopOnSignals, _stopping
_stopping.GRACE_SECONDS = float(sys.argv[1])
with StopOnSignals(lambda: None):
    print("there", file=sys.stderr, flush=True)
    {stuck}
"""
WAYS = {
    "a call that never returns": "import ctypes\n    while True: ctypes.CDLL(None).sleep(600)",
    "a loop that asks nobody": "while True: pass",
    "a lock that nobody opens": "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
}


@pytest.mark.parametrize("stuck", WAYS.values(), ids=WAYS)
def test_one_that_does_not_end_by_itself_is_ended(stuck):
    script = STUCK.replace("{stuck}", stuck)
    with subprocess.Popen([sys.executable, "-c", script, "0.2"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == "there\n"
        code, printed = ended(process, signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    assert printed == ["stopped by SIGTERM before the worker had ended"]


def test_a_second_signal_is_obeyed_at_once():
    script = STUCK.replace("{stuck}", WAYS["a lock that nobody opens"])
    with subprocess.Popen([sys.executable, "-c", script, "600"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == "there\n"
        process.send_signal(signal.SIGINT)
        time.sleep(1.1)  # what follows sooner may be the same Ctrl-C
        assert process.poll() is None
        code, _ = ended(process, signal.SIGINT)
    assert code == 128 + signal.SIGINT


def test_handlers_and_handles_are_given_back():
    before = [signal.getsignal(number) for number in ENDING]
    handles = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    asked: list[bool] = []
    with StopOnSignals(lambda: asked.append(True)) as signals:
        signal.raise_signal(signal.SIGTERM)
        wait_until(lambda: asked)
    assert signals.received is signal.SIGTERM
    assert [signal.getsignal(number) for number in ENDING] == before
    assert not handles or len(list(Path("/proc/self/fd").iterdir())) == handles
