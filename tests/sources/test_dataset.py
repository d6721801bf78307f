# SPDX-License-Identifier: Apache-2.0
"""A dataset as a source: the same samples, stored by another plan."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from PIL import Image
from tests.sources.pictures import keys, pixels, png, write, write_coco

import headrace
from headrace.errors import BadSource, BuildError
from headrace.sources import DatasetSource, open_source

SHARES = [{"format": "raw", "share": 0.5, "decode": "cpu"}, {"format": "hri:fast", "share": 0.5, "decode": "cpu"}]
PLAN = {"version": 1, "fields": {"image": {"renditions": 1, "shares": SHARES}}}


def rendition_formats(dataset):
    return {dataset.read(at, "image")[1].format for at in range(len(dataset))}


def test_samples_are_stored_again(tmp_path):
    """By the very plan that their source would have been stored by: a sample's format follows from its key."""
    write(tmp_path / "photos", {f"{kind}/{at}.png": png(at) for kind in ("cat", "dog") for at in range(20)})
    headrace.build(tmp_path / "photos", tmp_path / "old.hr", format="png")
    headrace.build(tmp_path / "photos", tmp_path / "straight.hr", plan=PLAN)
    report = headrace.build(tmp_path / "old.hr", tmp_path / "new.hr", plan=PLAN)
    assert report.samples == 40
    old, new, straight = (headrace.open(tmp_path / f"{name}.hr") for name in ("old", "new", "straight"))
    assert [new.key(at) for at in range(40)] == [old.key(at) for at in range(40)]
    assert rendition_formats(new) == {"raw", "hri:fast"}
    for at in range(40):
        assert new.read(at, "image")[1].format == straight.read(at, "image")[1].format
        np.testing.assert_array_equal(new[at]["image"], old[at]["image"])
    assert new.classes == old.classes == ["cat", "dog"]
    np.testing.assert_array_equal(new.targets, old.targets)


def test_every_field_is_carried(tmp_path):
    annotations = [{"id": 1, "image_id": 1, "category_id": 7, "bbox": [1, 1, 2, 3], "iscrowd": 0, "area": 6}]
    write_coco(tmp_path / "coco", [1, 2], annotations)
    headrace.build(tmp_path / "coco", tmp_path / "old.hr")
    headrace.build(tmp_path / "old.hr", tmp_path / "new.hr", format="raw", kind="dataset")
    old, new = headrace.open(tmp_path / "old.hr"), headrace.open(tmp_path / "new.hr")
    assert dict(new.fields) == dict(old.fields)
    for at in range(2):
        np.testing.assert_array_equal(new[at]["boxes"].xyxy, old[at]["boxes"].xyxy)
        np.testing.assert_array_equal(new[at]["boxes"].labels, old[at]["boxes"].labels)


def test_orientation_survives_a_format_that_cannot_say_it(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "photos").mkdir()
    Image.fromarray(pixels(1)).save(tmp_path / "photos/a.png", exif=exif.tobytes())
    headrace.build(tmp_path / "photos", tmp_path / "raw.hr", format="raw")
    headrace.build(tmp_path / "raw.hr", tmp_path / "again.hr", format="hri:fast")
    assert headrace.open(tmp_path / "again.hr").column("image.orientation").tolist() == [6]


def test_a_view_gives_its_own_samples(tmp_path):
    headrace.build([{"image": pixels(at), "label": at} for at in range(6)], tmp_path / "old.hr")
    view = headrace.open(tmp_path / "old.hr").select([4, 1])
    headrace.build(view, tmp_path / "new.hr", format="raw")
    new = headrace.open(tmp_path / "new.hr")
    assert new.targets.tolist() == [4, 1]
    np.testing.assert_array_equal(new[1]["image"], pixels(1))


def test_one_with_transforms_gives_what_they_make(tmp_path):
    headrace.build([{"image": pixels(0), "label": 1}], tmp_path / "old.hr")
    changed = headrace.open(tmp_path / "old.hr", transform=lambda sample: {**sample, "label": 7})
    headrace.build(changed, tmp_path / "new.hr")
    assert headrace.open(tmp_path / "new.hr").targets.tolist() == [7]


@pytest.mark.parametrize("name", ["jpeg:90", "raw"])
def test_damage_is_not_stored_again(tmp_path, name):
    """Also not where the format itself would decode it into wrong pixels."""
    headrace.build([{"image": pixels(0, 40, 40)}], tmp_path / "old.hr", format=name)
    where = headrace.open(tmp_path / "old.hr").read(0, "image")[1]
    with (tmp_path / "old.hr" / where.shard).open("r+b") as shard:
        shard.seek(where.offset + where.n_bytes - 40)
        byte = shard.read(1)[0]
        shard.seek(-1, 1)
        shard.write(bytes([byte ^ 1]))
    with pytest.raises(BuildError, match=r"at offset .* do not have their checksum"):
        headrace.build(tmp_path / "old.hr", tmp_path / "new.hr", format="keep", verify=False)


def test_it_is_not_built_from_itself(tmp_path):
    headrace.build([{"image": pixels(0)}], tmp_path / "a.hr")
    with pytest.raises(BuildError, match="from itself"):
        headrace.build(tmp_path / "a.hr", tmp_path / "." / "a.hr", force=True)
    np.testing.assert_array_equal(headrace.open(tmp_path / "a.hr")[0]["image"], pixels(0))


def test_a_copy_for_another_process_reads_the_same(tmp_path):
    headrace.build([{"image": pixels(at)} for at in range(3)], tmp_path / "a.hr")
    source = open_source(tmp_path / "a.hr")
    copy = pickle.loads(pickle.dumps(source))
    assert source.kind == "dataset"
    assert keys(copy) == keys(source)
    for item in source.items():
        assert bytes(copy.load(item)["image"].data) == bytes(source.load(item)["image"].data)


def test_an_unfinished_dataset_is_none(tmp_path):
    (tmp_path / "shards").mkdir()
    with pytest.raises(BadSource, match="not a finished dataset"):
        DatasetSource(tmp_path)
