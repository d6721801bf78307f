# SPDX-License-Identifier: Apache-2.0
"""A file is read and summed in one call, past the page cache or not, and never beyond the memory that was given."""

from __future__ import annotations

import errno
import mmap
import os

import numpy as np
import pytest

from headrace._core import crc32c, read_file

CHUNK = 256 << 10  # read and summed at a time, where the page cache has it
SIZES = [0, 1, 4095, 4096, 4097, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5000]


def read(path, memory, *, direct=False, blank=(0, 0)):
    handle = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    try:
        return read_file(handle, memory, direct=direct, blank=blank)
    finally:
        os.close(handle)


def pages(n_bytes: int) -> np.ndarray:
    return np.frombuffer(mmap.mmap(-1, max(4096, -(-n_bytes // 4096) * 4096)), np.uint8)


def content_of(n_bytes: int) -> bytes:
    return np.random.default_rng(n_bytes).integers(0, 256, n_bytes, np.uint8).tobytes()


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("n_bytes", SIZES)
def test_it_gives_the_bytes_their_number_and_their_sum(tmp_path, n_bytes, direct):
    content, memory = content_of(n_bytes), pages(n_bytes)
    (tmp_path / "file").write_bytes(content)
    found = read(tmp_path / "file", memory, direct=direct, blank=(0, 0))

    assert found == (n_bytes, crc32c(content, 0))
    assert memory[:n_bytes].tobytes() == content


@pytest.mark.parametrize("blank", [(0, 8), (35, 8), (CHUNK - 3, 8), (CHUNK, 8), (3 * CHUNK + 4995, 8), (9 * CHUNK, 8)])
def test_the_blank_counts_as_digits_of_zero(tmp_path, blank):
    content = bytearray(content_of(3 * CHUNK + 5000))
    (tmp_path / "file").write_bytes(content)
    _, found = read(tmp_path / "file", pages(len(content)), direct=False, blank=blank)
    content[slice(blank[0], sum(blank))] = b"0" * len(content[slice(blank[0], sum(blank))])

    assert found == crc32c(content, 0)


@pytest.mark.parametrize(("direct", "room"), [(False, 4999), (True, 4096), (True, 5000)])
def test_a_file_that_is_larger_than_the_memory_is_not_read(tmp_path, direct, room):
    (tmp_path / "file").write_bytes(content_of(5000))
    memory = pages(8192)
    memory[:] = 77

    assert read(tmp_path / "file", memory[:room], direct=direct, blank=(0, 0)) == (5000, None)
    assert (memory == 77).all()


def test_it_writes_nothing_behind_the_file(tmp_path):
    (tmp_path / "file").write_bytes(content_of(5000))
    memory = pages(16384)
    memory[:] = 77
    read(tmp_path / "file", memory, direct=False, blank=(0, 0))

    assert (memory[5000:] == 77).all()


def test_what_is_no_regular_file_is_an_error(tmp_path):
    with pytest.raises(IsADirectoryError):
        read(tmp_path, pages(1))
    ends = os.pipe()
    with pytest.raises(OSError, match="No such device") as caught:
        read_file(ends[0], pages(1), direct=False, blank=(0, 0))
    assert caught.value.errno == errno.ENXIO
    for end in ends:
        os.close(end)
    with pytest.raises(OSError, match="Bad file"):
        read_file(ends[0], pages(1), direct=False, blank=(0, 0))


def test_memory_must_be_writable_and_in_one_piece(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    for memory in (b"12345678", np.zeros(16, np.uint8)[::2], "text"):
        with pytest.raises(TypeError, match="writable buffer"):
            read(tmp_path / "file", memory, direct=False, blank=(0, 0))
