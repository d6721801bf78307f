# SPDX-License-Identifier: Apache-2.0
"""Lists that belong to boxes lose the elements of the boxes that a crop removes, wherever boxes are moved."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.sources.pictures import png, write

import headrace
from headrace.errors import BuildError
from headrace.transforms import CenterCrop, HorizontalFlip, RandomAffine, RandomCrop, Views

COUNT = 12


def rectangle(x, y, side):
    return [x, y, x + side, y, x + side, y + side, x, y + side]


def objects(image):
    """A grid of small boxes, of which a crop keeps some; every value of a box is its number."""
    return [
        {
            "id": 1000 * image + k,
            "image_id": image,
            "category_id": 1 + k,
            "bbox": [8 * (k % 4), 8 * (k // 4), 6, 6],
            "area": k + 0.5,
            "iscrowd": k % 2,
            "segmentation": [rectangle(8 * (k % 4), 8 * (k // 4), 6)],
        }
        for k in range(16)
    ]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    root = tmp_path_factory.mktemp("followers")
    write(root / "coco", {f"{n}.png": png(n, height=32, width=32) for n in range(COUNT)})
    tree = {
        "images": [{"id": n, "file_name": f"{n}.png"} for n in range(COUNT)],
        "annotations": [found for n in range(COUNT) for found in objects(n)],
        "categories": [{"id": 1 + k, "name": f"c{k}"} for k in range(16)],
    }
    write(root / "coco", {"_annotations.coco.json": json.dumps(tree).encode()})
    headrace.build(root / "coco", root / "coco.hr", workers=1)
    return root / "coco.hr"


def check(boxes, sample):
    """Everything of a sample belongs to the boxes that are left."""
    labels = np.asarray(boxes.labels).tolist()
    assert [int(number) % 1000 for number in sample["annotation_id"]] == labels
    assert [float(area) - 0.5 for area in sample["area"]] == labels
    assert [int(flag) for flag in sample["iscrowd"]] == [label % 2 for label in labels]
    for corners, polygons in zip(np.asarray(boxes.xyxy), sample["segmentation"], strict=True):
        (polygon,) = (np.asarray(each).reshape(-1, 2) for each in polygons)
        assert np.array_equal([*polygon.min(axis=0), *polygon.max(axis=0)], corners)
    return len(labels)


FOLLOWERS = ("annotation_id", "area", "iscrowd", "segmentation")


def test_without_transforms_all_are_there(dataset):
    sample = headrace.open(dataset)[3]
    assert check(sample["boxes"], sample) == 16


def test_samples(dataset):
    ds = headrace.open(dataset, transform=[RandomCrop(16), HorizontalFlip(0.5)])
    left = {check(sample["boxes"], sample) for sample in ds}
    assert len(left) > 1
    assert max(left) < 16


def test_batches(dataset):
    transform = [RandomCrop(16), HorizontalFlip(0.5)]
    loader = headrace.Loader(dataset, batch_size=4, transform=transform, output="numpy", shuffle=True, num_workers=1)
    left = set()
    for batch in loader:
        for at in range(4):
            left.add(check(batch["boxes"][at], {name: batch[name][at] for name in FOLLOWERS}))
    assert len(left) > 1


def test_batches_are_the_samples_of_the_dataset(dataset):
    transform = [RandomCrop(16)]
    ds = headrace.open(dataset, transform=transform, seed=5)
    loader = headrace.Loader(dataset, batch_size=4, transform=transform, output="numpy", seed=5, num_workers=0)
    ids = [numbers.tolist() for batch in loader for numbers in batch["annotation_id"]]
    assert ids == [sample["annotation_id"].tolist() for sample in ds]


def test_turned_batches_are_the_samples_of_the_dataset(dataset):
    transform = [RandomAffine(180, (0.3, 0.3), (0.7, 1.4), 10, "bilinear"), RandomCrop(20), HorizontalFlip()]
    ds = headrace.open(dataset, transform=transform, seed=5)
    loader = headrace.Loader(dataset, batch_size=4, transform=transform, output="numpy", seed=5, num_workers=2)
    left = set()
    for number, batch in enumerate(loader):
        for at in range(4):
            sample = ds[4 * number + at]
            assert np.array_equal(batch["image"][at], sample["image"])
            assert np.array_equal(batch["boxes"][at].xyxy, sample["boxes"].xyxy)
            for name in FOLLOWERS[:-1]:
                assert np.array_equal(batch[name][at], sample[name])
            for found, expected in zip(batch["segmentation"][at], sample["segmentation"], strict=True):
                assert all(map(np.array_equal, found, expected))
            left.add(len(sample["segmentation"]))
    assert len(left) > 1


def test_boxes_need_not_be_among_the_fields(dataset):
    loader = headrace.Loader(
        dataset, batch_size=4, transform=[CenterCrop(16)], output="numpy", fields=["image", "annotation_id"]
    )
    (batch, *_) = loader
    assert [len(ids) for ids in batch["annotation_id"]] == [4, 4, 4, 4]


def test_views(dataset):
    transform = [Views(2, [RandomCrop(16)])]
    ds = headrace.open(dataset, transform=transform)
    loader = headrace.Loader(dataset, batch_size=4, transform=transform, output="numpy", num_workers=0)
    batch = next(iter(loader))
    for view in range(2):
        check(ds[0]["boxes"][view], {name: ds[0][name][view] for name in FOLLOWERS})
        check(batch["boxes"][1][view], {name: batch[name][1][view] for name in FOLLOWERS})


def test_a_dataset_made_of_it_keeps_them_together(dataset, tmp_path):
    headrace.build(dataset, tmp_path / "a.hr", workers=1, format="png")
    sample = headrace.open(tmp_path / "a.hr", transform=[CenterCrop(16)])[0]
    assert check(sample["boxes"], sample) == 4


FIELDS = {"image": "image", "boxes": "boxes", "weight": "list<float32> of boxes"}


def test_a_writer_declares_them(tmp_path):
    boxes = (np.array([[0, 0, 4, 4], [10, 10, 20, 20]], np.float32), np.array([3, 5]))
    with headrace.Writer(tmp_path / "a.hr", fields=FIELDS) as writer:
        writer.write({"image": np.zeros((32, 32, 3), np.uint8), "boxes": boxes, "weight": [0.25, 0.75]})
    sample = headrace.open(tmp_path / "a.hr", transform=[CenterCrop(16)])[0]
    assert sample["weight"].tolist() == [0.75]
    assert headrace.open(tmp_path / "a.hr").manifest.fields[2].of == "boxes"


@pytest.mark.parametrize(
    ("weight", "fields", "message"),
    [
        ([0.5], FIELDS, "one element for each of the 2 boxes of 'boxes'; it has 1"),
        ([0.5, 1], {**FIELDS, "weight": "list<float32> of image"}, "'image' a field of boxes"),
        (0.5, {**FIELDS, "weight": "float32 of boxes"}, "must be a list"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, weight, fields, message):
    boxes = (np.zeros((2, 4), np.float32), np.array([3, 5]))

    def write_one():
        with headrace.Writer(tmp_path / "a.hr", fields=fields) as writer:
            writer.write({"image": np.zeros((8, 8, 3), np.uint8), "boxes": boxes, "weight": weight})

    with pytest.raises((BuildError, ValueError), match=message):
        write_one()


def test_keypoints_move_with_their_image(tmp_path):
    """Those that leave it become invisible; what was not labeled stays."""
    fields = {"image": "image", "boxes": "boxes", "joints": "keypoints of boxes"}
    boxes = (np.array([[0, 0, 32, 32], [0, 0, 2, 2]], np.float32), np.array([3, 5]))
    joints = [[10, 20, 2, 1, 1, 1, 0, 0, 0], [1, 1, 2, 1, 1, 2, 0, 0, 0]]
    with headrace.Writer(tmp_path / "a.hr", fields=fields) as writer:
        writer.write({"image": np.zeros((32, 32, 3), np.uint8), "boxes": boxes, "joints": joints})
    transform = [CenterCrop(16), HorizontalFlip(1)]

    sample = headrace.open(tmp_path / "a.hr", transform=transform)[0]
    (batch,) = headrace.Loader(tmp_path / "a.hr", batch_size=1, transform=transform, output="numpy", num_workers=0)

    for found in (sample["joints"], batch["joints"][0]):
        assert [each.tolist() for each in found] == [[14, 12, 2, 23, -7, 0, 0, 0, 0]]
    assert [each.tolist() for each in headrace.open(tmp_path / "a.hr")[0]["joints"]] == joints


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("keypoints of boxes", [[1, 2]], "three numbers each"),
        ("polygons of boxes", [[[1, 2, 3, 4]]], "at least three corners"),
        ("polygons of boxes", [[[1, 2, 3, 4, 5, 6, 7]]], "at least three corners"),
        ("polygons of boxes", [], "one element for each of the 1 boxes"),
        ("keypoints", [[1, 2, 3]], "must belong to boxes, as in 'keypoints of boxes'"),
    ],
)
def test_shapes_that_are_none_are_refused(tmp_path, kind, value, message):
    boxes = (np.zeros((1, 4), np.float32), np.array([3]))

    def write_one():
        with headrace.Writer(tmp_path / "a.hr", fields={"image": "image", "boxes": "boxes", "shape": kind}) as writer:
            writer.write({"image": np.zeros((8, 8, 3), np.uint8), "boxes": boxes, "shape": value})

    with pytest.raises((BuildError, ValueError), match=message):
        write_one()
