# SPDX-License-Identifier: Apache-2.0
"""What Headrace asks of the operating system, and what it does on one that has less than Linux."""

from __future__ import annotations

import os
import threading

import pytest

from headrace import system
from headrace.files import publish, read_at
from headrace.measuring import held_to, measure_raw_files, metered
from headrace.units import usable_cores

MISSING_ON_WINDOWS = ("preadv", "posix_fadvise", "sched_getaffinity", "sched_setaffinity", "O_DIRECTORY", "sysconf")
MISSING_ON_MACOS = ("posix_fadvise", "sched_getaffinity", "sched_setaffinity")


@pytest.fixture(params=[(), MISSING_ON_MACOS, MISSING_ON_WINDOWS], ids=["linux", "as on macos", "as on windows"])
def any_system(request, monkeypatch):
    """The functions of this system, or those that another one has."""
    for name in request.param:
        monkeypatch.delattr(os, name)
    return request.param


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(256)) * 40)
    return path


@pytest.mark.usefixtures("any_system")
def test_threads_read_one_file_at_their_own_offsets(file):
    handle = os.open(file, os.O_RDONLY)
    wrong = []

    def read(first):
        for offset in range(first, 5000, 7):
            memory = bytearray(100)
            if read_at(handle, offset, memory) != 100 or memory[0] != offset % 256 or memory[99] != (offset + 99) % 256:
                wrong.append(offset)

    threads = [threading.Thread(target=read, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    memory = bytearray(100)

    assert wrong == []
    assert read_at(handle, 256 * 40 - 3, memory) == 3
    assert read_at(handle, 256 * 40, memory) == 0
    os.close(handle)


@pytest.mark.usefixtures("any_system")
def test_a_published_file_has_its_final_name(tmp_path):
    temporary = tmp_path / "temporary"
    temporary.write_bytes(b"content")
    publish(temporary, tmp_path / "final")

    assert (tmp_path / "final").read_bytes() == b"content"
    assert not temporary.exists()


def test_cores_can_be_restricted_or_are_all_used(any_system):
    before = usable_cores()
    with held_to(1):
        assert usable_cores() == (before if "sched_getaffinity" in any_system else 1)

    assert usable_cores() == before


@pytest.mark.usefixtures("any_system")
def test_eviction_does_nothing_where_it_is_not_supported(file):
    assert measure_raw_files([file], cold=True).images == 1


def test_memory_and_time_are_measured_without_proc(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.measuring._process._PROC", tmp_path)
    with metered() as use:
        sum(range(100_000))

    assert use.cpu_seconds > 0
    assert use.peak_bytes == system.peak_memory()


def test_a_file_is_locked_by_one_handle_at_a_time(file):
    first, second = (os.open(file, os.O_RDWR) for _ in range(2))
    system.lock_file(first)
    with pytest.raises(BlockingIOError):
        system.lock_file(second)
    os.close(first)
    system.lock_file(second)
    os.close(second)
