# SPDX-License-Identifier: Apache-2.0
"""Which boxes stay after crops and warps, and keypoints that flips exchange."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.transforms.samples import any_key

from headrace.records import Boxes
from headrace.transforms import (
    CenterCrop,
    HorizontalFlip,
    Pad,
    RandomAffine,
    RandomApply,
    RandomCrop,
    RandomPerspective,
    RandomRotation,
    Resize,
    VerticalFlip,
    compile,  # noqa: A004
)
from headrace.transforms.boxes import BoxFilter
from headrace.transforms.detection.targets import Targets, join_targets

KEY = {"seed": 0, "epoch": 0, "sample": 0}
ALL_BOXES = BoxFilter(0, 0)


def boxes_of(*corners):
    return Boxes(np.array(corners, np.float32).reshape(-1, 4), np.arange(len(corners)))


@pytest.mark.parametrize(("least", "kept"), [(0, [0, 1, 2]), (0.3, [1, 2]), (0.5, [1, 2]), (0.51, [2]), (1, [2])])
def test_the_share_of_a_box_that_a_crop_leaves(least, kept):
    """25, 50 and 100 % of the boxes are left; a share that is just enough is enough."""
    boxes = boxes_of([10, 10, 30, 30], [10, 20, 30, 40], [30, 30, 50, 50])
    compiled = compile([CenterCrop(40), Resize(20)])  # of 80 x 80: from 20 to 60

    moved, mask = compiled.boxes_kept(boxes, 80, 80, **KEY, min_visibility=least)

    assert np.flatnonzero(mask).tolist() == kept
    assert moved.labels.tolist() == kept


def test_both_limits_hold():
    """A box may be visible entirely and still too small."""
    boxes = boxes_of([30, 30, 32, 32], [10, 20, 30, 40])
    compiled = compile([CenterCrop(40)])
    found = compiled.boxes_kept(boxes, 80, 80, **KEY, min_area=5, min_visibility=0.5)[0]
    assert found.labels.tolist() == [1]


def test_after_a_rotation_the_box_around_the_turned_corners_counts():
    """As in albumentations: the visible box divided by the box around all four corners."""
    boxes = boxes_of([40, 40, 60, 60], [0, 0, 20, 20])
    compiled = compile([RandomRotation((45, 45))])
    shares = {}
    for least in np.linspace(0, 1, 101):
        for label in compiled.boxes_kept(boxes, 100, 100, **KEY, min_visibility=float(least))[0].labels.tolist():
            shares[label] = float(least)
    assert shares[0] == 1.0
    assert shares.get(1, 0) < 1.0  # a corner is outside


@pytest.mark.parametrize("seed", range(40))
def test_the_limits_only_remove_boxes(seed):
    """Also behind the horizon of a perspective, and after several warps."""
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.uniform(-10, 110, (20, 2, 2)), axis=1)
    boxes = boxes_of(*np.concatenate([ends[:, 0], ends[:, 1]], axis=1))
    compiled = compile(
        [RandomPerspective(1, 1), RandomAffine(40, (0.3, 0.3), (0.5, 2)), CenterCrop(70), HorizontalFlip()]
    )
    key = any_key(rng).arguments()

    everything = compiled.boxes_kept(boxes, 100, 100, **key)[0]
    some = compiled.boxes_kept(boxes, 100, 100, **key, min_visibility=0.4)[0]

    assert set(some.labels.tolist()) <= set(everything.labels.tolist())
    for label, corners in zip(some.labels, some.xyxy, strict=True):
        assert np.array_equal(corners, everything.xyxy[everything.labels == label][0])


@pytest.mark.parametrize(
    ("transforms", "mirrored"),
    [
        ([HorizontalFlip(1, [(0, 1)])], True),
        ([HorizontalFlip(0, [(0, 1)])], False),
        ([HorizontalFlip(1, [(0, 1)]), HorizontalFlip(1)], False),
        ([HorizontalFlip(1, [(0, 1)]), VerticalFlip(1)], False),
        ([VerticalFlip(1, [(0, 1)])], True),
        ([RandomRotation((180, 180)), HorizontalFlip(0, [(0, 1)])], False),
        ([RandomRotation((30, 30)), HorizontalFlip(1, [(0, 1)]), RandomPerspective(0.2, 1)], True),
        ([RandomApply([HorizontalFlip(1, [(0, 1)])], 1.0), Resize(20)], True),
        ([HorizontalFlip(1, ())], False),
        ([HorizontalFlip(1)], False),
    ],
)
def test_a_mirrored_image_exchanges_left_and_right(transforms, mirrored):
    """An odd number of flips, whatever else is done."""
    motion = compile(transforms).motion(40, 40, **KEY)
    (made,) = motion.move_shapes("keypoints", [[18, 20, 1, 22, 20, 2, 20, 20, 2]])
    assert made[2::3].tolist() == ([2, 1, 2] if mirrored else [1, 2, 2])


def test_the_dataset_may_name_the_pairs():
    """Those of the transforms come first."""
    points = [[18, 20, 1, 22, 20, 2]]
    for flip, expected in ((HorizontalFlip(1), [2, 1]), (HorizontalFlip(1, ()), [1, 2])):
        motion = compile([flip]).motion(40, 40, **KEY)
        assert motion.move_shapes("keypoints", points, ((0, 1), (3, 9)))[0][2::3].tolist() == expected


def test_pairs_are_checked():
    for pairs in ([(1,)], 3, [(0, 1), (1, 2)], [(0, 0)], [(-1, 2)]):
        with pytest.raises(ValueError, match="flip_pairs"):
            HorizontalFlip(flip_pairs=pairs)
    with pytest.raises(ValueError, match="same flip_pairs"):
        compile([HorizontalFlip(1, [(0, 1)]), VerticalFlip(1, [(0, 2)])])


@pytest.mark.parametrize(
    "transform", [Pad(2, 7, mask_fill=255), RandomCrop(8, 2, pad_if_needed=True, fill=7, mask_fill=255)]
)
def test_the_border_of_a_mask_has_its_own_value(transform):
    """A class that the loss ignores, while the image has a gray border."""
    compiled, pixels = compile([transform, CenterCrop(8)], layout="HWC"), np.full((4, 4), 1, np.uint8)
    image, mask = compiled.image.apply(pixels, **KEY), compiled.mask.apply(pixels, **KEY)
    assert set(np.unique(image)) == {1, 7}
    assert np.array_equal(mask == 255, image[..., 0] == 7)
    assert replace(transform, mask_fill=None).for_mask() == replace(transform, mask_fill=None)


def test_all_lists_follow_their_boxes():
    """Numbers, text, keypoints and polygons; and those of several images become one."""
    lists = {
        "area": np.array([1, 2], np.float32),
        "name": ["a", "b"],
        "joints": [[5, 5, 2], [70, 70, 2]],
        "outline": [[[0, 0, 9, 0, 9, 9]], [[60, 60, 80, 60, 80, 80]]],
    }
    kinds = {"area": "list<float32>", "name": "list<str>", "joints": "keypoints", "outline": "polygons"}
    given = Targets(boxes_of([0, 0, 10, 10], [60, 60, 80, 80]), lists)

    moved = compile([CenterCrop(40)]).motion(100, 100, **KEY).move(given, kinds, ALL_BOXES, {})
    joined = join_targets([moved, moved])

    assert moved.boxes.labels.tolist() == [1]
    assert moved.lists["area"].tolist() == [2]
    assert moved.lists["name"] == ["b"]
    assert len(moved.lists["joints"]) == len(moved.lists["outline"]) == 1
    assert joined.boxes.labels.tolist() == [1, 1]
    assert joined.lists["area"].tolist() == [2, 2]
    assert joined.lists["name"] == ["b", "b"]
