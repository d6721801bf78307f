# SPDX-License-Identifier: Apache-2.0
"""A prepared batch is a safetensors file of arrays, and nothing damaged or foreign is taken."""

from __future__ import annotations

import errno
import json
import os
import struct

import numpy as np
import pytest
from tests.loader.datasets import assert_equal

from headrace.errors import BadPreparedBatch
from headrace.offload.exchange import BatchName, Stretch, _batch_file
from headrace.offload.exchange._batch_file import (
    BatchReader,
    BatchWriter,
    Buffers,
    batch_file,
    is_within,
    pack_batch,
)
from headrace.offload.exchange._batch_header import CHECKSUM_PLACE
from headrace.offload.exchange._names import NAME_PATTERN, Origin, batch_of, rank_of
from headrace.records.checksum import crc32c

NAME = BatchName(epoch=3, rank=1, start=0, stop=640, number=39)
ORIGIN = Origin("run", "00aa", "f" * 32)


def make_batch() -> dict:
    rng = np.random.default_rng(0)
    return {
        "image": rng.integers(0, 256, (3, 3, 17, 13), np.uint8),
        "label": np.arange(3),
        "weight": rng.random(3, np.float32),
        "half": rng.random((3, 2)).astype(np.float16),
        "_repeat": np.array([False, False, True]),
        "ragged.0": rng.integers(0, 9, (4, 5, 3)).astype(np.uint16),
        "ragged.1": np.zeros((0, 5, 3), np.uint16),
        "empty": np.zeros((2, 0), np.float64),
        "one": np.array(7, np.int8),
    }


def written(batch: dict, declined: str | None = None, name: BatchName = NAME) -> bytearray:
    file = pack_batch(name, ORIGIN, batch, declined)
    content = bytearray(b"".join(bytes(piece) for piece in file.pieces))
    assert len(content) == file.n_bytes
    return content


def read(
    content: bytes | bytearray, name: BatchName = NAME, origin: Origin = ORIGIN, reader: BatchReader | None = None
):
    blanked = bytearray(content)
    begin, size = CHECKSUM_PLACE
    blanked[begin : begin + size] = b"0" * size
    content = np.frombuffer(bytearray(content), np.uint8)
    return (reader or BatchReader(origin)).unpack(content, crc32c(blanked), name, "a/file")


def test_everything_that_a_batch_can_hold_comes_back():
    batch = make_batch()

    assert_equal(read(written(batch)), batch)


def test_any_reader_of_safetensors_can_open_it(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    batch = make_batch()
    path = tmp_path / "batch.safetensors"
    path.write_bytes(written(batch))

    tensors = safetensors.load_file(path)

    assert_equal({name: tensors[name] for name in batch}, batch)


def test_data_begins_at_a_page_with_the_largest_tensor_and_tensors_at_multiples_of_64():
    content = written(make_batch())
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    starts = {name: entry["data_offsets"][0] for name, entry in header.items() if name != "__metadata__"}

    assert (8 + length) % 4096 == 0
    assert starts["image"] == 0
    assert all(start % 64 == 0 for name, start in starts.items() if not name.startswith("_padding."))


def test_a_file_is_whole_blocks():
    for batch in (make_batch(), {"image": np.zeros(4096, np.uint8)}, {}):
        assert len(written(batch)) % 4096 == 0


def test_arrays_are_not_copied_to_be_written():
    batch = {"image": np.zeros((2, 3, 64, 64), np.uint8), "weight": np.zeros(100, np.float32)}
    pieces = pack_batch(NAME, ORIGIN, batch).pieces

    for array in batch.values():
        assert any(np.shares_memory(array, np.frombuffer(piece, np.uint8)) for piece in pieces)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"image": np.zeros(2, np.complex64)}, "complex64"),
        ({"image": np.zeros(2, ">f4")}, "dtype >f4"),
        ({1: np.zeros(2)}, "^1 must not be the name"),
        ({"_padding.1": np.zeros(2)}, "'_padding.1' must not be the name"),
        ({"__metadata__": np.zeros(2)}, "'__metadata__' must not be the name"),
    ],
)
def test_what_it_cannot_hold_is_named(batch, message):
    with pytest.raises(ValueError, match=message):
        pack_batch(NAME, ORIGIN, batch)


def test_every_flipped_byte_is_found():
    content = written({"image": np.arange(300, dtype=np.uint8)})
    rng = np.random.default_rng(1)

    for at in {*range(60), *rng.integers(0, len(content), 400).tolist(), len(content) - 1}:
        damaged = bytearray(content)
        damaged[at] ^= 1 << int(rng.integers(8))
        with pytest.raises(BadPreparedBatch) as caught:
            read(damaged)
        assert caught.value.kind in ("damaged", "foreign")


@pytest.mark.parametrize("keep", [0, 7, 4095, 4096, 5000, -1])
def test_a_truncated_file_is_refused(keep):
    content = written({"image": np.zeros(9000, np.uint8)})

    with pytest.raises(BadPreparedBatch, match=r"truncated|damaged") as caught:
        read(content[:keep])
    assert caught.value.kind == "damaged"


def test_a_longer_file_is_refused():
    with pytest.raises(BadPreparedBatch, match="checksum"):
        read(written({"image": np.zeros(9, np.uint8)}) + b"\0")


@pytest.mark.parametrize(
    ("name", "origin", "label"),
    [
        (NAME._replace(epoch=4), ORIGIN, "epoch"),
        (NAME._replace(rank=0), ORIGIN, "rank"),
        (NAME._replace(start=64), ORIGIN, "start"),
        (NAME._replace(stop=600), ORIGIN, "stop"),
        (NAME._replace(number=38), ORIGIN, "number"),
        (NAME, ORIGIN._replace(run="other"), "run"),
        (NAME, ORIGIN._replace(session="00ab"), "session"),
        (NAME, ORIGIN._replace(recipe="e" * 32), "recipe"),
    ],
)
def test_a_batch_of_another_place_or_run_is_foreign(name, origin, label):
    with pytest.raises(BadPreparedBatch, match=f"a/file: {label} must be .*; found .*") as caught:
        read(written(make_batch()), name, origin)
    assert caught.value.kind == "foreign"


def test_a_header_that_is_known_is_not_taken_apart_again():
    reader = BatchReader(ORIGIN)
    batches = [{"image": np.full((2, 3), at, np.uint8), "number": np.arange(2)} for at in range(12)]
    known = set()
    for at in (11, 10, 9, 8, 1):
        name = NAME._replace(number=at)
        assert_equal(read(written(batches[at], name=name), name, reader=reader), batches[at])
        known.add(id(reader._last))

    assert len(known) == 1


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (NAME._replace(epoch=4), "epoch"),
        (NAME._replace(rank=0), "rank"),
        (NAME._replace(start=64), "start"),
        (NAME._replace(stop=600), "stop"),
        (NAME._replace(number=38), "number"),
        (NAME._replace(number=3), "number"),
        (NAME._replace(number=9), "number"),
    ],
)
def test_a_header_that_is_known_is_still_that_of_another_batch(name, label):
    reader = BatchReader(ORIGIN)
    content = written(make_batch())
    read(content, reader=reader)

    with pytest.raises(BadPreparedBatch, match=f"{label} must be .*; found"):
        read(content, name, reader=reader)
    assert_equal(read(content, reader=reader), make_batch())


def test_batches_of_other_shapes_follow_each_other():
    reader = BatchReader(ORIGIN)
    for shape in ((3, 5), (5, 3), (15,), (4000,), (5, 3)):
        batch = {"image": np.arange(np.prod(shape), dtype=np.int16).reshape(shape)}
        assert_equal(read(written(batch), reader=reader), batch)


def test_another_program_s_safetensors_are_foreign():
    safetensors = pytest.importorskip("safetensors.numpy")
    content = safetensors.save({"image": np.zeros(8192, np.uint8)})
    padded = struct.pack("<Q", 4088) + content[8 : 8 + struct.unpack_from("<Q", content)[0]].ljust(4088) + bytes(8192)

    for foreign in (content, padded, bytes(5000)):
        with pytest.raises(BadPreparedBatch):
            read(foreign)


def test_a_declined_batch_says_why():
    with pytest.raises(BadPreparedBatch, match="row 7 is damaged") as caught:
        read(written({}, declined="row 7 is damaged"))
    assert caught.value.kind == "declined"


def aligned(n_bytes: int) -> np.ndarray:
    memory = np.empty(n_bytes + 4096, np.uint8)
    shift = -memory.ctypes.data % 4096
    memory[shift : shift + n_bytes] = np.arange(n_bytes) % 251
    return memory[shift : shift + n_bytes]


class TestWriter:
    @pytest.mark.parametrize("n_bytes", [0, 1, 4096, 50_000, 3 << 20])
    @pytest.mark.parametrize("offset", [0, 64])
    def test_it_writes_the_bytes_of_a_batch_wherever_they_lie(self, tmp_path, n_bytes, offset):
        """Memory that is aligned is written as it is, all else through a scratch memory."""
        batch = {"image": aligned(n_bytes + offset)[offset:], "label": np.arange(5), "_rows": np.arange(9)}
        writer, path = BatchWriter(), tmp_path / "batch"
        for _ in range(2):  # anew, and over what is there
            writer.write(path, pack_batch(NAME, ORIGIN, batch))

            assert path.read_bytes() == written(batch)

    def test_a_shorter_batch_leaves_nothing_of_a_longer_one(self, tmp_path):
        writer, path = BatchWriter(), tmp_path / "batch"
        writer.write(path, pack_batch(NAME, ORIGIN, {"image": aligned(100_000)}))
        writer.write(path, pack_batch(NAME, ORIGIN, {"image": aligned(5000)}))

        assert path.read_bytes() == written({"image": aligned(5000)})

    def test_a_batch_of_many_pieces_is_written_in_turns(self, tmp_path):
        batch = {f"many.{at}": np.full(7, at % 251, np.uint8) for at in range(3000)}
        for writer in (BatchWriter(), BatchWriter()):
            writer.direct = writer.direct and not (tmp_path / "batch").exists()
            writer.write(tmp_path / "batch", pack_batch(NAME, ORIGIN, batch))

            assert (tmp_path / "batch").read_bytes() == written(batch)

    @pytest.mark.parametrize("call", ["open", "pwritev"])
    def test_a_file_system_without_direct_writes_is_written_as_it_can_be(self, tmp_path, monkeypatch, call):
        """Some refuse when the file is opened, some when it is written."""
        really = getattr(os, call)
        refused = []

        def refuse(*arguments, **named):
            if not refused:
                refused.append(arguments)
                raise OSError(errno.EINVAL, "Invalid argument")
            return really(*arguments, **named)

        monkeypatch.setattr(os, call, refuse)
        writer, batch = BatchWriter(), {"image": aligned(9000)}
        writer.write(tmp_path / "batch", pack_batch(NAME, ORIGIN, batch))

        assert refused
        assert not writer.direct
        assert (tmp_path / "batch").read_bytes() == written(batch)

    def test_a_full_disk_is_an_error(self, tmp_path, monkeypatch):
        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "pwritev", full)
        writer = BatchWriter()
        with pytest.raises(OSError, match="No space"):
            writer.write(tmp_path / "batch", pack_batch(NAME, ORIGIN, {}))
        assert writer.direct


class TestReader:
    def write(self, tmp_path, batch, name=NAME):
        path = tmp_path / batch_file(name)
        path.write_bytes(written(batch))
        return path

    @pytest.mark.parametrize("direct", [True, False])
    def test_it_gives_writable_views_of_aligned_memory(self, tmp_path, direct):
        batch = make_batch()
        reader = BatchReader(ORIGIN)
        reader.direct = direct
        prepared = reader.read(self.write(tmp_path, batch), NAME)

        assert_equal(prepared.arrays, batch)
        assert prepared.n_bytes == len(written(batch))
        assert prepared.seconds > 0
        assert prepared.cpu_seconds > 0
        assert prepared.arrays["image"].ctypes.data % 4096 == 0
        assert prepared.arrays["image"].flags.writeable
        assert not prepared.arrays["image"].flags.owndata

    def test_a_buffer_is_used_again_only_when_its_last_view_is_gone(self, tmp_path):
        path = self.write(tmp_path, {"image": np.arange(5000, dtype=np.uint8)})
        buffers = Buffers()
        reader = BatchReader(ORIGIN, take=buffers.take)
        kept = reader.read(path, NAME).arrays["image"][100:200]
        seen = {reader.read(path, NAME).arrays["image"].ctypes.data for _ in range(5)}

        assert kept.ctypes.data - 100 not in seen
        np.testing.assert_array_equal(kept, np.arange(100, 200, dtype=np.uint8))
        assert buffers.allocated == 2
        del kept
        assert len({reader.read(path, NAME).arrays["image"].ctypes.data for _ in range(5)}) <= 2
        assert buffers.allocated == 2

    def test_memory_may_come_from_elsewhere_and_is_aligned_if_it_was_not(self, tmp_path):
        asked = []

        def allocate(n_bytes):
            asked.append(n_bytes)
            return np.empty(n_bytes + 1, np.uint8)[1:]

        reader = BatchReader(ORIGIN, take=Buffers(allocate).take)
        prepared = reader.read(self.write(tmp_path, make_batch()), NAME)

        assert asked
        assert prepared.arrays["image"].ctypes.data % 4096 == 0

    def test_a_file_system_without_direct_reads_is_read_as_it_can_be(self, tmp_path, monkeypatch):
        really = _batch_file.read_file

        def refuse(handle, memory, *, direct, blank):
            if direct:
                raise OSError(errno.EINVAL, "Invalid argument")
            return really(handle, memory, direct=direct, blank=blank)

        monkeypatch.setattr(_batch_file, "read_file", refuse)
        reader = BatchReader(ORIGIN)
        assert_equal(reader.read(self.write(tmp_path, make_batch()), NAME).arrays, make_batch())
        assert not reader.direct

    def test_files_may_grow_and_shrink(self, tmp_path):
        reader = BatchReader(ORIGIN)
        for size in (10, 100_000, 0, 3_000_000, 5):
            batch = {"image": np.arange(size, dtype=np.uint32)}
            assert_equal(reader.read(self.write(tmp_path, batch), NAME).arrays, batch)

    def test_an_empty_file_is_damaged(self, tmp_path):
        (tmp_path / "empty").touch()
        reader = BatchReader(ORIGIN)
        for _ in range(2):
            with pytest.raises(BadPreparedBatch, match="truncated"):
                reader.read(tmp_path / "empty", NAME)

    def test_what_is_not_there_is_none_and_what_cannot_be_read_is_an_error(self, tmp_path):
        assert BatchReader(ORIGIN).read(tmp_path / "absent", NAME) is None
        (tmp_path / "folder").mkdir()
        with pytest.raises(BadPreparedBatch, match="cannot be read") as caught:
            BatchReader(ORIGIN).read(tmp_path / "folder", NAME)
        assert caught.value.kind == "unreadable"


def test_names_are_read_as_they_are_written():
    assert batch_of(batch_file(NAME), NAME.rank) == NAME
    for other in ("recipe.json", ".batch.x.tmp", "1-2-3.safetensors", "a-0-0-0.safetensors"):
        assert batch_of(other, 0) is None
    assert [rank_of(name) for name in ("rank-0", "rank-12", "rank-01", "rank", ".rank-0.x.tmp")] == [
        *(0, 12),
        *(None, None, None),
    ]
    assert [bool(NAME_PATTERN.fullmatch(name)) for name in ("a-B_9", "../a", "")] == [True, False, False]


def test_a_stretch_wants_what_lies_between_its_ends():
    stretches = [Stretch(3, 0, 640, 30, 40)]

    assert is_within(NAME, stretches)
    assert not is_within(NAME._replace(number=40), stretches)
    assert not is_within(NAME._replace(number=29), stretches)
    assert not is_within(NAME._replace(stop=641), stretches)
