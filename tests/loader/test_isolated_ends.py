# SPDX-License-Identifier: Apache-2.0
"""However it ends, nothing of `isolate=True` hangs and nothing is left: no process, handle or memory."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.errors import EngineClosed, LoaderError
from headrace.loader import _isolated_spawn
from headrace.transforms import RandomResizedCrop

SECOND = 1.0
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


def loader(path, **options):
    options = {"batch_size": 2, "output": "numpy", "transform": [RandomResizedCrop(16)], "isolate": True, **options}
    return headrace.Loader(path, num_workers=1, **options)


def pid_of(made):
    return made._parts.workshop.source.pid


def is_running(pid):
    """Whether a process exists and is more than a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def gone_within(pid, seconds):
    deadline = time.monotonic() + seconds
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def open_handles():
    return sorted(str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())


def shared_memory():
    return set(Path("/dev/shm").iterdir()) if Path("/dev/shm").is_dir() else set()


def children():
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@LINUX
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV"])
def test_the_death_of_the_process_is_an_error_at_once(core_path, name):
    """Named by its signal, while the trainer waits or before; and iterating again starts another."""
    with loader(core_path) as made:
        iteration = iter(made)
        next(iteration)
        os.kill(pid_of(made), getattr(signal, name))
        begun = time.monotonic()
        with pytest.raises(LoaderError, match=rf"own process \(\d+\) was ended by {name}"):
            list(iteration)
        assert time.monotonic() - begun < SECOND
        assert sum(len(batch["label"]) for batch in made) == 40


@LINUX
def test_a_death_is_told_whenever_it_is_noticed(core_path):
    """By the first to ask for a new batch, and still to those who wait for older ones."""
    with loader(core_path, prefetch_factor=3) as made:
        source = made._parts.workshop.source
        waiting = source.submit(np.arange(2), 0)
        os.kill(source.pid, signal.SIGKILL)
        assert gone_within(source.pid, SECOND)
        with pytest.raises(LoaderError, match="SIGKILL"):
            source.submit(np.arange(2), 0)
        fresh = source.submit(np.arange(2), 0)
        with pytest.raises(LoaderError, match="SIGKILL"):
            waiting.wait(SECOND)
        while not fresh.wait(0.1):
            pass
        assert len(fresh.take()[0]) == 2


@LINUX
def test_a_process_that_dies_while_it_is_waited_for(core_path):
    """Stopped first, so that the trainer certainly waits."""
    with loader(core_path) as made:
        iteration = iter(made)
        next(iteration)
        pid = pid_of(made)
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
        begun = time.monotonic()
        with pytest.raises(LoaderError, match="SIGKILL; the system does so when memory runs out"):
            list(iteration)
        assert time.monotonic() - begun < 0.3 + SECOND


@LINUX
def test_closing_ends_even_a_process_that_does_not_listen(core_path):
    made = loader(core_path)
    iteration = iter(made)
    next(iteration)
    pid = pid_of(made)
    os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    made.close()
    assert time.monotonic() - begun < SECOND
    assert not is_running(pid)


SCRIPT = """
import os, sys, time, headrace
from headrace.transforms import RandomResizedCrop
loader = headrace.Loader(sys.argv[1], batch_size=2, output="numpy", transform=[RandomResizedCrop(16)], isolate=True)
iteration = iter(loader)
next(iteration)
pid = loader._parts.workshop.source.pid
if sys.argv[2] == "forked" and os.fork() == 0:
    time.sleep(3)  # has a copy of the loader's end of the channel
    os._exit(0)
print(pid, flush=True)
time.sleep(30)
"""


@LINUX
@pytest.mark.parametrize("how", ["alone", "forked"])
def test_the_process_ends_with_the_trainer(core_path, how):
    """Killed with no chance to say anything, even if a process that it forked lives on."""
    trainer = subprocess.Popen([sys.executable, "-c", SCRIPT, str(core_path), how], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    pid = int(trainer.stdout.readline())
    assert is_running(pid)
    trainer.kill()
    trainer.wait()

    assert gone_within(pid, SECOND)
    trainer.stdout.close()


@LINUX
@pytest.mark.parametrize("ending", ["pass", "raise SystemExit(3)", "raise ValueError('mine')", "del loader"])
def test_the_interpreter_ends_cleanly(core_path, ending):
    """In mid-epoch, with batches held: nothing is printed that is not the user's, and nothing waited for."""
    script = SCRIPT.partition("if sys.argv")[0] + f"print(pid, flush=True)\n{ending}\n"
    begun = time.monotonic()
    command = [sys.executable, "-W", "error", "-c", script, str(core_path)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=20)

    assert time.monotonic() - begun < 15
    assert gone_within(int(ran.stdout), SECOND)
    assert ("mine" in ran.stderr) == ("mine" in ending)
    assert "headrace" not in ran.stderr
    assert ran.returncode == {"raise SystemExit(3)": 3, "raise ValueError('mine')": 1}.get(ending, 0)


@LINUX
def test_nothing_is_left(core_path):
    """Breaks, exceptions, restarts, dropped loaders: as many handles, children and names as before."""
    with loader(core_path) as warm:
        list(warm)
    gc.collect()
    handles, memory, before = open_handles(), shared_memory(), children()
    for turn in range(2, 6):
        made = loader(core_path)
        with contextlib.suppress(ZeroDivisionError):
            for number, batch in enumerate(made):
                assert len(batch["label"]) == 2
                if number == turn:
                    break
                if number == 3:
                    raise ZeroDivisionError
        if turn % 2:
            made.close()
        del made, batch
        gc.collect()
    assert open_handles() == handles
    assert shared_memory() == memory
    assert children() == before


@LINUX
def test_a_break_keeps_the_process_for_the_next_epoch(core_path):
    with loader(core_path) as made:
        for _ in made:
            break
        pid = pid_of(made)
        assert sum(len(batch["label"]) for batch in made) == 40
        assert pid_of(made) == pid


@LINUX
def test_batches_outlive_everything(core_path):
    made = loader(core_path)
    batch = next(iter(made))
    pid = pid_of(made)
    expected = batch["image"].copy()
    made.close()
    assert not is_running(pid)
    assert (batch["image"] == expected).all()


@LINUX
def test_ctrl_c_is_for_the_trainer(core_path):
    """The terminal sends it to both; the process goes on until it is told to end."""
    with loader(core_path) as made:
        iteration = iter(made)
        next(iteration)
        for _ in range(3):
            os.kill(pid_of(made), signal.SIGINT)
        assert sum(len(batch["label"]) for batch in iteration) == 38


@LINUX
def test_ctrl_c_while_the_process_starts(core_path):
    """Before the process has come to ignore it."""
    with loader(core_path) as made:
        source = made._parts.workshop.source
        os.kill(source.pid, signal.SIGINT)
        assert sum(len(batch["label"]) for batch in made) == 40


@LINUX
def test_a_trainer_that_waits_can_be_interrupted(core_path):
    with loader(core_path) as made:
        iteration = iter(made)
        next(iteration)
        os.kill(pid_of(made), signal.SIGSTOP)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            list(iteration)
        assert time.monotonic() - begun < 0.2 + SECOND


@LINUX
def test_ctrl_c_in_mid_message_costs_one_error(core_path, monkeypatch):
    """What was read is lost, so the conversation cannot go on: an error, not a trainer that waits for ever."""
    receive = socket.recv_fds

    def interrupted(*arguments):
        receive(*arguments)
        monkeypatch.setattr(socket, "recv_fds", receive)
        raise KeyboardInterrupt

    with loader(core_path) as made:
        iteration = iter(made)
        next(iteration)
        monkeypatch.setattr(socket, "recv_fds", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(iteration)
        with pytest.raises(LoaderError, match="does not answer any more"):
            list(made)
        assert sum(len(batch["label"]) for batch in made) == 40


@LINUX
def test_another_thread_may_close(core_path):
    made = loader(core_path)
    iteration = iter(made)
    next(iteration)
    os.kill(pid_of(made), signal.SIGSTOP)
    threading.Timer(0.2, made.close).start()
    begun = time.monotonic()
    with pytest.raises(LoaderError):
        list(iteration)
    assert time.monotonic() - begun < 0.2 + 2 * SECOND
    made.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_its_own(core_path):
    """It neither takes the trainer's process along when it ends, nor is it confused by it."""
    with loader(core_path) as made:
        iteration = iter(made)
        batch = next(iteration)
        child = os.fork()
        if child == 0:
            status = 1
            with contextlib.suppress(BaseException):
                del batch
                with pytest.raises(LoaderError, match="forked"):
                    next(iteration)
                status = 0 if sum(len(other["label"]) for other in made) == 40 else 2
                made.close()
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert sum(len(other["label"]) for other in iteration) == 38


def test_a_process_that_cannot_start_is_an_error(core_path, monkeypatch):
    monkeypatch.setattr(_isolated_spawn, "CHILD", "headrace.no_such_module")
    with loader(core_path) as made, pytest.raises(LoaderError, match="ended with exit code 1"):
        list(made)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with loader(core_path) as made, pytest.raises(LoaderError, match="cannot start /no/such/python"):
        list(made)
    monkeypatch.setattr(sys, "executable", "")
    with loader(core_path) as made, pytest.raises(LoaderError, match=r"set sys\.executable"):
        list(made)


def test_a_closed_source_says_so(core_path):
    made = loader(core_path)
    source = made._parts.workshop.source
    process = source._process
    made.close()
    with pytest.raises(EngineClosed, match="closed"):
        process.submit([0], 0)
    made.close()
