# SPDX-License-Identifier: Apache-2.0
"""Damaged samples and early ends where a device decodes: the errors, gaps and substitutes of the CPU's path."""

from __future__ import annotations

import gc
import os
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.loader.datasets import labels, our_threads, threads_left, write  # noqa: E402

import headrace  # noqa: E402
from headrace import kernels  # noqa: E402
from headrace.errors import CorruptDataset, CorruptImage, LoaderError, TransformError  # noqa: E402
from headrace.kernels import backend  # noqa: E402
from headrace.records.checksum import crc32c  # noqa: E402
from headrace.transforms import CenterCrop, RandomCrop, Resize  # noqa: E402

COUNT = 12


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    return write(tmp_path_factory.mktemp("device") / "whole.hr", COUNT, formats=("hri:fast", "hri:dense", "png"))


@pytest.fixture(autouse=True)
def _plain_pytorch(monkeypatch):
    monkeypatch.setattr(backend, "interprets", lambda: False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def hurt(whole, tmp_path):
    """A copy of the dataset, and a way to write other bytes over the image of a sample."""
    copy = shutil.copytree(whole, tmp_path / "hurt.hr")
    ds = headrace.open(copy)

    def damage(row, change=lambda data: bytes(len(data))):
        data, rendition = ds.read(row, "image")
        changed = change(bytes(data))
        assert len(changed) == len(data)
        with (copy / rendition.shard).open("r+b") as file:
            file.seek(rendition.offset)
            file.write(changed)

    return copy, damage


def load(path, decode="device", **options):
    options = {"transform": [CenterCrop(12)], "num_workers": 2, "batch_size": 4, **options}
    return headrace.Loader(path, device="cpu", decode=decode, **options)


def flipped_end(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def behind_its_sums(data):
    """The same file with a colour code in its first tile that there is not, and with checksums that match."""
    metadata_bytes, rank_bytes = struct.unpack_from("<II", data, 16)
    index = 24 + metadata_bytes + rank_bytes
    head = headrace.inspect(data)
    tiles = -(-head.width // head.tile_shape[1]) * -(-head.height // head.tile_shape[0])
    changed = bytearray(data)
    length = struct.unpack_from("<I", data, index)[0]
    begin = index + 8 * tiles + 4
    changed[begin : begin + 2] = {"fast": 3, "dense": 4}[head.mode], 0xFF
    struct.pack_into("<I", changed, index + 4 * tiles, crc32c(bytes(changed[begin : begin + length])))
    struct.pack_into("<I", changed, begin - 4, crc32c(bytes(changed[: begin - 4])))
    kernels.stage_batch([bytes(changed)])  # the host finds nothing
    return bytes(changed)


def our_rows(path):
    """Rows whose image the device decodes."""
    ds = headrace.open(path)
    return [row for row in range(len(ds)) if ds.read(row, "image")[1].format.startswith("hri")]


@pytest.mark.parametrize("change", [lambda data: bytes(len(data)), flipped_end, behind_its_sums])
def test_a_damaged_image_is_named(hurt, change):
    """Whether the host finds it in the head or in a checksum, or the device within a tile."""
    copy, damage = hurt
    row = our_rows(copy)[1]
    damage(row, change)
    with load(copy, indices=[row], transform=[Resize(8)]) as loader, pytest.raises(CorruptImage) as caught:
        list(loader)
    _, rendition = headrace.open(copy).read(row, "image")
    for part in (f"sample/{row}", "'image'", f"offset {rendition.offset}", rendition.shard, "on_error"):
        assert part in str(caught.value)
    assert "image 0" not in str(caught.value)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("transform", [[CenterCrop(12)], None], ids=["uniform", "ragged"])
def test_what_is_skipped_or_replaced_is_that_of_the_cpu(hurt, on_error, transform):
    copy, damage = hurt
    first, second, third, *_ = our_rows(copy)
    damage(first)
    damage(second, flipped_end)
    damage(third, behind_its_sums)
    options = {"on_error": on_error, "transform": transform, "shuffle": True}
    with load(copy, **options) as on_device, load(copy, "cpu", **options) as on_cpu:
        for found, expected in zip(on_device, on_cpu, strict=True):
            assert labels([found]) == labels([expected])
            assert type(found["image"]) is type(expected["image"])
            for one, other in zip(found["image"], expected["image"], strict=True):
                assert torch.equal(one, other)
        on_device_stats, on_cpu_stats = on_device.stats(), on_cpu.stats()
    damaged = {error.row for error in on_cpu_stats.errors}
    assert {first, third} <= damaged  # a crop may pass the second one's damage by
    assert {error.row for error in on_device_stats.errors} == damaged


def test_a_batch_may_be_skipped_altogether(hurt):
    copy, damage = hurt
    for row in range(4, 8):
        damage(row)
    with load(copy, on_error="skip") as loader:
        batches = list(loader)
    assert batches[1]["image"].shape == (0, 3, 12, 12)
    assert len(batches) == 3


def test_a_shard_that_was_cut_short(hurt):
    copy, _ = hurt
    row = our_rows(copy)[-1]
    _, rendition = headrace.open(copy).read(row, "image")
    shard = copy / rendition.shard
    os.truncate(shard, rendition.offset + 10)
    with load(copy, indices=[row]) as loader, pytest.raises(CorruptDataset, match="must have"):
        list(loader)
    shard.unlink()
    with load(copy, indices=[row]) as loader, pytest.raises(CorruptDataset, match="missing"):
        list(loader)


def test_an_image_of_another_size_than_the_index_claims(hurt):
    copy, damage = hurt
    row = our_rows(copy)[0]

    def other(data):
        small = headrace.encode(np.zeros((3, 3, 3), np.uint8), metadata={"fill": b""})
        return headrace.encode(np.zeros((3, 3, 3), np.uint8), metadata={"fill": bytes(len(data) - len(small))})

    damage(row, other)
    with load(copy, indices=[row]) as loader, pytest.raises(CorruptImage, match="the size that the index claims"):
        list(loader)


def test_a_crop_that_does_not_fit_is_an_error_of_the_transform(whole):
    with load(whole, transform=[RandomCrop(500)]) as loader, pytest.raises(TransformError, match="sample/0"):
        list(loader)


def test_a_failure_of_the_device_reaches_the_trainer(whole, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(kernels, "decode_staged", broken)
    with load(whole) as loader:
        with pytest.raises(RuntimeError, match="out of memory"):
            list(loader)
        monkeypatch.undo()
        monkeypatch.setattr(backend, "interprets", lambda: False)
        assert labels(loader)[0] == [0, 1, 2, 3]


def test_leaving_early_leaves_nothing_behind(whole):
    loader = load(whole, batches_ahead=3)
    for _ in loader:
        break
    assert labels(loader)[0] == [0, 1, 2, 3]
    loader.close()
    assert our_threads() == []
    with pytest.raises(LoaderError, match="closed"):
        next(iter(loader))


def test_a_program_that_just_ends_does_end(whole):
    """In the middle of an epoch, with batches under way and nothing closed."""
    code = (
        "import headrace; from headrace.transforms import CenterCrop;"
        f"loader = headrace.Loader({str(whole)!r}, device='cpu', decode='device', transform=CenterCrop(8));"
        "print(next(iter(loader))['image'].shape[0])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "1\n", "")


def test_a_loader_that_is_dropped_ends_by_itself(whole):
    loader = load(whole)
    next(iter(loader))
    del loader
    gc.collect()
    assert threads_left() == []


def test_a_batch_outlives_its_loader(whole):
    with load(whole) as loader:
        batches = list(loader)
    with load(whole, "cpu") as again:
        for batch, expected in zip(batches, again, strict=True):
            assert torch.equal(batch["image"], expected["image"])
