# SPDX-License-Identifier: Apache-2.0
"""However a loop is left, everything ends, and nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from concurrent.futures import wait

import numpy as np
import pytest
from tests.loader.datasets import COUNT, handle_count, labels, our_threads, thread_count, threads_left

import headrace
from headrace.errors import LoaderError
from headrace.loader import _assembly
from headrace.loader.batch import _callables
from headrace.loader.pixels._engine import EngineSource
from headrace.transforms import CenterCrop, RandomResizedCrop

CROP = [RandomResizedCrop(12)]

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts in /proc")
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def load(path, **options):
    return headrace.Loader(path, **{"output": "numpy", "num_workers": 2, "transform": CROP, "batch_size": 4, **options})


def same(sample):
    return sample


def slow(sample):
    time.sleep(0.02)
    return sample


@linux
@pytest.mark.parametrize("transform", [CROP, [*CROP, same]], ids=["core", "function"])
class TestNothingIsLeft:
    """Threads and handles, of Python and of C++, are back to where they were."""

    @pytest.fixture(autouse=True)
    def _count(self, path, transform):
        with load(path, transform=transform) as loader:
            next(iter(loader))  # also starts the thread that starts others and is kept
        gc.collect()
        before = thread_count(), handle_count()
        yield
        assert threads_left() == []
        assert (thread_count(), handle_count()) == before

    def test_when_closed(self, path, transform):
        loader = load(path, transform=transform)
        list(loader)
        assert thread_count() > 2
        loader.close()
        loader.close()

    def test_when_dropped(self, path, transform):
        loader = load(path, transform=transform)
        next(iter(loader))
        del loader

    def test_when_dropped_in_the_middle(self, path, transform):
        iteration = iter(load(path, transform=transform))
        next(iteration)
        del iteration

    def test_when_the_trainer_raises(self, path, transform):
        def train():
            with load(path, transform=transform) as loader:
                for _ in loader:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            train()

    def test_when_a_ring_of_references_held_it(self, path, transform):
        loader = load(path, transform=transform)
        iteration = iter(loader)
        ring = [loader, iteration]
        ring.append(ring)
        next(iteration)
        del loader, iteration, ring

    def test_when_never_used(self, path, transform):
        load(path, transform=transform)


def test_an_iteration_ends_its_own_thread(path):
    """What works ahead for an epoch ends with it; the engine waits for the next one."""
    with load(path, transform=[*CROP, same], num_workers=1) as loader:
        iteration = iter(loader)
        next(iteration)
        assert "headrace-batch" in our_threads()
        iteration.close()
        assert "headrace-batch" not in our_threads()
        for _ in loader:
            break
        iteration = iter(loader)
        assert our_threads().count("headrace-batch") == 1
        for _ in range(len(loader)):
            next(iteration)
        assert "headrace-batch" not in our_threads()


def test_no_ring_of_references_is_made(path):
    """Batches and loaders are freed by their last reference, not by the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        for transform in (CROP, [*CROP, same]):
            loader = load(path, transform=transform)
            batch = next(iter(loader))
            watched = [weakref.ref(loader), weakref.ref(batch["image"])]
            del loader, batch
            assert [reference() for reference in watched] == [None, None]
    finally:
        gc.enable()


def test_an_error_keeps_nothing_alive(path):
    def fail(sample):
        return sample["label"] / 0

    gc.collect()
    gc.disable()
    try:
        loader = load(path, transform=[*CROP, fail])
        with pytest.raises(ZeroDivisionError):
            next(iter(loader))
        watched = weakref.ref(loader)
        del loader
        assert watched() is None
    finally:
        gc.enable()


def test_a_loader_that_is_only_in_the_loop_lives_as_long(path):
    seen = []
    for batch in load(path):
        gc.collect()
        seen += batch["label"].tolist()
    assert seen == list(range(COUNT))


def test_a_closed_loader_says_so(path):
    loader = load(path)
    iteration = iter(loader)
    next(iteration)
    loader.close()
    with pytest.raises(LoaderError, match="the loader was closed"):
        next(iteration)
    with pytest.raises(LoaderError, match="is closed: make a new one"):
        iter(loader)
    assert len(loader) == 10
    assert loader.state_dict()["samples"] == 4


@pytest.mark.parametrize("transform", [CROP, [*CROP, slow]], ids=["core", "function"])
def test_another_thread_may_close_it(path, transform):
    """Who waits for a batch is told at once."""
    loader = load(path, transform=transform)
    errors = []
    started = threading.Event()

    def train():
        try:
            while True:
                for _ in loader:
                    started.set()
        except LoaderError as error:
            errors.append(str(error))

    trainer = threading.Thread(target=train)
    trainer.start()
    started.wait(10)
    loader.close()
    trainer.join(1)
    assert not trainer.is_alive()
    assert "closed" in errors[0]


class Stuck:
    """A source whose batches never get done."""

    def __init__(self):
        self.closed = False

    def submit(self, rows, epoch):
        del rows, epoch
        return self

    def wait(self, timeout):
        time.sleep(timeout)
        return False

    def stats(self):
        return {}

    def close(self):
        self.closed = True


@pytest.mark.parametrize("transform", [CROP, [*CROP, same]], ids=["core", "function"])
def test_what_never_gets_done_can_be_closed(path, monkeypatch, transform):
    source = Stuck()
    monkeypatch.setattr(_assembly, "EngineSource", lambda *_, **__: source)
    loader = load(path, transform=transform)
    closer = threading.Timer(0.2, loader.close)
    closer.start()
    begun = time.monotonic()
    with pytest.raises(LoaderError, match="closed"):
        next(iter(loader))
    closer.join()
    assert time.monotonic() - begun < 1
    assert source.closed


class Broken(EngineSource):
    """A source that fails when it is asked for the third batch."""

    submitted = 0

    def submit(self, rows, epoch):
        self.submitted += 1
        if self.submitted == 3:
            raise OSError("out of luck")
        return super().submit(rows, epoch)


@pytest.mark.parametrize("transform", [CROP, [*CROP, same]], ids=["core", "function"])
def test_what_a_source_raises_reaches_the_trainer(path, monkeypatch, transform):
    monkeypatch.setattr(_assembly, "EngineSource", Broken)
    with load(path, transform=transform, fields=["image"], batches_ahead=1) as loader:
        with pytest.raises(OSError, match="out of luck"):
            list(loader)
        assert len(list(loader)) == 10


def in_child(work):
    """Fork, do the work there, and give the child's exit code; a child that hangs is killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forking with threads
        child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


@forks
@pytest.mark.parametrize("transform", [CROP, [*CROP, same]], ids=["core", "function"])
class TestFork:
    """A fork after use: the child begins anew, or is told, and never hangs."""

    def test_the_child_has_a_loader_of_its_own(self, path, transform):
        with load(path, transform=transform) as loader:
            first = [batch["image"].copy() for batch in loader]

            def work():
                loader.set_epoch(0)
                again = [batch["image"].copy() for batch in loader]
                loader.close()
                return all(map(np.array_equal, first, again))

            assert in_child(work) == 0
            assert len(list(loader)) == 10

    def test_an_iteration_stays_with_the_parent(self, path, transform):
        with load(path, transform=transform) as loader:
            iteration = iter(loader)
            next(iteration)

            def work():
                try:
                    next(iteration)
                except LoaderError as error:
                    return "forked" in str(error)
                return False

            assert in_child(work) == 0
            assert len(list(iteration)) == 9

    def test_the_child_may_drop_everything(self, path, transform):
        with load(path, transform=transform) as loader:
            held = {"loader": loader, "iteration": iter(loader)}
            next(held["iteration"])

            def work():
                held["iteration"].close()
                held.clear()
                loader.close()
                gc.collect()
                return True

            assert in_child(work) == 0
            assert len(list(held["iteration"])) == 9


SCRIPT = """
import sys, time
import headrace
from headrace.transforms import RandomResizedCrop

def slow(sample):
    time.sleep(0.05)
    return sample

def main(path, mode):
    transform = [RandomResizedCrop(12)] + ([slow] if "slow" in mode else [])
    loader = headrace.Loader(path, output="numpy", batch_size=4, num_workers=2, transform=transform)
    if "forever" in mode:
        while True:
            for batch in loader:
                print("ready", flush=True)
                if "train" in mode:
                    time.sleep(60)
    globals()["kept"] = loader, iter(loader)
    next(kept[1])
    print("ready", flush=True)

main(*sys.argv[1:])
"""


def start(path, mode):
    command = [sys.executable, "-c", SCRIPT, str(path), mode]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("mode", ["forever", "forever slow", "forever train"])
def test_ctrl_c(path, mode):
    """The program ends by KeyboardInterrupt at once, whether it waits for a batch or trains on one."""
    with start(path, mode) as process:
        time.sleep(0.3)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
        assert time.monotonic() - begun < 2
    assert process.returncode == -signal.SIGINT
    assert stderr.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("mode", ["leave", "leave slow"])
def test_leaving_the_interpreter_without_closing(path, mode):
    """A loader that is still in the middle of an epoch does not hold the program up."""
    begun = time.monotonic()
    with start(path, mode) as process:
        _, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (0, "")
    assert time.monotonic() - begun < 20


IN_A_DAEMON = """
import sys, threading
import headrace
from headrace.transforms import RandomResizedCrop

loader = headrace.Loader(sys.argv[1], output="numpy", batch_size=4, num_workers=2, transform=[RandomResizedCrop(12)])
under_way = threading.Event()

def work():
    while True:
        for _ in loader:
            under_way.set()

threading.Thread(target=work, daemon=True).start()
under_way.wait()
"""


def test_leaving_while_a_daemon_thread_iterates(path):
    """It may be anywhere in the core when the interpreter ends; the program has not failed for that."""
    for _ in range(8):
        command = [sys.executable, "-c", IN_A_DAEMON, str(path)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stderr
        assert "terminate" not in ran.stderr


def test_garbage_collection_in_any_thread(path):
    """A loader that is collected by one of its own threads ends too."""

    def collect(sample):
        gc.collect()
        return sample

    for _ in range(5):
        loader = load(path, transform=[CenterCrop(8), collect], num_workers=2)
        iteration = iter(loader)
        next(iteration)
        ring = [loader, iteration]
        ring.append(ring)
        del loader, iteration, ring
        assert threads_left() == []


def test_garbage_collection_where_locks_are_held(path, monkeypatch):
    """A finalizer must not wait: here it runs in a thread that has the locks which others need to end."""
    dropped, collected = threading.Event(), threading.Event()

    def collect_with_locks(pieces, *arguments):
        if dropped.wait(5) and not collected.is_set():
            with contextlib.ExitStack() as locks:
                for piece in pieces:
                    locks.enter_context(piece._condition)
                gc.collect()
            collected.set()
        return wait(pieces, *arguments)

    monkeypatch.setattr(_callables, "wait", collect_with_locks)
    gc.collect()
    gc.disable()
    try:
        loader = load(path, transform=[CenterCrop(8), slow])
        iteration = iter(loader)
        ring = [loader, iteration]
        ring.append(ring)
        del loader, iteration, ring
        dropped.set()
        assert collected.wait(5)
    finally:
        gc.enable()
    assert threads_left() == []


def test_two_loaders_at_once(path):
    with load(path) as one, load(path, transform=[*CROP, same]) as two:
        for first, second in zip(one, two, strict=True):
            assert labels([first]) == labels([second])
            np.testing.assert_array_equal(first["image"], second["image"])
