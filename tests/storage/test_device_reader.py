# SPDX-License-Identifier: Apache-2.0
"""Extents of files as tensors: whatever method reads them, they are the file's bytes; and which method is chosen."""

from __future__ import annotations

import sys
import types

import pytest

torch = pytest.importorskip("torch")

from tests.storage import kvikio_stand_in as stand_in  # noqa: E402
from tests.storage.kvikio_stand_in import CompatMode, CuFile  # noqa: E402

from headrace import storage  # noqa: E402
from headrace.errors import CorruptDataset, MissingExtra  # noqa: E402
from headrace.storage import DeviceReader, Extent, transfer_method  # noqa: E402

CONTENT = bytes(range(251)) * 1000
EXTENTS = [(0, 1), (4095, 2), (200_000, 30_000), (10_000, 5), (4000, 5000), (250_999, 1)]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "shard.hrs"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def cuda(monkeypatch):
    """PyTorch as if it had CUDA; pinned memory is plain, and a stream is always done."""
    synchronised = []
    stream = types.SimpleNamespace(synchronize=lambda: synchronised.append(True))
    monkeypatch.setattr(
        torch, "cuda", types.SimpleNamespace(is_available=lambda: True, current_stream=lambda _: stream)
    )
    empty = torch.empty

    def unpinned(*args, pin_memory=False, **options):
        assert pin_memory in (False, True)
        return empty(*args, **options)

    monkeypatch.setattr(torch, "empty", unpinned)
    return synchronised


@pytest.fixture(params=["pageable", "pinned", "kvikio"])
def reader(request, cuda, monkeypatch):
    """Each method, reading into CPU memory instead of a device's."""
    assert cuda == []
    stand_in.install(monkeypatch)
    made = DeviceReader("cpu", method=request.param)
    yield made
    made.close()


def test_extents_are_those_of_the_file(reader, file):
    tensors = reader.read(file, EXTENTS)
    for (offset, length), tensor in zip(EXTENTS, tensors, strict=True):
        assert tensor.dtype == torch.uint8
        assert tensor.numpy().tobytes() == CONTENT[offset : offset + length]


def test_no_extents_are_the_whole_file(reader, file):
    [whole] = reader.read(file)
    assert whole.numpy().tobytes() == CONTENT
    assert reader.read(file, []) == []


def test_an_empty_file_is_an_empty_tensor(reader, tmp_path):
    (tmp_path / "empty").touch()
    [whole] = reader.read(tmp_path / "empty")
    assert whole.numel() == 0


def test_alignment_in_the_file_is_alignment_in_memory(reader, file):
    """So that what is aligned in the file can be viewed as wider numbers."""
    tensors = reader.read(file, [(4104, 16), (180_008, 64)])
    for tensor, offset in zip(tensors, (4104, 180_008), strict=True):
        assert tensor.storage_offset() % 4096 == offset % 4096
        assert tensor.view(torch.int64).shape == (tensor.numel() // 8,)


@pytest.mark.parametrize("extent", [(0, 0), (-1, 4), (250_999, 2), (251_000, 1)])
def test_extents_lie_in_the_file(reader, file, extent):
    with pytest.raises(ValueError, match="251000 bytes"):
        reader.read(file, [extent])


def test_a_missing_file_is_named(reader, tmp_path):
    with pytest.raises(CorruptDataset, match=r"gone\.hrs is missing"):
        reader.read(tmp_path / "gone.hrs")


def test_storage_is_read_in_aligned_pieces(cuda, monkeypatch, file):
    """Few of them, on the bounds of blocks but for the end of the file; and no stream has work left with the memory."""
    stand_in.install(monkeypatch)
    DeviceReader("cpu", method="kvikio").read(file, [(5000, 100), (9000, 100), (120_000, 1), (250_000, 900)])
    assert CuFile.reads == [(4096, 8192), (118_784, 4096), (249_856, 1144)]
    assert cuda == [True]


def test_a_read_that_fails_names_the_file(cuda, monkeypatch, file):
    assert cuda == []
    stand_in.install(monkeypatch)
    reader = DeviceReader("cpu", method="kvikio")
    monkeypatch.setattr(CuFile, "fails_at", 4096)
    with pytest.raises(CorruptDataset, match=r"shard\.hrs: the read at offset 4096 failed: cuFile error"):
        reader.read(file, [(5000, 10), (200_000, 10)])
    assert len(CuFile.reads) == 2
    monkeypatch.setattr(CuFile, "fails_at", None)
    monkeypatch.setattr(CuFile, "shortens", 1)
    with pytest.raises(CorruptDataset, match="got 4095 of 4096 bytes"):
        reader.read(file, [(5000, 10)])


@pytest.mark.parametrize("age", ["new", "old"])
@pytest.mark.parametrize(
    ("mode", "gds", "found"),
    [
        (CompatMode.AUTO, True, "kvikio"),
        (CompatMode.OFF, True, "kvikio"),
        (CompatMode.ON, True, "pinned"),
        (CompatMode.AUTO, False, "pinned"),
    ],
)
@pytest.mark.usefixtures("cuda")
def test_the_driver_is_asked(monkeypatch, age, mode, gds, found):
    package = stand_in.install(monkeypatch, mode=mode == CompatMode.ON if age == "old" else mode, gds=gds, age=age)
    assert transfer_method() == transfer_method("cuda:0") == found
    assert package.cufile_driver.opened == 0


@pytest.mark.usefixtures("cuda")
def test_without_kvikio_memory_is_pinned(monkeypatch):
    monkeypatch.setitem(sys.modules, "kvikio", None)
    assert transfer_method() == "pinned"
    with pytest.raises(MissingExtra, match="kvikio"):
        DeviceReader("cpu", method="kvikio")


@pytest.mark.usefixtures("cuda")
def test_a_kvikio_of_another_make_is_not_used(monkeypatch):
    stand_in.install(monkeypatch)
    monkeypatch.delattr(sys.modules["kvikio.cufile_driver"], "driver_open")
    assert transfer_method() == "pinned"


@pytest.mark.usefixtures("cuda")
def test_there_is_no_direct_storage_with_rocm(monkeypatch):
    stand_in.install(monkeypatch)
    monkeypatch.setattr(torch.version, "hip", "6.4", raising=False)
    assert transfer_method("cuda") == "pinned"


def test_the_cpu_has_plain_memory(file):
    assert transfer_method("cpu") == "pageable"
    assert DeviceReader("cpu").method == "pageable"
    [tensor] = DeviceReader("cpu").read(file, [Extent(3, 4)])
    assert tensor.tolist() == [3, 4, 5, 6]


def test_without_pytorch_there_is_no_reader(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"headrace\[torch\]"):
        DeviceReader("cpu")
    monkeypatch.setattr(storage._device, "find_spec", lambda _: None)
    assert transfer_method() == "pageable"
