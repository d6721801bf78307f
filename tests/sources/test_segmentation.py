# SPDX-License-Identifier: Apache-2.0
"""Images and masks in folders side by side are fields of one sample, not classes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from tests.sources.pictures import decoded, keys, pixels, png, samples, write

import headrace
from headrace.errors import BadSource
from headrace.sources import SegmentationSource, open_source


def write_pairs(root, stems, image="images/{}.png", mask="masks/{}.png"):
    for number, stem in enumerate(stems):
        write(root, {image.format(stem): png(number), mask.format(stem): png(number + 50, channels=1)})


def check(source, stems):
    found = samples(source)
    assert source.kind == "segmentation"
    assert len(found) == len(stems)
    for number, sample in enumerate(found):
        assert np.array_equal(decoded(sample["image"]), pixels(number))
        assert np.array_equal(decoded(sample["mask"]), pixels(number + 50, channels=1))


@pytest.mark.parametrize(
    ("image", "mask"),
    [
        ("images/{}.png", "masks/{}.png"),
        ("image/{}.png", "mask/{}.png"),
        ("images/{}.png", "labels/{}.png"),
        ("JPEGImages/{}.png", "SegmentationClass/{}.png"),
        ("images/{}.png", "masks/{}_mask.png"),
        ("images/{}.png", "masks/{}-seg.png"),
        ("Images/{}.PNG", "Masks/{}.png"),
    ],
)
def test_pairs_are_matched_by_stem(tmp_path, image, mask):
    stems = ["a", "a1", "a10", "b"]
    write_pairs(tmp_path, stems, image, mask)
    source = open_source(tmp_path)
    check(source, stems)
    assert source.fields == {"image": "image", "mask": "mask"}
    assert source.classes is None
    copy, items = pickle.loads(pickle.dumps((source, list(source.items()))))
    assert set(copy.load(items[2])) == {"image", "mask"}


def test_a_suffix_can_be_given(tmp_path):
    write_pairs(tmp_path, ["a", "b"], mask="masks/{}.labels.v2.png")
    check(open_source(tmp_path, mask_suffix=".labels.v2"), ["a", "b"])


def test_one_folder(tmp_path):
    write_pairs(tmp_path, ["a", "b/c"], image="{}.png", mask="{}_mask.png")
    check(open_source(tmp_path, mask_suffix="_mask"), ["a", "b/c"])
    with pytest.raises(BadSource, match="--mask-suffix _mask"):
        open_source(tmp_path, "segmentation")


def test_class_folders(tmp_path):
    stems = ["cat/0", "cat/1", "dog/0"]
    write_pairs(tmp_path, stems)
    source = open_source(tmp_path)
    check(source, stems)
    assert source.classes == ("cat", "dog")
    assert [sample["label"] for sample in samples(source)] == [0, 0, 1]


def test_an_image_at_the_top_is_no_class(tmp_path):
    write_pairs(tmp_path, ["cat/0", "dog/0", "x"])
    assert open_source(tmp_path).fields == {"image": "image", "mask": "mask"}


@pytest.mark.parametrize("layout", ["outside", "inside"])
def test_splits(tmp_path, layout):
    for split in ("train", "val"):
        if layout == "outside":
            write_pairs(tmp_path / split, ["a", "b"])
        else:
            write_pairs(tmp_path, [f"{split}/a", f"{split}/b"])
    source = open_source(tmp_path)
    assert source.fields == {"image": "image", "mask": "mask", "split": "str"}
    assert [sample["split"] for sample in samples(source)] == ["train", "train", "val", "val"]
    assert len(set(keys(source))) == 4
    assert len(keys(open_source(tmp_path, split="val"))) == 2


def test_partners_that_are_missing_are_named(tmp_path):
    write_pairs(tmp_path, ["a", "b", "c"])
    (tmp_path / "masks" / "b.png").unlink()
    (tmp_path / "images" / "c.png").unlink()
    source = SegmentationSource(tmp_path)
    good, no_mask, no_image = source.items()
    source.load(good)
    with pytest.raises(BadSource, match=r"images/b\.png has no mask named b\.\*.*--mask-suffix"):
        source.load(no_mask)
    with pytest.raises(BadSource, match=r"masks/c\.png is a mask without an image"):
        source.load(no_image)


def test_it_can_still_be_read_as_classes(tmp_path):
    write_pairs(tmp_path, ["a"])
    assert open_source(tmp_path, "classes").classes == ("images", "masks")


def test_what_goes_in_comes_out(tmp_path):
    write_pairs(tmp_path / "root", ["a", "b"], mask="masks/{}_mask.png")
    headrace.build(tmp_path / "root", tmp_path / "a.hr", workers=1)
    ds = headrace.open(tmp_path / "a.hr")
    assert np.array_equal(ds[1]["image"], pixels(1))
    assert np.array_equal(ds[1]["mask"], pixels(51, channels=1))
