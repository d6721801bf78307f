# SPDX-License-Identifier: Apache-2.0
"""Patches of large images: which there are, what they have, what they cost, and how a run with them resumes."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.loader.datasets import assert_equal, copied, write

import headrace
from headrace.samplers import Repeated
from headrace.transforms import HorizontalFlip, Normalize, Resize

SIZES = [(100, 130), (64, 64), (40, 200), (301, 257)]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Four images with masks and boxes; each label is the number of its image."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("patches") / "scenes.hr"
    fields = {"image": "image", "mask": "mask", "label": "int64", "boxes": "boxes"}
    with headrace.Writer(path, fields=fields, format="hri:fast") as writer:
        for number, (height, width) in enumerate(SIZES):
            image = rng.integers(0, 255, (height, width, 3), np.uint8)
            boxes = np.float32([[5, 6, 25, 16], [width - 9, height - 8, width, height]])
            writer.write(
                {"image": image, "mask": image[..., 0].copy(), "label": number, "boxes": (boxes, [1, 2])},
                key=str(number),
            )
    return path


def load(patches, **options):
    return headrace.Loader(patches, **{"batch_size": 4, "output": "numpy", "num_workers": 2, **options})


@settings(max_examples=15, deadline=None)
@given(st.integers(20, 90), st.integers(20, 90), st.integers(7, 90), st.integers(7, 90))
def test_a_grid_covers_every_pixel_and_its_patches_are_the_image(scenes, height, width, down, across):
    """Each patch has the pixels of its window; smaller images are padded; masks and boxes follow."""
    patches = headrace.patches(scenes, (height, width), stride=(down, across))
    images = headrace.open(scenes)
    covered = [np.zeros(size, bool) for size in SIZES]
    steps = max(1, len(patches) // 25)
    for index in range(len(patches)):
        window = patches.window(index)
        region = (slice(window.top, window.top + height), slice(window.left, window.left + width))
        covered[window.image][region] = True
        if index % steps:
            continue
        sample, whole = patches[index], images[window.image]
        expected = np.moveaxis(whole["image"][region], -1, 0)
        assert sample["image"].shape == (3, height, width)
        assert (sample["image"][:, : expected.shape[1], : expected.shape[2]] == expected).all()
        assert (sample["image"][:, expected.shape[1] :] == 0).all()
        assert (sample["mask"][expected.shape[1] :] == 255).all()
        assert sample["label"] == window.image
        for box in sample["boxes"].xyxy + np.float32([window.left, window.top] * 2):
            assert any(
                (box >= each - 1e-3)[:2].all() and (box <= each + 1e-3)[2:].all() for each in whole["boxes"].xyxy
            )
    if down <= height and across <= width:
        assert all(each.all() for each in covered)


def test_a_loader_gives_what_the_sequence_gives(scenes):
    """The batches of a loader are the samples of the sequence, with transforms after the crop."""
    transform = [HorizontalFlip(1.0), Resize((16, 16)), Normalize(0.5, 0.25)]
    patches = headrace.patches(headrace.open(scenes, transform=transform), 48)
    with load(patches) as loader:
        batches = [copied(batch) for batch in loader]
    with load(headrace.patches(scenes, 48), transform=transform, num_workers=0) as loader:
        assert_equal([copied(batch) for batch in loader], batches)

    images = [image for batch in batches for image in batch["image"]]
    assert len(images) == len(patches)
    for index in range(0, len(patches), 5):
        assert (images[index] == patches[index]["image"]).all()


def test_random_patches_depend_on_seed_and_epoch_and_resume(scenes):
    """Each image comes per_image times at other places, in every epoch; a run resumes with other batches."""
    patches = headrace.patches(scenes, 32, per_image=3)
    options = {"shuffle": True, "seed": 5}
    with load(patches, **options) as loader:
        first, second = ([copied(batch) for batch in loader] for _ in range(2))
    labels = sorted(label for batch in first for label in batch["label"].tolist())
    assert labels == sorted(list(range(4)) * 3)
    tops = {batch["image"][at].tobytes() for batch in first + second for at in range(len(batch["label"]))}
    assert len(tops) == 24
    with load(patches, **options) as loader:
        iteration = iter(loader)
        before = copied(next(iteration))
        state = json.loads(json.dumps(loader.state_dict()))
    with load(patches, batch_size=8, **options) as loader:
        loader.load_state_dict(state)
        (after,) = [copied(batch) for batch in loader]
    whole = np.concatenate([batch["image"] for batch in first])
    np.testing.assert_array_equal(np.concatenate([before["image"], after["image"]]), whole)
    with (
        load(headrace.patches(scenes, 32, per_image=2), **options) as loader,
        pytest.raises(headrace.errors.InvalidState, match=r"length|selection"),
    ):
        loader.load_state_dict(state)


def test_views_copies_and_pickles_of_patches(scenes):
    """A selection of patches is one, too; PyTorch's DataLoader gets copies of it."""
    patches = headrace.patches(scenes, 50, stride=25)
    some = patches.select([3, 9, 12]).select([2, 0])
    copy = pickle.loads(pickle.dumps(some))
    for view in (some, copy):
        assert len(view) == 2
        assert [view.window(index) for index in range(2)] == [patches.window(12), patches.window(3)]
        assert (view[0]["image"] == patches[12]["image"]).all()
        with load(view) as loader:
            assert (next(iter(loader))["image"][1] == patches[3]["image"]).all()
    assert patches.column("label").tolist() == [patches.window(index).image for index in range(len(patches))]
    assert patches.select(patches.column("label") == 1)[0]["label"] == 1
    assert [sample["label"] for sample in patches.__getitems__([0, -1])] == [0, 3]
    assert patches.table.num_rows == len(patches)
    with load(patches, indices=[4]) as loader:
        assert next(iter(loader))["label"].tolist() == [patches.window(4).image]


def bytes_of_patch(path, size, place):
    """Return the bytes that a loader reads for one patch of a dataset."""
    patches = headrace.patches(path, size)
    with load(patches, indices=[place], batch_size=1, num_workers=0) as loader:
        (batch,) = loader
        return copied(batch), loader.stats().bytes_read


def make_scene(path, side):
    block = np.random.default_rng(0).integers(0, 255, (500, 500), np.uint8)
    image = np.tile(block, (side // 500, side // 500))
    with headrace.Writer(path, fields={"image": "image"}, format="hri:fast") as writer:
        writer.write({"image": image}, key="scene")
    return image


def check_costs(path, side):
    """Assert that a patch costs what its tiles cost, wherever it is, and not what the image costs."""
    image = make_scene(path, side)
    stored = sum(shard.stat().st_size for shard in (path / "shards").iterdir())
    per_row = -(-(side - 256) // 256) + 1
    for row, column in ((0, 0), (per_row // 2, per_row // 3), (per_row - 1, per_row - 1)):
        batch, n_bytes = bytes_of_patch(path, 256, row * per_row + column)
        top, left = min(row * 256, side - 256), min(column * 256, side - 256)
        assert (batch["image"][0, 0] == image[top : top + 256, left : left + 256]).all()
        head = 4 * stored // (256 * 16) + (64 << 10)  # the table of tiles has four bytes per tile
        assert n_bytes < 256 * 1024 * 2 + head
        assert n_bytes < stored / 8


def test_a_patch_costs_what_its_tiles_cost(tmp_path):
    """Of an image of 16 MB a patch of 64 kB reads its tiles and the table of tiles only."""
    check_costs(tmp_path / "scene.hr", 4000)


@pytest.mark.slow
def test_a_patch_of_a_huge_image_costs_what_its_tiles_cost(tmp_path):
    """The same with 20000 x 20000 pixels."""
    check_costs(tmp_path / "scene.hr", 20000)


def test_images_in_other_formats_have_patches(tmp_path):
    """Other formats work, too: they are decoded completely."""
    path = write(tmp_path / "all.hr", 6, formats=("png", "webp", "raw"))
    patches = headrace.patches(path, 20, stride=10)
    with load(patches, ragged="error", fields=["image", "label", "boxes"]) as loader:
        images = [image for batch in loader for image in batch["image"]]
    for index in range(0, len(patches), 6):
        assert (images[index] == patches[index]["image"]).all()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda path: headrace.patches(path, 0), ValueError, r"size must be in \[1, 65535\]; got 0"),
        (lambda path: headrace.patches(path, 9, stride=9, per_image=2), ValueError, "must not be set together"),
        (lambda path: headrace.patches(path, 9, per_image=0), ValueError, "per_image must be at least 1; got 0"),
        (lambda path: headrace.patches(path, 9, per_image=1 << 19), ValueError, "at most 262144 patches"),
        (lambda path: headrace.patches(path, 9, field="mask"), ValueError, "must be an image field; got 'mask'"),
        (lambda path: headrace.patches(headrace.patches(path, 9), 3), TypeError, "needs a single dataset of images"),
        (lambda path: headrace.patches(path, 9, per_image=1).window(0), ValueError, "random places have no window"),
        (lambda path: headrace.patches(path, 9)[99999], IndexError, "index must be in"),
        (lambda path: load(headrace.patches(path, 9), sampler=Repeated(2)), ValueError, "Repeated does not work with"),
        (lambda path: load(headrace.patches(path, 9), offload="x"), ValueError, "together with patches"),
        (lambda path: headrace.Mixture([headrace.patches(path, 9)]), ValueError, "no patches"),
    ],
)
def test_wrong_arguments_say_what_must_hold(scenes, make, error, message):
    """Errors name the argument, what must hold and what was found."""
    with pytest.raises(error, match=message):
        make(scenes)
