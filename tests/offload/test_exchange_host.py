# SPDX-License-Identifier: Apache-2.0
"""The host's side of an exchange: its files while it runs, and none afterwards."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.offload.exchanges import files_in, name_of, stretch, wait_until

from headrace.errors import BadPreparedBatch, ExchangeError
from headrace.offload.exchange import HostExchange, _batch_file
from headrace.offload.exchange._batch_file import batch_file, pack_batch
from headrace.offload.exchange._documents import HostRequest
from headrace.offload.exchange._files import CELL_BYTES, CellReader, pack_cell, read_cell, unpack_cell, write_cell
from headrace.offload.exchange._liveness import BEAT_SECONDS, Process, is_gone, this_process
from headrace.offload.worker._rank import RankCells

RECIPE = {"version": 1, "seed": 0}


def host(path, **options) -> HostExchange:
    return HostExchange(path, **{"run": "run", "rank": 0, "recipe": RECIPE, **options})


def cells_of(exchange: HostExchange) -> RankCells:
    """An offload worker's end of the same rank, which holds it."""
    cells = RankCells(exchange.path / exchange.run / f"rank-{exchange.rank}", exchange.rank, "worker")
    assert cells.claim()
    return cells


def beat(marks=(), **options) -> dict:
    return {"state": "working", "marks": marks, **options}


def test_a_rank_s_folder_is_whole_from_the_start_and_gone_at_the_end(tmp_path):
    with host(tmp_path, rows=np.arange(5)) as exchange:
        folder = tmp_path / "run" / "rank-0"
        assert files_in(folder) == ["host", "near", "recipe.json", "rows.npy"]
        assert json.loads((folder / "recipe.json").read_bytes()) == RECIPE
        np.testing.assert_array_equal(np.load(folder / "rows.npy"), np.arange(5))
        assert exchange.heartbeat() is None
        assert exchange.read(name_of(1)) is None
        assert exchange.trouble is None
    assert files_in(tmp_path) == []
    exchange.close()


def test_orders_reach_the_other_side(tmp_path):
    with host(tmp_path) as exchange:
        cells = cells_of(exchange)
        exchange.request([stretch(3, 10), stretch(0, 0, epoch=1), stretch(1, 4, epoch=2)])
        wait_until(lambda: cells.update() or cells.request.stretches)
        assert cells.request.stretches == (stretch(3, 10), stretch(1, 4, epoch=2))
        with pytest.raises(ValueError, match="at most 8 stretches"):
            exchange.request([stretch(epoch=epoch) for epoch in range(9)])


def test_both_sides_beat(tmp_path):
    with host(tmp_path) as exchange:
        cells = cells_of(exchange)
        first = cells.request.beat
        wait_until(lambda: cells.update() or cells.request.beat > first + 1)
        cells.write(**beat())
        assert exchange.heartbeat().beat == 1
        cells.write(**beat())
        assert exchange.heartbeat().beat == 2
        assert exchange.silent_seconds < BEAT_SECONDS + 1


def test_only_what_is_marked_is_looked_for(tmp_path):
    with host(tmp_path) as exchange:
        cells = cells_of(exchange)
        cells.write(**beat(marks=((0, 0, 40, 7, 9),)))

        assert [number for number in range(10) if exchange.ready(name_of(number))] == [7, 8]
        assert not exchange.ready(name_of(8, epoch=1))
        with pytest.raises(BadPreparedBatch, match="the file does not exist") as caught:
            exchange.read(name_of(8))
        assert caught.value.kind == "unreadable"
        file = pack_batch(name_of(8), cells.origin, {"image": np.arange(9)})
        (cells.folder / batch_file(name_of(8))).write_bytes(b"".join(bytes(piece) for piece in file.pieces))
        np.testing.assert_array_equal(exchange.read(name_of(8)).arrays["image"], np.arange(9))
        stats = exchange.stats()
        assert (stats["read_batches"], stats["read_bytes"]) == (1, file.n_bytes)
        assert stats["rejected"] == {"unreadable": 1}
        assert stats["worker"]["worker"] == "worker"


def test_a_missing_batch_is_not_bad_if_another_offload_worker_has_taken_over(tmp_path):
    """Marks are remembered, so that a batch is read without a look at the cell; it may say something else by now."""
    with host(tmp_path) as exchange:
        cells = cells_of(exchange)
        cells.write(**beat(marks=((0, 0, 40, 7, 9),)))
        assert exchange.ready(name_of(8))
        cells.write(**beat())

        assert exchange.read(name_of(8)) is None
        assert exchange.stats()["rejected"] == {}


def test_a_look_of_a_moment_ago_will_do_where_that_is_said(tmp_path):
    with host(tmp_path) as exchange:
        cells = cells_of(exchange)
        cells.write(**beat(batches=1))
        assert exchange.heartbeat().batches == 1
        cells.write(**beat(batches=2))

        assert exchange.heartbeat(max_age=60.0).batches in (1, 2), "the exchange's own thread may have looked meanwhile"
        wait_until(lambda: exchange.heartbeat(max_age=60.0).batches == 2)
        cells.write(**beat(batches=3))
        assert exchange.heartbeat().batches == 3


def test_batches_are_read_past_the_page_cache(tmp_path, monkeypatch):
    with host(tmp_path) as exchange:
        cells = cells_of(exchange)
        cells.write(**beat(marks=((0, 0, 40, 9, 10),)))
        file = pack_batch(name_of(9), cells.origin, {"image": np.arange(9)})
        (cells.folder / batch_file(name_of(9))).write_bytes(b"".join(bytes(piece) for piece in file.pieces))
        ways = []
        really = _batch_file.read_file
        monkeypatch.setattr(
            _batch_file, "read_file", lambda *file, **how: ways.append(how["direct"]) or really(*file, **how)
        )
        exchange.read(name_of(9))

    assert set(ways) == {True}


def test_a_restarted_host_removes_old_files_and_uses_no_old_batches(tmp_path):
    with host(tmp_path) as exchange:
        old = cells_of(exchange)
        content = b"".join(bytes(piece) for piece in pack_batch(name_of(9), old.origin, {"image": np.arange(9)}).pieces)
        (old.folder / batch_file(name_of(9))).write_bytes(content)
        with host(tmp_path) as restarted:
            assert batch_file(name_of(9)) not in files_in(old.folder)
            cells = cells_of(restarted)
            (cells.folder / batch_file(name_of(9))).write_bytes(content)
            cells.write(**beat(marks=((0, 0, 40, 9, 10),)))
            with pytest.raises(BadPreparedBatch, match="session"):
                restarted.read(name_of(9))
            wait_until(lambda: exchange.trouble)
            assert "taken over" in exchange.trouble
            exchange.close()  # which is not its folder any more
            assert restarted.ready(name_of(9))
    assert files_in(tmp_path) == []


def test_ranks_of_a_run_do_not_disturb_each_other(tmp_path):
    first, second = host(tmp_path, rank=0), host(tmp_path, rank=1)
    first.publish_plan(3, {"near": 7})

    assert second.read_plan(3) == {"near": 7}
    assert second.read_plan(4) is None
    second.close()
    assert (tmp_path / "run" / "rank-0" / "host").exists()
    first.close()
    assert files_in(tmp_path) == []


def test_plans_of_an_earlier_training_are_removed_by_rank_0(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "plan-3.json").write_text("{}")
    with host(tmp_path, rank=0) as exchange:
        assert exchange.read_plan(3) is None


def test_a_host_that_is_dropped_leaves_nothing(tmp_path):
    exchange = host(tmp_path)
    assert files_in(tmp_path)
    del exchange
    gc.collect()
    wait_until(lambda: files_in(tmp_path) == [])
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "headrace-exchange"])


HOST_SCRIPT = """
import os, sys
from headrace.offload.exchange import HostExchange
exchange = HostExchange(sys.argv[1], run="other", rank=0, recipe={"version": 1})
print("there", flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["ended", "killed"])
def test_a_process_that_ends_removes_its_files_and_the_next_host_removes_those_of_one_that_is_killed(tmp_path, how):
    ran = subprocess.run([sys.executable, "-c", HOST_SCRIPT, tmp_path, how], capture_output=True, check=False)
    assert ran.stdout == b"there\n"
    assert bool(files_in(tmp_path)) == (how == "killed")

    host(tmp_path).close()

    assert files_in(tmp_path) == []


class TestTrouble:
    def test_a_folder_that_is_not_there_is_named(self, tmp_path):
        with pytest.raises(ExchangeError, match=r"absent: no such folder: create"):
            host(tmp_path / "absent")

    @pytest.mark.parametrize("run", ["", "a/b", "..", "x" * 65])
    def test_a_run_cannot_lead_elsewhere(self, tmp_path, run):
        with pytest.raises(ExchangeError, match="the name of a run must be"):
            host(tmp_path, run=run)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_read_only_folder_is_named(self, tmp_path):
        tmp_path.chmod(0o555)
        with pytest.raises(ExchangeError, match="cannot be used"):
            host(tmp_path)

    def test_a_read_only_file_system_is_named(self, tmp_path, monkeypatch):
        def read_only(*_, **__):
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(os, "mkdir", read_only)
        with pytest.raises(ExchangeError, match="Read-only file system; both sides must be able to write"):
            host(tmp_path)

    def test_a_full_disk_is_named(self, tmp_path, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ExchangeError, match="No space left"):
            host(tmp_path)
        assert files_in(tmp_path) in ([], ["run"])

    def test_a_folder_that_vanishes_is_made_again_when_it_can_be(self, tmp_path, monkeypatch):
        monkeypatch.setattr("headrace.offload.exchange._host_heartbeat._REMAKE_SECONDS", 0.0)
        away = tmp_path.with_name("away")
        with host(tmp_path) as exchange:
            exchange.request([stretch()])
            tmp_path.rename(away)
            assert exchange.heartbeat() is None
            assert exchange.read(name_of(9)) is None
            wait_until(lambda: exchange.trouble)
            exchange.request([stretch(5)])
            tmp_path.mkdir()
            wait_until(lambda: exchange.trouble is None)
            assert cells_of(exchange).origin.session == exchange.session
        assert files_in(tmp_path) == []

    def test_a_folder_that_is_gone_at_the_end_is_no_error(self, tmp_path):
        exchange = host(tmp_path)
        tmp_path.rename(tmp_path.with_name("moved"))
        exchange.close()


class TestCells:
    def test_a_cell_is_one_page_of_text(self, tmp_path):
        (tmp_path / "cell").write_bytes(pack_cell({"a": 1}))
        assert files_in(tmp_path) == ["cell"]
        write_cell(tmp_path / "cell", {"a": "ä" * 50})
        content = (tmp_path / "cell").read_bytes()

        assert len(content) == CELL_BYTES
        assert content.startswith(b"headrace ")
        assert content.endswith(b" \n")
        assert read_cell(tmp_path / "cell") == {"a": "ä" * 50}

    def test_every_flipped_byte_of_a_cell_is_found(self):
        content = pack_cell({"beat": 7})
        for at in (*range(60), CELL_BYTES - 1):
            damaged = bytearray(content)
            damaged[at] ^= 4
            assert unpack_cell(bytes(damaged)) is None

    def test_a_torn_cell_is_looked_at_again(self, tmp_path):
        cell = tmp_path / "cell"
        cell.write_bytes(pack_cell({"beat": 0}))
        done = threading.Event()

        def write() -> None:
            for count in range(2000):
                write_cell(cell, {"beat": count, "filling": "x" * (count % 3000)})
            done.set()

        thread = threading.Thread(target=write)
        thread.start()
        seen = [-1]
        while not done.is_set():
            document = read_cell(cell)
            if document is not None:
                seen.append(document["beat"])
        thread.join()
        assert seen == sorted(seen)

    def test_too_much_for_a_cell_is_an_error(self):
        with pytest.raises(ValueError, match="at most"):
            pack_cell({"text": "x" * 5000})

    def test_the_longest_heartbeat_fits(self, tmp_path):
        most = 2**47
        marks = tuple((2**32 - 1, most, most, most - number, most) for number in range(8))
        with host(tmp_path) as exchange:
            cells_of(exchange).write(
                **beat(marks, reason="\U0001f389" * 900 + "\udc80", written_bytes=most, cpu_seconds=1e9 / 3)
            )
            assert exchange.heartbeat().reason == "\U0001f389" * 299 + "…"
            cells_of(exchange).write(**beat(reason="a path: \udc80"))
            assert exchange.heartbeat().reason == r"a path: \udc80"

    def test_nothing_else_is_a_cell(self, tmp_path):
        (tmp_path / "cell").write_bytes(b"x" * CELL_BYTES)
        assert read_cell(tmp_path / "cell") is None

    @pytest.mark.parametrize("document", [{"version": 2}, {"version": 1}, {"version": 1, "session": "a", "beat": "b"}])
    def test_a_cell_that_makes_no_sense_is_refused(self, document):
        with pytest.raises(ValueError):
            HostRequest.from_json(document)

    def test_a_heartbeat_of_another_version_is_none(self, tmp_path):
        with host(tmp_path) as exchange:
            write_cell(tmp_path / "run" / "rank-0" / "near", {"version": 99, "worker": "w"})
            assert exchange.heartbeat() is None


class TestLiveness:
    def test_clocks_are_never_compared(self, tmp_path, monkeypatch):
        """A clock that jumps, on either side, changes nothing."""
        with host(tmp_path) as exchange:
            cells = cells_of(exchange)
            cells.write(**beat())
            exchange.heartbeat()
            monkeypatch.setattr(time, "time", lambda: 4e9)
            cells.write(**beat())
            assert exchange.heartbeat().beat == 2
            assert exchange.silent_seconds < 2

    def test_a_cell_that_stands_still_is_silence(self, tmp_path):
        cell, reader = tmp_path / "cell", CellReader(tmp_path / "cell", dict)
        cell.write_bytes(pack_cell({"beat": 1}))
        reader.read()
        first = reader.silent_seconds
        reader.read()
        assert reader.silent_seconds > first
        cell.write_bytes(b"damaged")
        reader.read()
        assert reader.silent_seconds > first
        before = reader.silent_seconds
        cell.write_bytes(pack_cell({"beat": 2}))
        reader.read()
        assert reader.silent_seconds < before

    def test_a_process_of_this_machine_is_known_to_be_gone(self):
        ended = subprocess.Popen([sys.executable, "-c", ""])
        machine, _, started = this_process()
        ended.wait()

        assert not is_gone(this_process())
        assert is_gone(Process(machine, ended.pid, started))
        assert is_gone(this_process()._replace(started=1))
        assert not is_gone(Process("another machine", ended.pid, started))
        assert not is_gone(Process("", ended.pid, started))

    def test_a_process_that_cannot_be_seen_is_not_taken_for_dead(self, monkeypatch):
        def forbidden(*_):
            raise PermissionError

        monkeypatch.setattr(os, "kill", forbidden)
        monkeypatch.setattr("headrace.offload.exchange._liveness._PROC", Path("/nowhere"))
        assert not is_gone(this_process()._replace(number=1, started=5))


class TestOtherPeoplesFiles:
    def test_what_is_no_part_of_an_exchange_is_never_removed(self, tmp_path):
        """An exchange in a folder with other things, and a run that is called as one of them."""
        theirs = ["run/photo.png", "run/rank-1/notes.txt", "other/rank-0/host.txt", "rank-0/host", "model.safetensors"]
        for name in theirs:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("precious")
        with host(tmp_path) as exchange:
            exchange.publish_plan(0, {})
        for name in theirs:
            assert (tmp_path / name).read_text() == "precious"
        assert not (tmp_path / "run" / "rank-0").exists()

    def test_a_rank_s_folder_with_other_files_in_it_is_an_error_that_names_one(self, tmp_path):
        (tmp_path / "run" / "rank-0").mkdir(parents=True)
        (tmp_path / "run" / "rank-0" / "model.safetensors").write_text("precious")
        with pytest.raises(ExchangeError, match=r"model.safetensors.* is not a file of an exchange"):
            host(tmp_path)
        assert files_in(tmp_path / "run") == ["rank-0", "rank-0/model.safetensors"]
