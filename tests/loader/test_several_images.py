# SPDX-License-Identifier: Apache-2.0
"""Several images per sample: all get the same draws, as in a joint transform; each field has its own renditions."""

from __future__ import annotations

import numpy as np
import pytest
from tests.loader.datasets import assert_equal, copied

import headrace
from headrace.loader import Loader
from headrace.transforms import (
    ColorJitter,
    GaussianBlur,
    HorizontalFlip,
    MultiCrop,
    PerSample,
    RandAugment,
    RandomAffine,
    RandomApply,
    RandomCrop,
    RandomErasing,
    RandomPerspective,
    RandomResizedCrop,
    View,
)

COUNT = 12
PLAN = {
    "version": 1,
    "fields": {
        "left": {"renditions": 2, "shares": [{"format": "hri:fast", "share": 0.5}, {"format": "raw", "share": 0.5}]},
        "right": {"renditions": 1, "shares": [{"format": "png", "share": 1}]},
    },
}
TRANSFORMS = {
    "crop": [RandomResizedCrop(16), HorizontalFlip()],
    "warp": [RandomAffine(30, (0.1, 0.1), (0.8, 1.2), (-5, 5, -5, 5)), RandomPerspective(p=1), RandomCrop(20)],
    "color": [
        RandomCrop(20),
        RandomApply([ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
        GaussianBlur(3),
        RandomErasing(p=0.5),
    ],
    "policy": [RandAugment(), RandomCrop(20)],
    "views": [MultiCrop([View(2, [RandomResizedCrop(16)]), View(3, [RandomResizedCrop(8), HorizontalFlip()])])],
}


def picture(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (32, 40, 3), np.uint8)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Left and right are the same picture, in other formats; `other` is its negative."""
    place = tmp_path_factory.mktemp("several") / "stereo.hr"
    fields = {"left": "image", "right": "image", "other": "image", "label": "int64"}
    with headrace.Writer(place, fields=fields, plan=PLAN, workers=1) as writer:
        for number in range(COUNT):
            image = picture(number)
            writer.write({"left": image, "right": image, "other": 255 - image, "label": number}, key=str(number))
    return place


def test_each_field_has_renditions_of_its_own(path):
    """The plan of a field decides its formats; a field without one gets the default."""
    assert headrace.open(path).formats == {
        "left": {"hri:fast": COUNT, "raw": COUNT},
        "right": {"png": COUNT},
        "other": {"hri:dense": COUNT},
    }


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS.keys())
def test_all_images_get_the_same_draws(path, transform):
    """The same picture in two fields comes out the same, colors and erased rectangles included, in every epoch."""
    seen = []
    with Loader(path, batch_size=4, transform=transform, shuffle=True, seed=3, output="numpy") as loader:
        for _ in range(2):
            for batch in loader:
                assert_equal(copied(batch["left"]), copied(batch["right"]))
                seen.append(copied(batch["left"]))
    first = seen[0][0] if isinstance(seen[0], list) else seen[0]
    assert len({view.tobytes() for view in first}) == 4  # each sample has draws of its own


def test_geometry_is_the_same_for_pictures_that_differ(path):
    """Crop and flip show the same part of each image; a dataset and a loader agree."""
    transform = [RandomResizedCrop(16, interpolation="nearest"), HorizontalFlip()]
    with Loader(path, batch_size=COUNT, transform=transform, output="numpy") as loader:
        batch = copied(next(iter(loader)))
    ds = headrace.open(path, transform=transform)

    np.testing.assert_array_equal(batch["other"], 255 - batch["left"])
    for row in range(COUNT):
        sample = ds[row]
        for name in ("left", "right", "other"):
            np.testing.assert_array_equal(sample[name], batch[name][row])


def test_a_function_can_change_one_image_alone(path):
    """For draws that differ between images, a function of the sample changes one of them."""

    def darker(sample):
        return {**sample, "right": sample["right"] // 2}

    with Loader(path, batch_size=4, transform=[RandomCrop(20), PerSample(darker)], output="numpy") as loader:
        batch = next(iter(loader))
        np.testing.assert_array_equal(batch["right"], batch["left"] // 2)


def test_images_of_other_sizes_get_the_same_share(tmp_path):
    """Draws are relative to the size of each image: a picture of twice the size shows the same part."""
    image = picture(1)
    sample = {"small": image, "large": image.repeat(2, axis=0).repeat(2, axis=1)}
    headrace.build([sample] * 4, tmp_path / "sizes.hr", workers=1)
    transform = [HorizontalFlip(), RandomResizedCrop(16, ratio=(1, 1), interpolation="bilinear")]
    with Loader(tmp_path / "sizes.hr", batch_size=4, transform=transform, output="numpy") as loader:
        batch = next(iter(loader))
        apart = np.abs(batch["small"].astype(int) - batch["large"].astype(int)).mean()
        other = np.abs(batch["small"].astype(int) - batch["large"][:, :, :, ::-1].astype(int)).mean()

    assert apart < other / 2
