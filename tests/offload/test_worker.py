# SPDX-License-Identifier: Apache-2.0
"""The offload worker makes the batches of the loader, bit for bit, from the tail downwards, for all ranks alike."""

from __future__ import annotations

import shutil
import time

import numpy as np
import pytest
from tests.loader.datasets import write
from tests.offload.exchanges import (
    BATCHES,
    COUNT,
    files_in,
    make_loader,
    name_of,
    running,
    stretch,
    take,
    wait_until,
)

import headrace
from headrace.errors import BadPreparedBatch, HeadraceError
from headrace.offload.exchange import HostExchange
from headrace.offload.exchange._names import SUFFIX
from headrace.offload.worker import OffloadWorker
from headrace.offload.worker._rank import RankCells


def host(folder, recipe, **options) -> HostExchange:
    return HostExchange(folder, **{"run": "run", "rank": 0, "recipe": recipe, **options})


def published(folder, rank=0) -> list[int]:
    """Numbers of the batches that lie in a rank's folder."""
    names = files_in(folder / "run" / f"rank-{rank}")
    return sorted(int(name.removesuffix(SUFFIX).split("-")[3]) for name in names if name.endswith(SUFFIX))


def test_batches_are_those_of_the_loader_bit_for_bit(dataset, folder):
    with make_loader(dataset, seed=5) as loader, host(folder, loader.recipe) as exchange, running(dataset, folder):
        for epoch in (0, 1):
            exchange.request([stretch(epoch=epoch)])
            expected = [{name: np.array(batch[name]) for name in ("image", "mask")} for batch in loader]
            for number in reversed(range(BATCHES)):
                found = take(exchange, name_of(number, epoch))
                for field, array in expected[number].items():
                    np.testing.assert_array_equal(found[field], array)
    assert files_in(folder) == []


@pytest.mark.parametrize("version", [1, 2, 3])
def test_it_serves_whichever_version_the_loader_has(dataset, folder, tmp_path, version):
    """The dataset has grown since a loader has opened it; dropped samples are not in prepared batches."""
    path = shutil.copytree(dataset, tmp_path / "grown.hr")
    headrace.drop(path, [0, 3])
    headrace.relabel(path, slice(0, 2), 0)
    with (
        make_loader(f"{path}@v{version}", seed=5) as loader,
        host(folder, loader.recipe) as exchange,
        running(path, folder),
    ):
        length = len(loader.dataset)
        assert length == (COUNT if version == 1 else COUNT - 2)
        last = len(loader) - 1
        exchange.request([stretch(0, last + 1, stop=length)])
        expected = [{name: np.array(batch[name]) for name in ("image", "mask")} for batch in loader]
        found = take(exchange, name_of(last, stop=length))
        for field, array in expected[last].items():
            np.testing.assert_array_equal(found[field], array)


def test_ragged_batches_too(dataset, folder):
    with (
        make_loader(dataset, transform=[]) as loader,
        host(folder, loader.recipe) as exchange,
        running(dataset, folder),
    ):
        exchange.request([stretch()])
        expected = list(loader)
        prepared = wait_until(lambda: exchange.read(name_of(BATCHES - 1))).arrays
        for at, image in enumerate(expected[-1]["image"]):
            np.testing.assert_array_equal(
                prepared[f"image.{at}"] if "image" not in prepared else prepared["image"][at], image
            )


def test_a_resumed_run_and_a_selection_have_their_own_batches(dataset, folder):
    chosen = np.arange(3, 33)
    with make_loader(dataset, indices=chosen) as loader:
        recipe = loader.recipe
        expected = [np.array(batch["image"]) for batch in loader]
    with host(folder, recipe, rows=chosen) as exchange, running(dataset, folder):
        exchange.request([stretch(top=8, stop=30)])
        np.testing.assert_array_equal(take(exchange, name_of(7, stop=30))["image"], expected[7])
        np.testing.assert_array_equal(take(exchange, name_of(0, stop=30))["image"], expected[0])


def test_every_rank_gets_its_own_batches_in_turn(dataset, folder):
    loaders = [make_loader(dataset, rank=rank, world_size=3, drop_last=True) for rank in range(3)]
    batches = len(loaders[0])
    hosts = [host(folder, loader.recipe, rank=rank) for rank, loader in enumerate(loaders)]
    room = 10_000  # two batches of each rank, so that nobody is done before the others begin
    for exchange in hosts:
        exchange.request([stretch(top=batches)])
    with running(dataset, folder, ahead_bytes=3 * room):
        for number in reversed(range(batches)):
            for rank, exchange in enumerate(hosts):
                expected = list(loaders[rank])[number]["image"]
                loaders[rank].set_epoch(0)
                np.testing.assert_array_equal(take(exchange, name_of(number, rank=rank))["image"], expected)
                exchange.request([stretch(top=number)])
        assert {exchange.heartbeat().batches for exchange in hosts} == {batches}
        assert hosts[0].heartbeat().ranks == 3
        for exchange, loader in zip(hosts, loaders, strict=True):
            exchange.close()
            loader.close()
    assert files_in(folder) == []


def test_it_works_from_the_tail_and_keeps_ahead_by_so_many_bytes(dataset, folder):
    with make_loader(dataset) as loader, host(folder, loader.recipe) as exchange:
        exchange.request([stretch()])
        with running(dataset, folder, ahead_bytes=10_000):
            first = wait_until(lambda: exchange.read(name_of(9)))
            most = 10_000 // first.n_bytes
            assert 1 <= most < BATCHES
            wait_until(lambda: (now := exchange.heartbeat()) and now.state == "waiting" and now.batches == most)
            assert published(folder) == list(range(BATCHES - most, BATCHES))
            beat = exchange.heartbeat()
            assert beat.held_bytes == most * first.n_bytes <= beat.ahead_bytes == 10_000
            exchange.request([stretch(top=BATCHES - 1)])
            wait_until(lambda: exchange.heartbeat().batches == most + 1)
            assert exchange.ready(name_of(BATCHES - 1 - most))


def test_batches_larger_than_the_limit_are_made_one_at_a_time(dataset, folder):
    with make_loader(dataset) as loader, host(folder, loader.recipe) as exchange:
        exchange.request([stretch()])
        with running(dataset, folder, ahead_bytes=1):
            for number in (9, 8, 7):
                take(exchange, name_of(number))
                assert published(folder)[-1:] == [number]
                exchange.request([stretch(top=number)])


def test_consumed_files_are_slots_for_the_next_ones(dataset, folder):
    inodes = set()
    with make_loader(dataset) as loader, host(folder, loader.recipe) as exchange:
        exchange.request([stretch()])
        with running(dataset, folder, ahead_bytes=1):
            for number in reversed(range(BATCHES)):
                take(exchange, name_of(number))
                inodes.add((folder / "run" / "rank-0" / f"0-0-{COUNT}-{number}{SUFFIX}").stat().st_ino)
                exchange.request([stretch(top=number)])
            wait_until(lambda: published(folder) == [])
    assert len(inodes) <= 2


def test_the_next_epoch_is_begun_when_this_one_is_done(dataset, folder):
    with make_loader(dataset) as loader, host(folder, loader.recipe) as exchange, running(dataset, folder):
        exchange.request([stretch(bottom=8), stretch(bottom=9, epoch=1)])
        wait_until(lambda: exchange.ready(name_of(9, epoch=1)))
        assert exchange.heartbeat().marks == ((0, 0, COUNT, 8, 10), (1, 0, COUNT, 9, 10))
        exchange.request([stretch(bottom=9, epoch=1)])
        wait_until(lambda: exchange.heartbeat().marks == ((1, 0, COUNT, 9, 10),))
        wait_until(lambda: exchange.heartbeat().held_bytes < 10_000)


def test_bounds_may_move_either_way(dataset, folder):
    with make_loader(dataset) as loader, host(folder, loader.recipe) as exchange, running(dataset, folder):
        exchange.request([stretch(bottom=4)])
        wait_until(lambda: exchange.ready(name_of(4)))
        exchange.request([stretch(bottom=8)])
        wait_until(lambda: not exchange.ready(name_of(7)))
        exchange.request([stretch(bottom=2, top=6)])
        wait_until(lambda: exchange.ready(name_of(2)))
        exchange.request([stretch(bottom=0)])
        wait_until(lambda: exchange.ready(name_of(0)))
        for number in range(BATCHES):
            assert exchange.read(name_of(number)) is not None


def test_an_epoch_may_be_begun_again(dataset, folder):
    with make_loader(dataset) as loader, host(folder, loader.recipe) as exchange, running(dataset, folder):
        exchange.request([stretch(bottom=5)])
        take(exchange, name_of(5))
        exchange.request([stretch(bottom=5, top=7)])
        wait_until(lambda: exchange.heartbeat().marks == ((0, 0, COUNT, 5, 7),))
        exchange.request([stretch(bottom=5)])
        assert take(exchange, name_of(9))  # never taken for lost


def test_a_batch_with_a_damaged_sample_is_declined(tmp_path, folder):
    path = write(tmp_path / "damaged.hr", formats=("raw",))
    shard = next((path / "shards").iterdir())
    content = bytearray(shard.read_bytes())
    content[200] ^= 1
    shard.write_bytes(content)
    with (
        make_loader(path, shuffle=False) as loader,
        host(folder, loader.recipe) as exchange,
        running(path, folder),
    ):
        exchange.request([stretch()])
        wait_until(lambda: exchange.ready(name_of(0)))
        bad = []
        for number in range(BATCHES):
            try:
                exchange.read(name_of(number))
            except BadPreparedBatch as error:
                bad.append((number, error.kind))
        assert len(bad) == 1
        assert bad[0][1] == "declined"


def test_batches_that_do_not_exist_are_not_made(dataset, folder):
    with make_loader(dataset) as loader, host(folder, loader.recipe) as exchange, running(dataset, folder):
        exchange.request([stretch(bottom=9, top=12), stretch(bottom=9, top=10, epoch=1)])
        wait_until(lambda: exchange.ready(name_of(9, epoch=1)))
        assert exchange.read(name_of(9)) is None
        wait_until(lambda: "requests batch 11 of 10" in exchange.heartbeat().reason)


def test_another_dataset_s_recipe_is_refused_and_left_to_another_worker(dataset, folder, tmp_path):
    other = write(tmp_path / "other.hr", 8)
    with make_loader(dataset) as loader, host(folder, loader.recipe) as exchange, running(other, folder) as wrong:
        exchange.request([stretch(bottom=9)])
        wait_until(lambda: (beat := exchange.heartbeat()) and beat.state == "refused")
        assert "fingerprint" in exchange.heartbeat().reason
        with running(dataset, folder):
            take(exchange, name_of(9))
        assert wrong.progress().ranks == 0
        wait_until(lambda: "fingerprint" in wrong.progress().trouble)


def test_an_invalid_recipe_is_refused(dataset, folder):
    with host(folder, {"version": 7}) as exchange, running(dataset, folder):
        wait_until(lambda: (beat := exchange.heartbeat()) and beat.state == "refused")
        assert "version" in exchange.heartbeat().reason


def test_a_rank_that_cannot_be_taken_is_no_harm_to_others(dataset, folder, monkeypatch):
    claim = RankCells.claim

    def refused(self):
        if self.rank == 0:
            raise PermissionError(13, "Permission denied")
        return claim(self)

    monkeypatch.setattr(RankCells, "claim", refused)
    with make_loader(dataset, rank=0, world_size=2) as loader:
        hosts = [host(folder, loader.recipe, rank=rank) for rank in range(2)]
        hosts[1].request([stretch(bottom=4, top=5)])
        with running(dataset, folder) as worker:
            take(hosts[1], name_of(4, rank=1))
            wait_until(lambda: "Permission denied" in worker.progress().trouble)
        for exchange in hosts:
            exchange.close()


def test_a_worker_can_be_limited_to_some_ranks(dataset, folder):
    with make_loader(dataset, rank=0, world_size=2) as loader:
        hosts = [host(folder, loader.recipe, rank=rank) for rank in range(2)]
        for exchange in hosts:
            exchange.request([stretch(bottom=4, top=5)])
        with running(dataset, folder, ranks={1}):
            take(hosts[1], name_of(4, rank=1))
            assert hosts[0].heartbeat() is None
            with running(dataset, folder, ranks={0}):
                take(hosts[0], name_of(4))
        for exchange in hosts:
            exchange.close()


def test_a_heartbeat_has_the_cost_of_the_worker(dataset, folder):
    with (
        make_loader(dataset) as loader,
        host(folder, loader.recipe) as exchange,
        running(dataset, folder, threads=2),
    ):
        exchange.request([stretch()])
        wait_until(lambda: exchange.ready(name_of(0)))
        wait_until(lambda: exchange.heartbeat().state == "waiting")
        beat = exchange.heartbeat()
        size = sum(file.stat().st_size for file in (folder / "run" / "rank-0").glob(f"*{SUFFIX}"))
        assert beat.batches == BATCHES
        assert beat.written_bytes == beat.held_bytes == size
        assert 0 < beat.seconds_per_batch <= beat.busy_seconds
        assert 0 < beat.mean_bytes <= beat.peak_bytes
        assert (beat.joules, beat.threads, beat.cpu_share, beat.ranks) == (None, 2, 1.0, 1)


def test_the_folder_may_appear_later(dataset, folder):
    folder.rmdir()
    with make_loader(dataset) as loader, running(dataset, folder) as worker:
        wait_until(lambda: "does not exist" in worker.progress().trouble)
        folder.mkdir()
        with host(folder, loader.recipe) as exchange:
            exchange.request([stretch(bottom=9)])
            take(exchange, name_of(9))
            assert worker.progress().trouble == ""


def test_a_path_that_is_no_dataset_is_an_error_at_once(tmp_path, folder):
    with pytest.raises((HeadraceError, OSError)):
        OffloadWorker(tmp_path / "absent.hr", folder)


def test_once_ends_with_what_it_served(dataset, folder):
    worker = OffloadWorker(dataset, folder)
    with make_loader(dataset) as loader:
        exchange = host(folder, loader.recipe)
        exchange.request([stretch(bottom=9)])
        shown = []

        def show(now: OffloadWorker) -> None:
            shown.append(now.progress())
            if exchange.ready(name_of(9)):
                exchange.close()

        worker.run(once=True, show=show)
    assert shown[-1].batches == 1
    assert files_in(folder) == []


def test_idle_time_does_not_count_as_time_of_a_batch(dataset, folder):
    with make_loader(dataset) as loader, host(folder, loader.recipe) as exchange, running(dataset, folder):
        exchange.request([stretch(bottom=7)])
        wait_until(lambda: exchange.ready(name_of(7)))
        wait_until(lambda: exchange.heartbeat().state == "waiting")
        before = exchange.heartbeat().busy_seconds
        begun = time.monotonic()
        time.sleep(0.5)
        exchange.request([stretch(bottom=6, top=7)])
        wait_until(lambda: exchange.ready(name_of(6)))
        assert exchange.heartbeat().busy_seconds - before < time.monotonic() - begun - 0.4
