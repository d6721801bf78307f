# SPDX-License-Identifier: Apache-2.0
"""RandomIoUCrop crops as torchvision's formula says, in images, boxes and what belongs to them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.transforms.philox import Key, below, uniform, unit

import headrace
from headrace.records import Boxes
from headrace.transforms import (
    HorizontalFlip,
    Normalize,
    RandomIoUCrop,
    RandomRotation,
    RandomZoomOut,
    Resize,
    compile,  # noqa: A004
)
from headrace.transforms.boxes import BoxFilter

OPTIONS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
ALL_BOXES = BoxFilter(0, 0)


def boxes_of(corners):
    return Boxes(np.array(corners, np.float32).reshape(-1, 4), np.arange(len(corners)))


def reference(boxes, height, width, key, *, operation=0, options=OPTIONS, trials=40):
    """Return (left, top, width, height) of the crop, and which boxes have their center in it; None for no crop."""
    for choice in range(50 if len(boxes) else 0):
        block = choice * (trials + 1)
        least = options[below(key.words(operation, block)[0], len(options))]
        if least >= 1:
            return None
        for trial in range(1, trials + 1):
            words = key.words(operation, block + trial)
            w, h = int(width * uniform(words[0], 0.3, 1)), int(height * uniform(words[1], 0.3, 1))
            if not (w and h and 0.5 <= w / h <= 2):
                continue
            left, top = int((width - w) * unit(words[2])), int((height - h) * unit(words[3]))
            x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
            inside = (left < x) & (x < left + w) & (top < y) & (y < top + h)
            across = np.minimum(boxes[:, 2], left + w) - np.maximum(boxes[:, 0], left)
            down = np.minimum(boxes[:, 3], top + h) - np.maximum(boxes[:, 1], top)
            both = np.maximum(across, 0) * np.maximum(down, 0)
            areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
            if inside.any() and (both / (areas + w * h - both))[inside].max() >= least:
                return (left, top, w, h), inside
    return None


def any_boxes(rng, height, width, n):
    ends = np.sort(rng.integers(0, 65, (n, 2, 2)) / 64, axis=1) * [width, height]
    return np.concatenate([ends[:, 0], ends[:, 1]], axis=1)


@pytest.mark.parametrize("seed", range(150))
def test_the_crop_is_that_of_the_formula(seed):
    """The pixels, the boxes and the labels."""
    rng = np.random.default_rng(seed)
    height, width = rng.integers(8, 90, 2).tolist()
    boxes = any_boxes(rng, height, width, rng.integers(0, 5))
    given, key = boxes_of(boxes), Key(seed, 1, seed + 3)
    image = rng.integers(0, 256, (height, width, 3), np.uint8)
    compiled = compile([RandomIoUCrop()], layout="HWC")

    expected = reference(boxes, height, width, key)

    (left, top, w, h), inside = expected or ((0, 0, width, height), np.ones(len(boxes), bool))
    made = compiled.image.apply(image, **key.arguments(), boxes=given.xyxy)
    assert np.array_equal(made, image[top : top + h, left : left + w])
    moved, kept = compiled.boxes_kept(given, height, width, **key.arguments(), min_area=0)
    clipped = np.clip(boxes - [left, top, left, top], 0, [w, h, w, h])
    has_area = (clipped[:, 2] > clipped[:, 0]) & (clipped[:, 3] > clipped[:, 1])
    assert np.array_equal(kept, inside & has_area)
    assert np.allclose(moved.xyxy, clipped[kept])
    assert np.array_equal(moved.labels, np.flatnonzero(kept))


@pytest.mark.parametrize("seed", range(60))
def test_boxes_are_looked_at_where_earlier_operations_have_put_them(seed):
    """The crop after a zoom, a flip and a resize is the crop of what these make."""
    rng = np.random.default_rng(seed)
    before = [RandomZoomOut(p=0.7), HorizontalFlip(), Resize((70, 60), interpolation="nearest")]
    height, width = rng.integers(8, 90, 2).tolist()
    given, key = boxes_of(any_boxes(rng, height, width, 3)), Key(seed, 0, 5)
    first = compile(before, layout="HWC")
    middle = first.boxes_kept(given, height, width, **key.arguments(), min_area=0)[0].xyxy.astype(np.float64)

    expected = reference(middle, 70, 60, key, operation=3)

    image = rng.integers(0, 256, (height, width, 3), np.uint8)
    made = compile([*before, RandomIoUCrop()], layout="HWC").image.apply(image, **key.arguments(), boxes=given.xyxy)
    left, top, w, h = expected[0] if expected else (0, 0, 60, 70)
    assert np.array_equal(made, first.image.apply(image, **key.arguments())[top : top + h, left : left + w])


def test_all_that_belongs_to_a_removed_box_is_removed():
    """Through `Motion`, which the loader and the dataset use."""
    given, key = boxes_of([[0, 0, 10, 10], [60, 60, 80, 80]]), Key(0, 0, 2)
    crop = RandomIoUCrop(sampler_options=[0.0], max_scale=0.4)
    compiled = compile([crop])
    motion = compiled.motion(80, 80, **key.arguments(), corners=given.xyxy)

    kept = motion.move_boxes(given, ALL_BOXES)[1]

    assert kept.sum() == 1
    assert motion.left is not None
    assert motion.left.tolist() == kept.tolist()


def test_hostile_boxes_do_no_harm():
    """Numbers that are no boxes never qualify."""
    image = np.zeros((20, 30, 3), np.uint8)
    compiled, key = compile([RandomIoUCrop(sampler_options=[0.5])]), Key(1).arguments()
    for value in (np.nan, np.inf, -np.inf, 3e38):
        corners = np.full((4, 4), value, np.float32)
        made = compile([RandomIoUCrop(sampler_options=[0.5])]).image.apply(
            image, seed=1, epoch=0, sample=0, boxes=corners
        )
        assert made.shape == (3, 20, 30)
    with pytest.raises(ValueError, match="float32"):
        compiled.image.apply(image, **key, boxes=np.zeros((2, 4)))


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        ([RandomRotation(5), RandomIoUCrop()], "before rotations"),
        ([RandomIoUCrop(), RandomIoUCrop()], "at most once"),
    ],
)
def test_where_it_cannot_be(transforms, message):
    with pytest.raises(ValueError, match=message):
        compile(transforms)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_scale": 0.9, "max_scale": 0.5}, "min_scale must be at most max_scale"),
        ({"min_scale": 0}, "min_scale"),
        ({"max_aspect_ratio": 2000}, "max_aspect_ratio"),
        ({"sampler_options": []}, "1 to 10 overlaps"),
        ({"sampler_options": [-1]}, "sampler_options"),
        ({"trials": 0}, "trials"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        RandomIoUCrop(**arguments)


def test_every_loader_crops_alike(tmp_path):
    """Loader, dataset, and a loader that does not load the boxes."""
    rng = np.random.default_rng(0)
    types = {"image": "image", "boxes": "boxes", "area": "list<float32> of boxes"}
    with headrace.Writer(tmp_path / "a.hr", fields=types) as writer:
        for number in range(12):
            corners = any_boxes(rng, 64, 64, number % 4).astype(np.float32)
            image = rng.integers(0, 256, (64, 64, 3), np.uint8)
            area = np.arange(len(corners), dtype=np.float32)
            writer.write({"image": image, "boxes": (corners, np.arange(len(corners))), "area": area})
    transform = [RandomIoUCrop(), Resize((32, 32)), HorizontalFlip(), Normalize(0.5, 0.5)]
    dataset = headrace.open(tmp_path / "a.hr", transform=transform, seed=4)
    samples = [dataset[at] for at in range(12)]

    for options in ({"num_workers": 2}, {"num_workers": 0}):
        with headrace.Loader(tmp_path / "a.hr", batch_size=12, transform=transform, seed=4, **options) as loader:
            batch = next(iter(loader))
        for at, sample in enumerate(samples):
            assert np.array_equal(batch["image"][at], sample["image"])
            assert np.array_equal(batch["boxes"][at].xyxy, sample["boxes"].xyxy)
            assert np.array_equal(batch["area"][at], sample["area"])
            assert np.array_equal(sample["area"].astype(int), sample["boxes"].labels)
    with headrace.Loader(tmp_path / "a.hr", batch_size=12, transform=transform, seed=4, fields=["image"]) as loader:
        assert np.array_equal(next(iter(loader))["image"], batch["image"])


def test_a_dataset_without_boxes_is_refused(tmp_path):
    with headrace.Writer(tmp_path / "a.hr", fields={"image": "image"}) as writer:
        writer.write({"image": np.zeros((8, 8, 3), np.uint8)})
    with pytest.raises(ValueError, match="exactly one field of boxes"):
        headrace.Loader(tmp_path / "a.hr", transform=[RandomIoUCrop()])
    with pytest.raises(ValueError, match="exactly one field of boxes"):
        headrace.open(tmp_path / "a.hr", transform=[RandomIoUCrop()])[0]
