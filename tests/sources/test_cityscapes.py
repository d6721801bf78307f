# SPDX-License-Identifier: Apache-2.0
"""Cityscapes: pairs of images and label maps."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from tests.sources.pictures import decoded, keys, pixels, png, samples, write

from headrace.errors import BadSource
from headrace.sources import CityscapesSource, open_source


def write_pairs(root, scenes):
    for seed, scene in enumerate(scenes):
        split, city, name = scene.split("/")
        write(
            root,
            {
                f"leftImg8bit/{split}/{city}/{name}_leftImg8bit.png": png(seed),
                f"gtFine/{split}/{city}/{name}_gtFine_labelIds.png": png(seed, channels=1),
                f"gtFine/{split}/{city}/{name}_gtFine_color.png": png(99),
                f"gtFine/{split}/{city}/{name}_gtFine_polygons.json": b"{}",
            },
        )


SCENES = ["train/aachen/0", "train/aachen/1", "train/ulm/0", "val/bonn/0"]


def test_images_meet_their_masks(tmp_path):
    """Over all splits, in order; the other files of gtFine are passed over."""
    write_pairs(tmp_path, SCENES)
    source = CityscapesSource(tmp_path)
    found = samples(source)

    assert keys(source)[2] == "leftImg8bit/train/ulm/0_leftImg8bit.png"
    for seed, (scene, sample) in enumerate(zip(SCENES, found, strict=True)):
        assert np.array_equal(decoded(sample["image"]), pixels(seed))
        assert np.array_equal(decoded(sample["mask"]), pixels(seed, channels=1))
        assert [sample["split"], sample["city"]] == scene.split("/")[:2]


def test_one_split_can_be_chosen(tmp_path):
    """By name, or by its folder."""
    write_pairs(tmp_path, SCENES)
    chosen = CityscapesSource(tmp_path, split="val")

    assert len(keys(chosen)) == 1
    assert keys(open_source(tmp_path / "leftImg8bit" / "val", "cityscapes")) == keys(chosen)
    with pytest.raises(BadSource, match="train, val"):
        CityscapesSource(tmp_path, split="test")


@pytest.mark.parametrize(
    "gone", ["leftImg8bit/train/aachen/1_leftImg8bit.png", "gtFine/val/bonn/0_gtFine_labelIds.png"]
)
def test_a_missing_partner_is_named(tmp_path, gone):
    """Whichever of the two it is."""
    write_pairs(tmp_path, SCENES)
    (tmp_path / gone).unlink()
    with pytest.raises(BadSource, match=gone.rpartition("/")[2]):
        samples(CityscapesSource(tmp_path))


def test_an_image_of_another_name_is_an_error(tmp_path):
    """It would be lost otherwise."""
    write_pairs(tmp_path, SCENES)
    write(tmp_path, {"leftImg8bit/train/ulm/extra.png": png(0)})
    with pytest.raises(BadSource, match=r"extra\.png"):
        samples(CityscapesSource(tmp_path))


def test_a_mask_that_is_a_link_to_elsewhere_is_refused(tmp_path):
    """Links are checked for both."""
    root = tmp_path / "root"
    write_pairs(root, SCENES)
    write(tmp_path, {"secret.png": png(0)})
    mask = root / "gtFine/train/ulm/0_gtFine_labelIds.png"
    mask.unlink()
    mask.symlink_to(tmp_path / "secret.png")
    with pytest.raises(BadSource, match="leaves the source"):
        samples(CityscapesSource(root))


def test_copies_load_what_the_original_listed(tmp_path):
    """As workers do."""
    write_pairs(tmp_path, SCENES)
    source = CityscapesSource(tmp_path)
    copy, items = pickle.loads(pickle.dumps((source, list(source.items()))))

    assert [copy.load(item)["city"] for item in items] == ["aachen", "aachen", "ulm", "bonn"]
