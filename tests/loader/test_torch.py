# SPDX-License-Identifier: Apache-2.0
"""The loader beside PyTorch: its tensors, its DataLoader, its devices."""

from __future__ import annotations

import numpy as np
import pytest
from tests.loader.datasets import COUNT, labels, make_sample

import headrace
from headrace.records import Boxes
from headrace.transforms import HorizontalFlip, Normalize, PerBatch, RandomResizedCrop, Views

torch = pytest.importorskip("torch")

CROP = [RandomResizedCrop(16), HorizontalFlip(), Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])]


def load(path, **options):
    return headrace.Loader(path, **{"num_workers": 2, **options})


def test_batches_are_tensors(path):
    with load(path, transform=CROP, batch_size=4) as loader:
        batch = next(iter(loader))
    assert (batch["image"].dtype, batch["image"].shape) == (torch.float32, (4, 3, 16, 16))
    assert (batch["mask"].dtype, batch["mask"].shape) == (torch.uint8, (4, 16, 16))
    assert torch.equal(batch["label"], torch.arange(4))
    assert batch["weight"].dtype == torch.float32
    assert isinstance(batch["boxes"][1], Boxes)
    assert batch["boxes"][1].xyxy.dtype == torch.float32
    assert batch["scores"][2].dtype == torch.float32
    assert batch["name"] == ["№ 0", "№ 1", "№ 2", "№ 3"]


def test_repeats_are_marked_by_truth_values(path):
    with load(path, batch_size=COUNT, rank=2, world_size=3, fields=["label"]) as loader:
        (batch,) = loader
    assert batch["_repeat"].dtype == torch.bool
    assert batch["label"][batch["_repeat"]].tolist() == [1]


def test_nothing_is_copied(path):
    """A tensor lies in the buffer that the threads wrote to, which comes back when it is dropped."""
    with load(path, transform=CROP, batch_size=4, fields=["image"]) as loader:
        pointers = {batch["image"].data_ptr() for _ in range(6) for batch in loader}
        kept = [batch["image"] for batch in loader]
    assert len(pointers) < 20  # of 60 batches
    assert len({image.data_ptr() for image in kept}) == len(kept)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_stock_data_loader_gives_the_same(path, workers):
    """Same pixels, whoever loads them, in two epochs; a process that already runs learns of the second."""
    ds = headrace.open(path, transform=CROP, seed=8)
    processes = {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": "spawn"} if workers else {}
    stock = torch.utils.data.DataLoader(ds, batch_size=8, collate_fn=list, **processes)
    with load(path, transform=CROP, seed=8, batch_size=8) as loader:
        for epoch in range(2):
            ds.set_epoch(epoch)
            for theirs, ours in zip(stock, loader, strict=True):
                for at, sample in enumerate(theirs):
                    assert sample["label"] == ours["label"][at]
                    np.testing.assert_array_equal(sample["image"], ours["image"][at].numpy())
                    np.testing.assert_array_equal(sample["mask"], ours["mask"][at].numpy())


def test_default_collate_takes_the_samples(path):
    collate = torch.utils.data.default_collate
    options = {"transform": CROP, "batch_size": 4, "fields": ["image", "label"]}
    with load(path, **options, collate_fn=collate) as theirs, load(path, **options) as ours:
        for one, other in zip(theirs, ours, strict=True):
            assert torch.equal(one["image"], other["image"])
            assert torch.equal(one["label"], other["label"])


def test_functions_get_tensors(path):
    def check(sample):
        assert isinstance(sample["image"], torch.Tensor)
        assert isinstance(sample["label"], int)
        return {**sample, "image": sample["image"] * 2}

    with (
        load(path, transform=[*CROP, check], batch_size=4) as loader,
        load(path, transform=CROP, batch_size=4) as plain,
    ):
        for doubled, once in zip(loader, plain, strict=True):
            assert torch.equal(doubled["image"], once["image"] * 2)
            assert doubled["boxes"][1].labels.tolist() == once["boxes"][1].labels.tolist()


def test_the_cpu_is_a_device_too(path):
    with load(path, transform=CROP, batch_size=4, device="cpu", pin_memory=True) as loader:
        batch = next(iter(loader))
        assert batch["image"].device.type == "cpu"
        assert loader.stats().busy_seconds.batch > 0
    with load(path, transform=CROP, batch_size=4, device=torch.device("cpu")) as loader:
        assert labels(loader)[0] == [0, 1, 2, 3]


def test_batches_are_brought_to_a_device(path):
    """Through a thread of its own; functions for batches see them there."""
    seen = []

    def note(batch):
        seen.append(batch["image"].device.type)
        return batch

    with load(path, transform=[*CROP, PerBatch(note)], batch_size=8, device="meta") as loader:
        batches = list(loader)
        assert loader.stats().busy_seconds.transfer > 0
    assert [batch["image"].device.type for batch in batches] == ["meta"] * 5
    assert [batch["boxes"][0].xyxy.device.type for batch in batches] == ["meta"] * 5
    assert batches[0]["name"][0] == "№ 0"
    assert seen == ["meta"] * 5


def test_ragged_images_are_lists_of_tensors(path):
    with load(path, batch_size=3) as loader:
        images = next(iter(loader))["image"]
    assert [tuple(image.shape) for image in images] == [(3, *make_sample(n)["mask"].shape) for n in range(3)]
    with load(path, batch_size=3, ragged="pad") as loader:
        batch = next(iter(loader))
    assert batch["image"].ndim == 4
    assert batch["_image_size"].dtype == torch.int64


def test_sixteen_bits(tmp_path):
    image = np.arange(48, dtype=np.uint16).reshape(4, 4, 3) * 1000
    with headrace.Writer(tmp_path / "deep.hr", fields={"image": "image"}, workers=1) as writer:
        writer.write({"image": image})
    with load(tmp_path / "deep.hr") as loader:
        assert next(iter(loader))["image"].dtype == torch.uint16
    with load(tmp_path / "deep.hr", dtype=torch.float32) as loader:
        batch = next(iter(loader))
    np.testing.assert_allclose(batch["image"][0].numpy(), image.transpose(2, 0, 1) / 65535, rtol=1e-6)


def test_views(path):
    with load(path, transform=[Views(2, CROP)], batch_size=3) as loader:
        assert next(iter(loader))["image"].shape == (3, 2, 3, 16, 16)
