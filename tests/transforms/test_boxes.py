# SPDX-License-Identifier: Apache-2.0
"""Boxes go where their image goes: drawn into a mask, they come out as the mask does."""

from __future__ import annotations

import numpy as np
import pytest
from tests.transforms.reference import apply_passes
from tests.transforms.samples import any_key, moves, resizing

from headrace.records import Boxes
from headrace.transforms import (
    CenterCrop,
    HorizontalFlip,
    Normalize,
    Pad,
    RandomResizedCrop,
    Resize,
    compile,  # noqa: A004
)

KEY = {"seed": 3, "epoch": 1, "sample": 7}


def boxes_of(*corners, labels=None):
    xyxy = np.array(corners, np.float32).reshape(-1, 4)
    return Boxes(xyxy, np.array(range(len(xyxy)) if labels is None else labels, np.int64))


def any_boxes(rng, height, width, n):
    """Boxes of whole pixels, which may overlap."""
    y, x = np.sort(rng.integers(0, height + 1, (n, 2))), np.sort(rng.integers(0, width + 1, (n, 2)))
    y[:, 1] += y[:, 0] == y[:, 1]
    x[:, 1] += x[:, 0] == x[:, 1]
    return boxes_of(*np.stack([x[:, 0], y[:, 0], x[:, 1], y[:, 1]], axis=-1))


def drawn(box, height, width):
    mask = np.zeros((height, width), np.uint8)
    x0, y0, x1, y1 = box.astype(int)
    mask[y0:y1, x0:x1] = 1
    return mask


def extent(mask):
    """The smallest box around what is drawn; None if there is nothing."""
    y, x = np.nonzero(mask)
    return (x.min(), y.min(), x.max() + 1, y.max() + 1) if len(x) else None


def fill_only(transforms):
    """Leave out borders that repeat pixels: they repeat no boxes."""
    return [item for item in transforms if getattr(item, "padding_mode", "constant") == "constant"]


def zero_fill(transforms):
    return [item for item in fill_only(transforms) if getattr(item, "fill", 0) == 0]


@pytest.mark.parametrize("seed", range(200))
def test_a_box_is_around_what_is_left_of_its_mask(seed):
    """Crops, pads and flips move a box and the mask that it is drawn into alike, to the pixel."""
    rng = np.random.default_rng(seed)
    height, width = rng.integers(1, 60, 2).tolist()
    compiled, key = compile(zero_fill(moves(rng))), any_key(rng).arguments()
    boxes = any_boxes(rng, height, width, 5)

    moved = compiled.boxes_kept(boxes, height, width, **key)[0]

    left = dict(zip(moved.labels.tolist(), moved.xyxy, strict=True))
    for label, box in zip(boxes.labels.tolist(), boxes.xyxy, strict=True):
        around = extent(compiled.mask.apply(drawn(box, height, width), **key))
        assert (label in left) == (around is not None)
        if around is not None:
            assert left[label].tolist() == list(around)


@pytest.mark.parametrize("seed", range(200))
def test_a_resized_box_is_around_its_resized_mask(seed):
    """With a resize a mask's edges are at most half a pixel from the box's."""
    rng = np.random.default_rng(seed)
    height, width = rng.integers(8, 200, 2).tolist()
    transforms = [*zero_fill(moves(rng))[:2], resizing(rng, "bilinear"), *zero_fill(moves(rng))[:2]]
    compiled, key = compile(transforms), any_key(rng).arguments()
    boxes = any_boxes(rng, height, width, 5)

    moved = compiled.boxes_kept(boxes, height, width, **key, min_area=0)[0]

    left = dict(zip(moved.labels.tolist(), moved.xyxy, strict=True))
    for label, box in zip(boxes.labels.tolist(), boxes.xyxy, strict=True):
        around = extent(compiled.mask.apply(drawn(box, height, width), **key))
        if around is None:
            continue  # smaller than a pixel, or gone
        assert np.abs(left[label] - around).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("seed", range(100))
def test_masks_are_never_mixed(seed):
    """A mask is moved and resized by nearest, whatever its image is resized by."""
    rng = np.random.default_rng(seed)
    height, width = rng.integers(1, 80, 2).tolist()
    mask = rng.choice(np.array([3, 77, 255], np.uint8), (height, width))
    transforms = [*moves(rng)[:2], resizing(rng, "bilinear"), *moves(rng)[:2], HorizontalFlip(), Normalize(0.5, 0.5)]
    compiled, key = compile(transforms), any_key(rng).arguments()

    found = compiled.mask.apply(mask, **key)

    expected = apply_passes(mask[..., None], compiled.mask.passes(height, width, **key), mask=True)
    assert found.dtype == np.uint8
    assert np.array_equal(found, expected[..., 0])
    assert compiled.image.shape(height, width, 3, "uint8", **key)[0][1:] == found.shape


def test_a_flipped_mask_is_flipped_before_it_is_resized():
    """Nearest rounds to one side, so the order shows."""
    ramp = np.arange(8, dtype=np.uint8).reshape(1, 8)

    found = compile([HorizontalFlip(1), Resize((1, 4))]).mask.apply(ramp, **KEY)

    assert found.tolist() == [[6, 4, 2, 0]]


def test_labels_stay_with_their_boxes():
    """What is dropped takes its label along."""
    boxes = boxes_of((0, 0, 4, 4), (10, 10, 20, 20), (28, 28, 32, 32), labels=[7, 8, 9])

    moved = compile([CenterCrop(12)]).boxes_kept(boxes, 32, 32, **KEY)[0]

    assert moved.labels.tolist() == [8]
    assert moved.labels.dtype == np.int64
    assert moved.xyxy.tolist() == [[0, 0, 10, 10]]
    assert moved.xyxy.dtype == np.float32
    assert isinstance(moved, Boxes)


def test_small_boxes_are_dropped_by_the_area_that_comes_out():
    """`min_area` counts pixels of the transformed image; what has no area is always dropped."""
    boxes = boxes_of((0, 0, 8, 8), (0, 0, 4, 4), (0, 0, 0, 8))
    compiled = compile([Resize((16, 16))])  # of 32 x 32: areas become a quarter

    kept = {
        area: compiled.boxes_kept(boxes, 32, 32, **KEY, min_area=area)[0].labels.tolist()
        for area in (0, 4, 4.1, 16, 17)
    }

    assert kept == {0: [0, 1], 4: [0, 1], 4.1: [0], 16: [0], 17: []}


def test_a_border_shows_nothing_of_what_was_cut_off():
    """A crop that is padded again leaves its boxes clipped."""
    moved = compile([CenterCrop(10), Pad(5)]).boxes_kept(boxes_of((0, 0, 20, 20)), 20, 20, **KEY)[0]

    assert moved.xyxy.tolist() == [[5, 5, 15, 15]]


def test_no_boxes_stay_no_boxes():
    """An image without boxes has none afterwards."""
    moved = compile([RandomResizedCrop(8)]).boxes_kept(boxes_of(), 20, 20, **KEY)[0]

    assert moved.xyxy.shape == (0, 4)
    assert moved.labels.shape == (0,)
