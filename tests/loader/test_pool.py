# SPDX-License-Identifier: Apache-2.0
"""Memory for batches: used again at once, and given back to the system when nobody needs it any more."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

from headrace import _core

SIZE = 3 << 20


@pytest.fixture
def engine():
    engine = _core.Engine([], threads=1)
    yield engine
    engine.close()


def address(memory):
    return memory.__array_interface__["data"][0]


def is_mapped(at):
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    ranges = ([int(end, 16) for end in line.split()[0].split("-")] for line in lines)
    return any(first <= at < last for first, last in ranges)


def test_memory_is_whole_pages_and_comes_back_with_its_last_view(engine):
    memory = engine.memory(SIZE)
    at, view = address(memory), memory[100:200]
    assert memory.nbytes >= SIZE
    assert at % 4096 == 0
    del memory
    assert address(engine.memory(SIZE)) != at
    del view
    assert address(engine.memory(SIZE)) == at


@pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="the system does not tell what is present")
def test_its_pages_are_present(engine):
    """A direct read that has to find them takes several times as long."""
    if tuple(map(int, platform.release().split("-")[0].split(".")[:2])) < (5, 14):
        pytest.skip("this kernel cannot be asked for them")
    memory = engine.memory(SIZE)
    with Path("/proc/self/pagemap").open("rb") as pagemap:
        pagemap.seek(address(memory) // 4096 * 8)
        entries = np.frombuffer(pagemap.read(SIZE // 4096 * 8), np.uint64)
    assert (entries >> np.uint64(63)).all()


def test_a_prepared_batch_fits_where_one_of_whole_huge_pages_has_been(engine):
    at = address(engine.memory(4 << 20))
    assert address(engine.memory((4 << 20) + 8192)) == at


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not tell what is mapped")
def test_what_nobody_needs_goes_back_to_the_system(engine):
    held = [engine.memory(SIZE) for _ in range(3)]
    for each in held:
        each[:] = 1
    addresses = [address(each) for each in held]
    del each
    held.clear()
    assert all(map(is_mapped, addresses))
    for _ in range(200):
        engine.memory(SIZE)
    assert sum(map(is_mapped, addresses)) == 1


def test_what_is_needed_now_and_then_stays(engine):
    seen = set()
    for _ in range(30):
        both = [engine.memory(SIZE) for _ in range(2)]
        seen.update(map(address, both))
        del both
        for _ in range(10):
            engine.memory(SIZE)
    assert len(seen) == 2


def test_an_engine_that_is_closed_still_has_memory(engine):
    engine.close()
    assert engine.memory(1).nbytes >= 1
