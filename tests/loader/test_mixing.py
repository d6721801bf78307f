# SPDX-License-Identifier: Apache-2.0
"""Mixed batches are the same from a loader, from a stock DataLoader and after a resume."""

from __future__ import annotations

import numpy as np
import pytest
from tests.loader.datasets import COUNT, assert_equal, copied

import headrace
from headrace.errors import TransformError
from headrace.transforms import (
    CutMix,
    HorizontalFlip,
    MixUp,
    MixUpCutMix,
    Normalize,
    RandomErasing,
    RandomResizedCrop,
    Resize,
)

PIXELS = [RandomResizedCrop(13), HorizontalFlip(), Normalize(0.5, 0.25), RandomErasing(0.5, value="random")]
DEIT = [*PIXELS, MixUpCutMix(0.8, 1.0, num_classes=COUNT)]
OPTIONS = {"batch_size": 8, "transform": DEIT, "fields": ["image", "label"], "output": "numpy", "seed": 4}


def epoch(path, **options):
    with headrace.Loader(path, **{**OPTIONS, **options}) as loader:
        return [copied(batch) for batch in loader]


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_a_batch_is_the_mixture_of_its_samples(path, threads):
    """By the transform called on the batch without it."""
    mixed = epoch(path, num_workers=threads, shuffle=True)
    plain = epoch(path, transform=PIXELS, shuffle=True)
    kinds = set()
    for batch, given in zip(mixed, plain, strict=True):
        images, labels = DEIT[-1](given["image"], given["label"], seed=4, sample=int(given["label"][0]))
        assert np.array_equal(batch["image"], images)
        assert np.array_equal(batch["label"], labels)
        assert batch["label"].dtype == np.float32
        kinds.add(np.array_equal(batch["image"][:, 0, 0, 0], given["image"][:, 0, 0, 0]))
    assert len(kinds) == 2, "some were cut, some were mixed"


def test_a_resumed_run_mixes_alike(path):
    whole = epoch(path, shuffle=True)
    with headrace.Loader(path, **OPTIONS, shuffle=True) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with headrace.Loader(path, **OPTIONS, shuffle=True) as loader:
        loader.load_state_dict(state)
        assert_equal([copied(batch) for batch in loader], whole[1:])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stock_loader_mixes_alike(tmp_path, path, workers):
    """The batch that it asks a dataset for is mixed before it is collated."""
    data = pytest.importorskip("torch.utils.data")
    build_plain(path, tmp_path / "plain.hr")
    whole = [epoch(tmp_path / "plain.hr"), epoch(tmp_path / "plain.hr")]
    with headrace.Loader(tmp_path / "plain.hr", **OPTIONS) as loader:
        epochs = [[copied(batch) for batch in loader] for _ in range(2)]
    assert_equal(epochs[0], whole[0])
    stock = data.DataLoader(
        headrace.open(tmp_path / "plain.hr", transform=DEIT, seed=4), batch_size=8, num_workers=workers
    )
    for expected in epochs:
        for batch, own in zip(stock, expected, strict=True):
            assert np.array_equal(batch["image"].numpy(), own["image"])
            assert np.array_equal(batch["label"].numpy(), own["label"])


def build_plain(path, folder):
    with headrace.Writer(folder, fields={"image": "image", "label": "int64"}, workers=1) as writer:
        for sample in headrace.open(path):
            writer.write({name: sample[name] for name in ("image", "label")})


def test_a_single_sample_is_a_batch_of_one(tmp_path, path):
    build_plain(path, tmp_path / "plain.hr")

    sample = headrace.open(tmp_path / "plain.hr", transform=DEIT, seed=4)[3]

    plain = headrace.open(tmp_path / "plain.hr", transform=PIXELS, seed=4)[3]
    assert np.array_equal(sample["image"], plain["image"])
    assert sample["label"].argmax() == 3
    assert sample["label"].sum() == pytest.approx(1, abs=1e-5)


def test_functions_see_mixed_samples(path):
    """Samples and their soft labels; then the batch is joined again."""
    seen = []

    def look(sample):
        seen.append(sample["label"].shape)
        return sample

    assert_equal(epoch(path, transform=[*DEIT, look]), epoch(path))
    assert set(seen) == {(COUNT,)}


def test_tensors_are_mixed(path):
    torch = pytest.importorskip("torch")

    batch = epoch(path, output="torch")[0]

    assert isinstance(batch["label"], torch.Tensor)
    assert np.array_equal(batch["image"].numpy(), epoch(path)[0]["image"])


def test_cutmix_works_on_levels(path):
    """And a layout with channels last."""
    transform = [Resize((20, 21)), CutMix(num_classes=COUNT)]

    first, last = (epoch(path, transform=transform, layout=layout) for layout in ("CHW", "HWC"))

    assert first[0]["image"].dtype == np.uint8
    assert_equal(first[0]["image"], np.ascontiguousarray(last[0]["image"].transpose(0, 3, 1, 2)))


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_samples_that_failed_are_not_mixed(path, on_error):
    transform = [headrace.transforms.RandomCrop(40), Normalize(0.5, 0.5), MixUp(num_classes=COUNT)]

    for batch in epoch(path, transform=transform, on_error=on_error):
        assert batch["label"].shape == (len(batch["image"]), COUNT)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"fields": ["image"]}, ValueError, "needs one int64 field of labels; 'label' is None"),
        ({"fields": ["image", "label", "mask"]}, ValueError, "no masks or boxes"),
        ({"transform": [Normalize(0.5, 0.5), MixUp()]}, ValueError, "does not name its classes"),
        ({"transform": [Normalize(0.5, 0.5), MixUp(num_classes=COUNT)]}, TransformError, "images of one shape"),
        ({"transform": [Resize((9, 9)), CutMix(num_classes=3)]}, TransformError, "labels must be in"),
    ],
)
def test_what_cannot_be_mixed_is_an_error(path, options, error, message):
    with pytest.raises(error, match=message):
        epoch(path, **options)
