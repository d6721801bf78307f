# SPDX-License-Identifier: Apache-2.0
"""Tensors in batches: every dtype with every bit, in the memory that the engine read them into, beside images."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest
from tests.loader.datasets import assert_equal, copied
from tests.offload.offloading import offload_worker, paced, wait_for_prepared
from tests.records.lies import rewrite_index

import headrace
from headrace.errors import CorruptDataset, CorruptImage, MissingExtra
from headrace.loader import Loader
from headrace.offload import Offload
from headrace.tensors import DTYPES, TensorType
from headrace.transforms import MultiCrop, RandomResizedCrop, View

COUNT = 12
SHAPES = {"bfloat16": (3, 5), "float16": (4, 8, 8), "int8": (7,), "float64": (1, 1, 2, 3)}


def make(dtype: str, number: int) -> np.ndarray:
    """Random bits, not numbers: NaN of all kinds and negative zeros are kept too."""
    rng = np.random.default_rng(number)
    shape = SHAPES.get(dtype, (2, 3))
    bits = rng.integers(0, 256, (*shape, DTYPES[dtype].itemsize), np.uint8)
    return bits.view(ml_dtypes.bfloat16 if dtype == "bfloat16" else DTYPES[dtype])[..., 0]


def sample(number: int) -> dict:
    image = np.random.default_rng(number).integers(0, 256, (20 + number, 30, 3), np.uint8)
    return {"image": image, **{f"t_{name}": make(name, number) for name in DTYPES}, "label": number}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    place = tmp_path_factory.mktemp("tensors") / "all.hr"
    types = {f"t_{name}": str(TensorType.of(name, make(name, 0).shape)) for name in DTYPES}
    with headrace.Writer(
        place, fields={"image": "image", **types, "label": "int64"}, workers=1, shard_samples=5
    ) as writer:
        for number in range(COUNT):
            writer.write(sample(number), key=str(number))
    return place


def same_bits(array, expected: np.ndarray) -> bool:
    found = np.asarray(array)
    return found.shape == expected.shape and found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("options", [{}, {"num_workers": 0}, {"direct_io": True}], ids=["threads", "inline", "direct"])
def test_numpy_batches_have_every_bit(path, options):
    """A batch of each dtype equals the stacked samples."""
    with Loader(path, batch_size=4, shuffle=True, output="numpy", **options) as loader:
        for batch in loader:
            rows = batch["label"].tolist()
            for name in DTYPES:
                assert same_bits(batch[f"t_{name}"], np.stack([make(name, row) for row in rows]))


def test_torch_batches_have_the_dtype_and_share_the_memory(path):
    """Tensors of PyTorch, bfloat16 included, are views of the engine's memory, which stays valid as long as they do."""
    torch = pytest.importorskip("torch")
    with Loader(path, batch_size=4, transform=RandomResizedCrop(8)) as loader:
        held = [{name: batch[f"t_{name}"] for name in DTYPES} for batch in loader]
    for at, batch in enumerate(held):
        for name, tensor in batch.items():
            assert tensor.dtype == getattr(torch, name)
            expected = np.stack([make(name, row) for row in range(4 * at, 4 * at + 4)])
            bits = tensor.contiguous().view(torch.uint8).numpy()
            assert bits.tobytes() == expected.tobytes()
            assert tensor.data_ptr() % 4096 == 0  # the beginning of a block of the engine


def test_a_large_tensor_is_read_in_pieces(tmp_path):
    """A tensor larger than a piece of a read is whole, whatever its length modulo the piece."""
    arrays = [np.random.default_rng(n).random((3, 70_001), np.float32) for n in range(3)]
    headrace.build([{"depth": array} for array in arrays], tmp_path / "large.hr", workers=1)
    for direct in (False, True):
        with Loader(tmp_path / "large.hr", batch_size=3, output="numpy", direct_io=direct) as loader:
            [batch] = loader
            assert same_bits(batch["depth"], np.stack(arrays))
    assert headrace.open(tmp_path / "large.hr").verify()


def test_transforms_leave_tensors_alone(path):
    """Several views of an image come with one tensor, and a function of a sample gets the tensor."""
    crops = MultiCrop([View(2, [RandomResizedCrop(16)]), View(3, [RandomResizedCrop(8)])])
    with Loader(path, batch_size=3, transform=crops, output="numpy") as loader:
        batch = next(iter(loader))
        assert [group.shape[1] for group in batch["image"]] == [2, 3]
        assert same_bits(batch["t_float16"], np.stack([make("float16", row) for row in range(3)]))
    seen = []
    transform = [RandomResizedCrop(8), lambda given: seen.append(given["t_int8"]) or given]
    with Loader(path, batch_size=3, transform=transform, output="numpy", num_workers=0, ragged="pad") as loader:
        batch = next(iter(loader))
    assert same_bits(seen[1], make("int8", 1))
    assert same_bits(batch["t_float64"], np.stack([make("float64", row) for row in range(3)]))


@pytest.mark.parametrize(
    "transform",
    [[RandomResizedCrop(8)], [MultiCrop([View(2, [RandomResizedCrop(8)]), View(1, [RandomResizedCrop(6)])])]],
)
def test_an_offload_worker_prepares_them(path, tmp_path, transform):
    """Prepared batches contain the same tensors."""
    options = {"batch_size": 2, "transform": transform, "output": "numpy", "num_workers": 1}
    with Loader(path, **options) as loader:
        expected = {tuple(batch["label"].tolist()): copied(batch) for batch in loader}
    offload = Offload(tmp_path / "exchange", strategy=paced())
    with (
        offload_worker(path, tmp_path / "exchange"),
        Loader(path, offload=offload, **options) as loader,
    ):
        batches = iter(loader)
        first = next(batches)
        found = {tuple(first["label"].tolist()): copied(first)}
        wait_for_prepared(loader)
        found |= {tuple(batch["label"].tolist()): copied(batch) for batch in batches}
        assert loader.stats().offload["offload_batches"] > 0
    assert found.keys() == expected.keys()
    for key, batch in found.items():
        assert batch["t_bfloat16"].tobytes() == expected[key].pop("t_bfloat16").tobytes()
        del batch["t_bfloat16"]
        for name in ("t_float16", "t_float32", "t_float64"):
            assert batch.pop(name).tobytes() == expected[key].pop(name).tobytes()  # NaN is not equal to itself
        assert_equal(batch, expected[key])


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("t_int8.0.length", 8, "length"),
        ("t_int8.0.length", 0, "length"),
        ("t_int8.0.offset", 1 << 62, "beyond the end"),
        ("t_int8.0.shard", 99, "shard"),
        ("t_int8.0.checksum", 1, "checksum"),
        ("image.0.format", 7, "format"),
    ],
)
def test_a_forged_index_fails_the_sample(path, tmp_path, column, value, message):
    """The index of a tensor is not trusted, and an image cannot claim to be a tensor."""
    forged = rewrite_index(path, tmp_path / "forged.hr", column, row=2, value=value)

    with (
        Loader(forged, batch_size=4, output="numpy") as loader,
        pytest.raises((CorruptDataset, CorruptImage, headrace.errors.UnsupportedDataset), match=message),
    ):
        next(iter(loader))
    with pytest.raises((CorruptDataset, headrace.errors.UnsupportedDataset)):
        headrace.open(forged)[2]
    assert not headrace.open(forged).verify()
    with Loader(forged, batch_size=4, output="numpy", on_error="skip") as loader:
        assert [len(batch["t_int8"]) for batch in loader] == [3, 4, 4]
    with Loader(forged, batch_size=4, output="numpy", on_error="replace") as loader:
        batches = [copied(batch) for batch in loader]
    assert {batch["t_float16"].shape for batch in batches} == {(4, 4, 8, 8)}


def test_bfloat16_without_its_package_says_so(path, monkeypatch):
    """NumPy has no bfloat16: the loader says what to install before the first batch."""
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)

    with pytest.raises(MissingExtra, match="tensors"):
        Loader(path, batch_size=4, output="numpy")
    with Loader(path, batch_size=4, fields=["t_int8"], output="numpy") as loader:
        assert len(next(iter(loader))["t_int8"]) == 4
    assert headrace.open(path).tensor(0, "t_bfloat16").data.nbytes == 30


def test_a_dataset_is_built_again_with_its_tensors(path, tmp_path):
    """A dataset as a source keeps the bits of its tensors, also without the package for bfloat16."""
    headrace.build(path, tmp_path / "again.hr", format="raw", workers=1)

    first, second = headrace.open(path), headrace.open(tmp_path / "again.hr")
    for row in range(COUNT):
        for name in DTYPES:
            assert first.tensor(row, f"t_{name}").data == second.tensor(row, f"t_{name}").data
    assert second.fields == first.fields
