# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to the offload worker, its files or the folder: epochs complete, and nothing is left behind.

Each fault strikes in the middle of an epoch. The order stays the strategy's, no wait is longer than the stated bound,
and a run that is resumed gives what one gives that was not cut.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.loader.datasets import copied
from tests.offload.offloading import (
    OPTIONS,
    EagerWrr,
    WorkerProcess,
    damage,
    left_behind,
    mte,
    numbers_of,
    offload_worker,
    paced,
    plain_batches,
    prepared_files,
    slot_order,
    wait_for_prepared,
    worker_process,
)

from headrace.loader import Loader
from headrace.offload import Offload
from headrace.offload.strategies._strategies import Paced

BATCHES = 20
# A machine with other things to do may wake a thread this late.
SLACK = 2.0
STRATEGIES = {"paced": paced(2, 5, skip=4), "mte": mte(10), "wrr": EagerWrr(), "calibrated": Paced(spare_host=True)}
DAMAGES = ("truncated", "flipped", "stale", "foreign")


def run_epoch(path, exchange, strategy, at, fault, *, pause=0.004, cut=None, wait=True, timers=()):
    """One epoch with a fault before slot `at`, cut and resumed after `cut` batches if that is given.

    What `timers` are to do is done before the loader is closed.
    """
    got = []
    loader = Loader(path, **OPTIONS, offload=Offload(exchange, strategy=strategy))
    iteration = iter(loader)
    while len(got) < BATCHES:
        if len(got) == at:
            if wait:
                wait_for_prepared(loader)
            fault()
        got.append(copied(next(iteration)))
        time.sleep(pause)
        if len(got) == cut:
            state = json.loads(json.dumps(loader.state_dict()))
            check_waits(loader)
            loader.close()
            loader = Loader(path, **OPTIONS, offload=Offload(exchange, strategy=strategy))
            loader.load_state_dict(state)
            iteration = iter(loader)
    figures = check_waits(loader)
    for timer in timers:
        timer.join()
    loader.close()
    order = numbers_of(got, plain_batches(path))
    assert sorted(order) == list(range(BATCHES))
    if strategy.recorded(0) is not None:
        assert order == slot_order(BATCHES, strategy.recorded(0))
    return figures


def check_waits(loader):
    figures = loader.stats().offload
    assert figures["longest_wait_seconds"] <= figures["bound_seconds"] + SLACK
    return figures


def nothing_left(exchange: Path) -> bool:
    """Whether the folder is empty, if it is there; who removes files may need a moment."""
    deadline = time.monotonic() + 10
    while left_behind(exchange) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left_behind(exchange) == []


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_batches_are_made_again(core_path, tmp_path, kind):
    """Truncated, bit-flipped, stale and foreign ones: none is trained on, and the order does not change."""
    exchange, rng = tmp_path / "exchange", random.Random(kind)

    def spoil():
        deadline = time.monotonic() + 10
        while len(prepared_files(exchange)) < 3 and time.monotonic() < deadline:
            time.sleep(0.005)
        for path in prepared_files(exchange):
            damage(path, kind, rng)

    with offload_worker(core_path, exchange):
        figures = run_epoch(core_path, exchange, paced(2, 5, skip=6), 2, spoil)
        assert nothing_left(exchange)
    assert figures["redone"]["bad"] > 0


@pytest.mark.parametrize("strategy", ["paced", pytest.param("wrr", marks=pytest.mark.slow)])
def test_an_offload_worker_that_is_killed(core_path, tmp_path, strategy):
    exchange = tmp_path / "exchange"
    with worker_process(core_path, exchange) as process:
        figures = run_epoch(core_path, exchange, STRATEGIES[strategy], 6, process.kill)
    assert figures["host_batches"] + figures["offload_batches"] == BATCHES
    assert nothing_left(exchange)


def test_an_offload_worker_that_freezes(core_path, tmp_path):
    """The loader waits no longer than the limit, gives up after two late batches, and no files are left."""
    exchange = tmp_path / "exchange"
    with worker_process(core_path, exchange) as process:
        figures = run_epoch(core_path, exchange, mte(6), 4, lambda: process.signal(signal.SIGSTOP))
        process.signal(signal.SIGCONT)
    assert figures["redone"]["late"] <= 2
    assert nothing_left(exchange)


def test_no_offload_worker_at_all(core_path, tmp_path):
    """The loader does not wait for a worker that never started."""
    exchange = tmp_path / "exchange"
    exchange.mkdir()
    for strategy in STRATEGIES.values():
        figures = run_epoch(core_path, exchange, strategy, 3, lambda: None, pause=0.0, wait=False)
        assert figures["offload_batches"] == 0
        assert figures["longest_wait_seconds"] < SLACK
    assert nothing_left(exchange)


@pytest.mark.parametrize("strategy", ["paced", "wrr"])
def test_a_folder_that_disappears(core_path, tmp_path, strategy):
    exchange = tmp_path / "exchange"

    def remove():
        while exchange.exists():
            shutil.rmtree(exchange, ignore_errors=True)

    with offload_worker(core_path, exchange):
        run_epoch(core_path, exchange, STRATEGIES[strategy], 5, remove)
    assert left_behind(exchange) == []


def test_no_folder_at_all(core_path, tmp_path, caplog):
    """One rank goes on without, and says so; of several, one that does not see the folder is an error."""
    with Loader(core_path, **OPTIONS, offload=tmp_path / "nowhere") as loader:
        assert numbers_of([copied(batch) for batch in loader], plain_batches(core_path)) == list(range(BATCHES))
        assert "no such folder" in loader.stats().offload["off"]
    assert sum("offloading is off: the exchange folder" in message for message in caplog.messages) == 1
    with (
        Loader(core_path, **OPTIONS, offload=tmp_path / "nowhere", rank=0, world_size=2) as loader,
        pytest.raises(OSError, match="no such folder"),
    ):
        iter(loader)


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of its own with room for a few batches, that can be made read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or not mount("-t", "tmpfs", "-o", "size=192k", "tmpfs", folder):
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def mount(*arguments) -> bool:
    return subprocess.run(["mount", *map(str, arguments)], check=False, capture_output=True).returncode == 0


def test_a_full_folder(core_path, tiny_disk):
    """What does not fit is made by the host."""
    exchange = tiny_disk / "exchange"

    def fill():
        with contextlib.suppress(OSError), (tiny_disk / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    with offload_worker(core_path, exchange):
        run_epoch(core_path, exchange, paced(2, 5), 3, fill)
        (tiny_disk / "filler").unlink(missing_ok=True)
        assert nothing_left(exchange)


def test_a_folder_that_becomes_read_only(core_path, tiny_disk):
    exchange = tiny_disk / "exchange"
    with offload_worker(core_path, exchange):
        run_epoch(core_path, exchange, paced(2, 5), 4, lambda: mount("-o", "remount,ro", tiny_disk))
        assert mount("-o", "remount,rw", tiny_disk)
    shutil.rmtree(exchange)  # nobody could remove anything


HOST = """
import json, os, sys, time
sys.path.insert(0, sys.argv[5])
from tests.offload.offloading import OPTIONS, EagerWrr, paced
from headrace.loader import Loader
from headrace.offload import Offload
path, exchange, progress, state = sys.argv[1:5]
with Loader(path, **OPTIONS, offload=Offload(exchange, strategy=paced(2, 5, skip=4))) as loader:
    if os.path.exists(state):
        loader.load_state_dict(json.loads(open(state).read())["state"])
    had = json.loads(open(state).read())["had"] if os.path.exists(state) else []
    for batch in loader:
        had += batch["label"].tolist()
        with open(state + ".tmp", "w") as file:
            file.write(json.dumps({"state": loader.state_dict(), "had": had}))
        os.replace(state + ".tmp", state)
        time.sleep(0.03)
"""


def test_a_host_that_is_killed_continues_where_it_was(core_path, tmp_path):
    """What its first life has saved and what its second gives is the epoch, in the order of one that was not cut."""
    exchange, state = tmp_path / "exchange", tmp_path / "state.json"
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", HOST, str(core_path), str(exchange), "", str(state), root]
    with offload_worker(core_path, exchange):
        first = subprocess.Popen(command)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if state.exists() and len(json.loads(state.read_text())["had"]) >= 16:
                break
            time.sleep(0.01)
        first.kill()
        first.wait()
        begun = len(json.loads(state.read_text())["had"])
        subprocess.run(command, check=True, timeout=60)
        assert nothing_left(exchange)
    had = json.loads(state.read_text())["had"]
    order = slot_order(BATCHES, paced(2, 5, skip=4).recorded(0))
    whole = plain_batches(core_path)
    assert 0 < begun < len(had)
    assert had == [label for number in order for label in whole[number]["label"].tolist()]


def strike(
    kind: str, process: WorkerProcess, exchange: Path, rng: random.Random, timers: list[threading.Timer]
) -> None:
    """Do one of the things that happen; some of them pass after a while."""

    def later(most: float, act) -> None:
        timers.append(threading.Timer(rng.uniform(0.01, most), act))
        timers[-1].start()

    if kind in DAMAGES:
        for path in rng.sample(files := prepared_files(exchange), k=min(len(files), rng.randint(1, 6))):
            damage(path, kind, rng)
    elif kind == "killed":
        process.kill()
    elif kind == "restarted":
        process.restart()
    elif kind == "frozen":
        process.signal(signal.SIGSTOP)
    elif kind == "slow":
        process.signal(signal.SIGSTOP)
        later(1.5, lambda: process.signal(signal.SIGCONT))
    elif kind == "gone":
        moved = exchange.with_name("moved")
        exchange.rename(moved)
        if rng.random() < 0.5:
            later(0.3, lambda: moved.rename(exchange))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(200))
def test_random_faults(core_path, tmp_path, number):
    """Two hundred epochs, each with a fault of its own at a moment of its own; every other one is cut and resumed."""
    rng = random.Random(number)
    exchange = tmp_path / "exchange"
    kind = rng.choice([*DAMAGES, "killed", "restarted", "frozen", "slow", "gone", "never"])
    strategy = STRATEGIES[rng.choice(list(STRATEGIES))]
    at, cut = rng.randrange(1, BATCHES - 1), rng.choice([None, rng.randrange(1, BATCHES)])
    if kind == "gone" and cut is not None and cut > at:
        cut = None  # a loader that is closed while its folder is elsewhere cannot remove what comes back with it
    options = {"pause": rng.choice([0.0, 0.01, 0.03]), "cut": cut, "wait": rng.random() < 0.7}
    if kind == "never":
        exchange.mkdir()
        run_epoch(core_path, exchange, strategy, at, lambda: None, **{**options, "wait": False})
        assert nothing_left(exchange)
        return
    timers: list[threading.Timer] = []
    with worker_process(core_path, exchange) as process:

        def fault():
            strike(kind, process, exchange, rng, timers)

        run_epoch(core_path, exchange, strategy, at, fault, **options, timers=timers)
    if exchange.exists():
        assert nothing_left(exchange)
