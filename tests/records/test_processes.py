# SPDX-License-Identifier: Apache-2.0
"""A dataset goes to threads and to processes of every kind, small and ready to use."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.records.samples import assert_same, make_sample

import headrace
from headrace.errors import CorruptDataset

START_METHODS = multiprocessing.get_all_start_methods()


def best_of(repeats, call):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def test_it_pickles_small_and_fast(ds):
    assert len(pickle.dumps(ds)) < 4096
    assert best_of(5, lambda: pickle.dumps(ds)) < 1e-3
    copy = pickle.loads(pickle.dumps(ds))
    assert_same(make_sample(11), copy[11])


def test_views_pickle_too(ds):
    view = pickle.loads(pickle.dumps(ds.select([5, 2])))
    assert [view.key(i) for i in range(2)] == ["sample/5", "sample/2"]
    assert len(pickle.loads(pickle.dumps(ds.select([])))) == 0


def test_a_dataset_that_was_built_anew_is_noticed(tmp_path):
    def write(value):
        with headrace.Writer(tmp_path / "a.hr", fields={"n": "int64"}, force=True, workers=1) as writer:
            writer.write({"n": value})
        return headrace.open(tmp_path / "a.hr")

    pickled = pickle.dumps(write(1))
    write(2)
    with pytest.raises(CorruptDataset, match="built again"):
        pickle.loads(pickled)


def serve(ds, requests, answers):
    """Answer with the epoch and a sample's name until told to stop."""
    while (index := requests.get()) is not None:
        answers.put((ds.epoch, len(ds), ds[index]["name"]))


def start(context, ds, requests, answers):
    process = context.Process(target=serve, args=(ds, requests, answers))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forking with threads
        process.start()
    return process


@pytest.mark.parametrize("method", START_METHODS)
def test_running_workers_see_the_epoch(ds, method):
    context = multiprocessing.get_context(method)
    requests, answers = context.Queue(), context.Queue()
    ds.set_epoch(3)
    process = start(context, ds.select(np.arange(30)[::-1]), requests, answers)
    try:
        for epoch in (3, 4, 2**40):
            ds.set_epoch(epoch)
            requests.put(epoch % 7)
            assert answers.get(timeout=60) == (epoch, 30, f"№ {29 - epoch % 7}")
    finally:
        requests.put(None)
        process.join(60)
    assert process.exitcode == 0


def test_views_share_the_epoch_and_datasets_do_not(ds, path):
    view = ds.select([1])
    other = headrace.open(path)
    view.set_epoch(8)
    assert (ds.epoch, view.epoch, other.epoch) == (8, 8, 0)
    assert pickle.loads(pickle.dumps(ds)).epoch == 8


def test_threads_share_a_dataset(ds):
    def check(number):
        assert_same(make_sample(number % 30), ds[number % 30])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check, range(600)))


@pytest.mark.skipif("fork" not in START_METHODS, reason="no fork here")
def test_a_fork_in_the_middle_of_reading(ds):
    """Children that are forked while other threads read can read too."""
    stop = threading.Event()

    def read():
        while not stop.is_set():
            ds[np.random.default_rng().integers(30)]

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            for _ in range(10):
                child = os.fork()
                if child == 0:
                    os._exit(0 if ds[7]["name"] == "№ 7" else 1)
                assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for reader in readers:
            reader.join()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts handles in /proc")
def test_nothing_is_left_open(path):
    def handles():
        return len(list(Path("/proc/self/fd").iterdir()))

    headrace.open(path)[0]
    before = handles()
    for _ in range(20):
        ds = headrace.open(path).split({"a": 0.5, "b": 0.5})["a"]
        ds.set_epoch(1)
        ds[0]
    del ds
    assert handles() <= before


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more processes than the machine has cores
def test_the_stock_data_loader_takes_it(ds):
    data = pytest.importorskip("torch.utils.data")
    loader = data.DataLoader(
        ds, batch_size=4, num_workers=2, persistent_workers=True, collate_fn=list, multiprocessing_context="spawn"
    )
    for _ in range(2):
        assert [sample["name"] for batch in loader for sample in batch] == [f"№ {n}" for n in range(30)]
