# SPDX-License-Identifier: Apache-2.0
"""Few, aligned reads that cover what is wanted; and files that many threads read."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import CorruptDataset
from headrace.storage import Extent, Files, Pace
from headrace.storage import _files as files_module
from headrace.storage._device import BLOCK_BYTES, ReadRun, coalesce


def test_neighbours_are_read_at_once():
    assert coalesce([Extent(100, 10), Extent(5000, 10)], 1 << 20) == [ReadRun(0, 8192, (0, 1))]


def test_what_lies_far_apart_is_read_apart():
    assert coalesce([Extent(900_000, 8), Extent(0, 1)], 1 << 20) == [
        ReadRun(0, 4096, (1,)),
        ReadRun(897_024, 4096, (0,)),
    ]


def test_the_end_of_the_file_is_the_end_of_a_read():
    assert coalesce([Extent(4999, 1)], 5000) == [ReadRun(4096, 904, (0,))]


def test_an_extent_within_another_makes_no_read_shorter():
    assert coalesce([Extent(0, 9000), Extent(10, 1)], 9000) == [ReadRun(0, 9000, (0, 1))]


@pytest.mark.parametrize("seed", range(20))
def test_every_extent_lies_in_its_read(seed):
    rng = random.Random(seed)
    n_bytes = rng.randrange(1, 3_000_000)
    extents = []
    for _ in range(rng.randrange(30)):
        offset = rng.randrange(n_bytes)
        extents.append(Extent(offset, rng.randint(1, min(n_bytes - offset, 50_000))))
    runs = coalesce(extents, n_bytes, max_gap=rng.choice([0, 4096, 65536]))
    assert sorted(number for run in runs for number in run.extents) == list(range(len(extents)))
    for run, following in pairwise([*runs, None]):
        assert run.offset % BLOCK_BYTES == 0
        end = run.offset + run.length
        assert end % BLOCK_BYTES == 0 or end == n_bytes
        assert following is None or following.offset > end
        for number in run.extents:
            assert run.offset <= extents[number].offset < extents[number].end <= end


@pytest.fixture
def folder(tmp_path):
    for number in range(5):
        (tmp_path / str(number)).write_bytes(bytes([number]) * 10_000)
    return tmp_path


def handle_count():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_many_threads_read_many_files(folder, monkeypatch):
    """With fewer handles than files: those in use stay open until they are read."""
    monkeypatch.setattr(files_module, "_MAX_OPEN", 2)
    files = Files()

    def read(task):
        memory = np.empty(100, np.uint8)
        files.read_into(folder / str(task % 5), task, memory)
        return (memory == task % 5).all()

    before = handle_count()
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(500)))
    files.close()
    assert handle_count() <= before


def test_a_file_that_ends_too_early(folder):
    with pytest.raises(CorruptDataset, match=r"3 is truncated at offset 10000"):
        Files().read_into(folder / "3", 9_990, np.empty(11, np.uint8))


def test_a_folder_is_no_file(folder):
    with pytest.raises(CorruptDataset, match="cannot be read"):
        Files().read_into(folder, 0, np.empty(1, np.uint8))


def test_a_pace_is_kept_by_all_together(monkeypatch):
    """On a clock that only sleeping moves."""
    now, slept = [100.0], []
    monkeypatch.setattr(files_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(files_module.time, "sleep", slept.append)
    pace = Pace(1000)
    pace.wait(500)
    pace.wait(1500)
    now[0] += 10
    pace.wait(100)
    assert slept == [0.5, 2.0, pytest.approx(0.1)]
    pace.rate = None
    pace.wait(10**12)
    assert len(slept) == 3
