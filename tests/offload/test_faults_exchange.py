# SPDX-License-Identifier: Apache-2.0
"""What can go wrong between host and offload worker: each side continues, and nothing bad is trained on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest
from tests.offload.exchanges import BATCHES, files_in, make_loader, name_of, running, stretch, take, wait_until

from headrace.errors import BadPreparedBatch
from headrace.offload.exchange import HostExchange
from headrace.offload.exchange._batch_file import batch_file
from headrace.offload.exchange._host_heartbeat import HostHeartbeat
from headrace.offload.exchange._liveness import Process
from headrace.offload.worker import OffloadWorker
from headrace.offload.worker._rank import PublishedBatches


def host(folder, loader, **options) -> HostExchange:
    return HostExchange(folder, **{"run": "run", "rank": 0, "recipe": loader.recipe, **options})


@contextmanager
def process(dataset, folder, *options):
    """An offload worker in a process of its own, which is killed if it has not ended."""
    command = [sys.executable, "-m", "headrace", "offload", dataset, folder, *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as worker:
        try:
            yield worker
        finally:
            worker.send_signal(signal.SIGCONT)
            worker.kill()


@pytest.fixture
def loader(dataset):
    with make_loader(dataset) as loader:
        yield loader


@pytest.fixture
def expected(dataset):
    with make_loader(dataset) as loader:
        return [np.array(batch["image"]) for batch in loader]


def check_all(exchange, expected, top=BATCHES):
    """Take all batches from the tail on, and compare."""
    for number in reversed(range(top)):
        np.testing.assert_array_equal(take(exchange, name_of(number))["image"], expected[number])
        exchange.request([stretch(top=number)])


class TestNearWorker:
    def test_killed_and_started_again_it_goes_on(self, dataset, folder, loader, expected):
        with host(folder, loader) as exchange:
            exchange.request([stretch()])
            with process(dataset, folder, "--ahead", "12kB") as worker:
                take(exchange, name_of(9))
                worker.kill()
                worker.wait()
                (folder / "run" / "rank-0" / ".batch.dead.tmp").write_bytes(b"half a batch")
            first = exchange.heartbeat().worker
            with running(dataset, folder):
                check_all(exchange, expected)
                assert exchange.heartbeat().worker != first
                assert not list((folder / "run" / "rank-0").glob(".batch.dead*"))
        assert files_in(folder) == []

    def test_frozen_it_is_silent_and_another_takes_over(self, dataset, folder, loader, expected, monkeypatch):
        monkeypatch.setattr("headrace.offload.worker._search.TAKEOVER_SECONDS", 0.3)
        with host(folder, loader) as exchange, process(dataset, folder, "--ahead", "1") as worker:
            exchange.request([stretch()])
            take(exchange, name_of(9))
            worker.send_signal(signal.SIGSTOP)
            frozen = exchange.heartbeat()
            wait_until(lambda: exchange.silent_seconds > 0.7)
            assert exchange.heartbeat() == frozen
            with running(dataset, folder):
                wait_until(lambda: exchange.heartbeat().worker != frozen.worker)
                worker.send_signal(signal.SIGCONT)  # and finds that the rank is another's
                check_all(exchange, expected)
                assert exchange.heartbeat().worker != frozen.worker
                assert worker.poll() is None

    def test_two_share_no_rank(self, dataset, folder, loader, expected):
        with host(folder, loader) as exchange, running(dataset, folder) as one, running(dataset, folder) as two:
            exchange.request([stretch()])
            check_all(exchange, expected)
            assert sorted((one.progress().ranks, two.progress().ranks)) == [0, 1]
            assert one.progress().batches + two.progress().batches == BATCHES

    def test_killed_between_write_and_rename_it_has_published_nothing(self, dataset, folder, loader, monkeypatch):
        class Killed(BaseException):
            pass

        def killed(*_):
            raise Killed

        with host(folder, loader) as exchange:
            exchange.request([stretch(bottom=9)])
            with monkeypatch.context() as patch:
                patch.setattr(PublishedBatches, "write", killed)
                with pytest.raises(Killed):
                    OffloadWorker(dataset, folder).run()
            assert not exchange.ready(name_of(9))
            (folder / "run" / "rank-0" / ".batch.0011.tmp").write_bytes(b"written, not renamed")
            with running(dataset, folder):
                take(exchange, name_of(9))
        assert files_in(folder) == []

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_it_ends_cleanly_when_asked_to(self, dataset, folder, loader, number):
        with host(folder, loader) as exchange, process(dataset, folder) as worker:
            exchange.request([stretch(bottom=8)])
            wait_until(lambda: exchange.ready(name_of(8)))
            worker.send_signal(number)
            assert worker.wait(20) == 0
            assert exchange.heartbeat().state == "ended"
            assert exchange.read(name_of(8)) is not None  # what is there can still be read


class TestBatches:
    def spoil(self, path, how):
        content = bytearray(path.read_bytes())
        if how == "truncated":
            del content[len(content) // 2 :]
        elif how == "flipped":
            content[-10] ^= 1
        elif how == "empty":
            content.clear()
        elif how == "zeros":
            content[:] = bytes(len(content))
        path.write_bytes(content)

    @pytest.mark.parametrize("how", ["truncated", "flipped", "empty", "zeros"])
    def test_damage_is_found_and_the_rest_goes_on(self, dataset, folder, loader, expected, how):
        with host(folder, loader) as exchange, running(dataset, folder):
            exchange.request([stretch()])
            wait_until(lambda: exchange.ready(name_of(0)))
            self.spoil(folder / "run" / "rank-0" / batch_file(name_of(9)), how)
            with pytest.raises(BadPreparedBatch) as caught:
                exchange.read(name_of(9))
            assert caught.value.kind in ("damaged", "foreign")
            exchange.request([stretch(top=9)])
            check_all(exchange, expected, top=9)
        assert files_in(folder) == []

    def test_a_batch_under_another_s_name_is_foreign(self, dataset, folder, loader):
        with host(folder, loader) as exchange, running(dataset, folder):
            exchange.request([stretch()])
            wait_until(lambda: exchange.ready(name_of(0)))
            rank = folder / "run" / "rank-0"
            (rank / batch_file(name_of(3))).replace(rank / batch_file(name_of(9)))
            with pytest.raises(BadPreparedBatch, match="number must be 9; found 3"):
                exchange.read(name_of(9))


class TestFolder:
    @pytest.mark.parametrize(("number", "state"), [(28, "full"), (30, "trouble"), (5, "trouble")])
    def test_full_read_only_or_failing_it_is_waited_for(
        self, dataset, folder, loader, expected, number, state, monkeypatch
    ):
        monkeypatch.setattr("headrace.offload.worker._rank._RETRY_SECONDS", 0.02)
        failing = True
        synced = os.fsync

        def fsync(handle):
            if failing:
                raise OSError(number, os.strerror(number))
            synced(handle)

        with host(folder, loader) as exchange:
            monkeypatch.setattr(os, "fsync", fsync)
            exchange.request([stretch()])
            with running(dataset, folder):
                wait_until(lambda: (beat := exchange.heartbeat()) and beat.state == state)
                assert os.strerror(number) in exchange.heartbeat().reason
                assert not exchange.ready(name_of(9))
                failing = False
                check_all(exchange, expected)
                assert exchange.heartbeat().state in ("working", "waiting")
                assert exchange.heartbeat().reason == ""
        assert files_in(folder) == []

    def test_gone_in_mid_run_and_back_again(self, dataset, folder, loader, expected, monkeypatch):
        monkeypatch.setattr("headrace.offload.exchange._host_heartbeat._REMAKE_SECONDS", 0.0)
        with host(folder, loader) as exchange, running(dataset, folder) as worker:
            exchange.request([stretch()])
            take(exchange, name_of(9))
            away = folder.with_name("away")
            folder.rename(away)
            wait_until(lambda: worker.progress().ranks == 0)
            assert exchange.read(name_of(9)) is None
            folder.mkdir()
            check_all(exchange, expected)
        assert files_in(folder) == []

    def test_a_cell_full_of_garbage_is_no_news(self, dataset, folder, loader):
        with host(folder, loader) as exchange, running(dataset, folder) as worker:
            exchange.request([stretch(bottom=8)])
            wait_until(lambda: exchange.ready(name_of(8)))
            (folder / "run" / "rank-0" / "host").write_bytes(b"garbage")
            (folder / "run" / "rank-0" / "near").write_bytes(b"")
            exchange.request([stretch(bottom=7)])
            wait_until(lambda: exchange.ready(name_of(7)))
            assert worker.progress().ranks == 1


class TestHost:
    SCRIPT = """
import sys, time
from headrace.offload.exchange import HostExchange, Stretch
import json
exchange = HostExchange(sys.argv[1], run=sys.argv[3], rank=0, recipe=json.loads(sys.argv[2]))
exchange.publish_plan(0, {})
exchange.request([Stretch(0, 0, 40, 0, 10)])
print("there", flush=True)
time.sleep(60)
"""

    @contextmanager
    def process(self, folder, loader, run):
        import json  # noqa: PLC0415

        command = [sys.executable, "-c", self.SCRIPT, folder, json.dumps(loader.recipe), run]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
            try:
                assert other.stdout.readline() == b"there\n"
                yield other
            finally:
                other.kill()

    @pytest.mark.parametrize("run", ["run", "another"])
    def test_killed_and_started_again(self, dataset, folder, loader, expected, run):
        """The run's name is the same, or another: what the dead host left is removed either way."""
        with running(dataset, folder) as worker:
            with self.process(folder, loader, run) as other:
                wait_until(lambda: worker.progress().batches > 2)
                other.kill()
            with host(folder, loader) as exchange:
                exchange.request([stretch()])
                check_all(exchange, expected)
                wait_until(lambda: [path.name for path in folder.iterdir()] == ["run"])
        assert files_in(folder) == []

    def test_the_offload_worker_removes_the_files_of_a_killed_host(self, dataset, folder, loader):
        with running(dataset, folder) as worker:
            with self.process(folder, loader, "run") as other:
                wait_until(lambda: worker.progress().batches > 2)
                other.kill()
            wait_until(lambda: files_in(folder) == [])
            wait_until(lambda: worker.progress().ranks == 0)

    def test_on_another_machine_it_is_dead_when_it_has_been_silent_for_long(self, dataset, folder, loader, monkeypatch):
        elsewhere = Process("another machine", os.getpid(), 1)
        monkeypatch.setattr("headrace.offload.exchange._host_heartbeat.this_process", lambda: elsewhere)
        exchange = host(folder, loader)
        exchange.request([stretch()])
        with running(dataset, folder) as worker:
            wait_until(lambda: exchange.ready(name_of(0)))
            monkeypatch.setattr(HostHeartbeat, "_remove", lambda _: None)
            exchange.close()  # falls silent, and removes nothing
            assert files_in(folder)
            monkeypatch.setattr("headrace.offload.exchange._liveness.ABANDONED_SECONDS", 0.1)
            wait_until(lambda: files_in(folder) == [])
            wait_until(lambda: worker.progress().ranks == 0)

    def test_closed_while_a_batch_is_being_written(self, dataset, folder, loader, monkeypatch):
        exchange = host(folder, loader)
        synced = os.fsync

        def fsync(handle):
            exchange.close()
            synced(handle)

        with running(dataset, folder) as worker:
            monkeypatch.setattr(os, "fsync", fsync)
            exchange.request([stretch()])
            wait_until(lambda: not exchange._heartbeat._thread.is_alive())
            wait_until(lambda: worker.progress().ranks == 0)
        assert files_in(folder) == []


def harm(worker, path, rng) -> None:
    """Do something to the offload worker or a batch, or nothing."""
    match int(rng.integers(8)):
        case 0:
            worker.kill()
            worker.wait()
        case 1:
            worker.send_signal(signal.SIGSTOP)
        case 2:
            worker.send_signal(signal.SIGCONT)
        case 3 if path.exists():
            path.write_bytes(path.read_bytes()[: int(rng.integers(9000))])
        case 4:
            path.unlink(missing_ok=True)


def outcome(exchange, name, expected) -> str:
    """What comes of reading a batch: if there is one, it is right."""
    try:
        prepared = exchange.read(name)
    except BadPreparedBatch as error:
        return error.kind
    if prepared is None:
        return "late"
    np.testing.assert_array_equal(prepared.arrays["image"], expected)
    return "read"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_faults_one_after_another(dataset, folder, loader, seed):
    """Whatever is done to files and processes, each batch that is read is right, and all come in the end."""
    rng = np.random.default_rng(seed)
    rank = folder / "run" / "rank-0"
    outcomes = Counter()
    epochs = [[np.array(batch["image"]) for batch in loader] for _ in range(7)]
    with host(folder, loader) as exchange:
        for epoch in range(6):
            exchange.request([stretch(epoch=epoch)])
            with process(dataset, folder, "--ahead", "30kB") as worker:
                wait_until(lambda: exchange.ready(name_of(BATCHES - 1, epoch)))  # noqa: B023
                for number in reversed(range(BATCHES)):
                    harm(worker, rank / batch_file(name_of(number, epoch)), rng)
                    time.sleep(0.02)
                    outcomes[outcome(exchange, name_of(number, epoch), epochs[epoch][number])] += 1
                    exchange.request([stretch(top=number, epoch=epoch)])
        exchange.request([stretch(epoch=6)])
        with running(dataset, folder):
            for number in reversed(range(BATCHES)):
                np.testing.assert_array_equal(take(exchange, name_of(number, 6))["image"], epochs[6][number])
    assert files_in(folder) == []
    assert outcomes.keys() >= {"read", "late", "damaged"}
