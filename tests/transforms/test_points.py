# SPDX-License-Identifier: Apache-2.0
"""Boxes, points and polygons go where their image goes: drawn first and moved, or moved and drawn, within a pixel."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw
from tests.transforms.samples import any_key, noise

from headrace.records import Boxes
from headrace.transforms import (
    CenterCrop,
    HorizontalFlip,
    Letterbox,
    Pad,
    RandomAffine,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomZoomOut,
    Resize,
    VerticalFlip,
    compile,  # noqa: A004
)
from headrace.transforms.points import move_points, move_polygons

SEEDS = st.integers(0, 2**32 - 1)


def any_geometry(rng):
    kinds = [
        RandomRotation(180, "bilinear"),
        RandomAffine(40, (0.2, 0.2), (0.8, 1.3), 15),
        RandomPerspective(0.4, 1),
        RandomResizedCrop((70, 80), scale=(0.5, 1)),
        CenterCrop((60, 70)),
        Pad((3, 4, 5, 6)),
        HorizontalFlip(),
        VerticalFlip(),
        Resize((70, 60)),
        Letterbox((75, 65)),
        RandomZoomOut(side_range=(1, 1.3)),
    ]
    return [kinds[rng.integers(len(kinds))] for _ in range(rng.integers(1, 5))]


def drawn(polygon, height, width):
    """Pixels whose centers are inside; four times as fine as Pillow draws."""
    fine = Image.new("L", (width * 4, height * 4))
    ImageDraw.Draw(fine).polygon([(4 * x - 0.5, 4 * y - 0.5) for x, y in polygon], fill=255)
    return np.asarray(fine.reduce(4)) > 127


def grown(mask, pixels):
    padded = np.pad(mask, pixels)
    return np.lib.stride_tricks.sliding_window_view(padded, (2 * pixels + 1, 2 * pixels + 1)).any(axis=(2, 3))


def passes_and_mask(rng, mask):
    compiled, key = compile(any_geometry(rng)), any_key(rng).arguments()
    return compiled, key, compiled.image.passes(*mask.shape, **key), compiled.mask.apply(mask.astype(np.uint8), **key)


def any_polygon(rng):
    n = rng.integers(4, 9)  # without spikes, which are lost between pixels
    angles = 2 * np.pi * (np.arange(n) + rng.uniform(0, 0.5, n)) / n
    radii = rng.uniform(18, 30, n)
    return np.stack([45 + radii * np.cos(angles), 40 + radii * np.sin(angles)], axis=-1)


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_polygons_are_drawn_where_masks_go(seed):
    """Apart from pixels at the edge of the polygon."""
    rng = np.random.default_rng(seed)
    polygon = any_polygon(rng)
    mask = drawn(polygon, 80, 90)
    *_, passes, moved = passes_and_mask(rng, mask)

    polygons, kept = move_polygons(polygon[None], passes)

    redrawn = drawn(polygons[0], *moved.shape) if kept[0] else np.zeros(moved.shape, bool)
    assert not (redrawn & ~grown(moved > 0, 3)).any()
    assert not ((moved > 0) & ~grown(redrawn, 3)).any()


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_boxes_are_around_what_masks_show(seed):
    """Within two pixels: nearest masks may lose one at each resampling."""
    rng = np.random.default_rng(seed)
    y, x = np.sort(rng.integers(5, 75, 2)), np.sort(rng.integers(5, 85, 2))
    y[1], x[1] = y[1] + 5, x[1] + 5
    mask = np.zeros((80, 90), bool)
    mask[y[0] : y[1], x[0] : x[1]] = True
    compiled, key, _, moved = passes_and_mask(rng, mask)
    boxes = Boxes(np.array([[x[0], y[0], x[1], y[1]]], np.float32), np.array([4]))

    found = compiled.boxes_kept(boxes, 80, 90, **key, min_area=0)[0]

    rows, columns = np.nonzero(moved)
    if len(found.xyxy) == 0:
        assert len(rows) <= 4
        return
    x0, y0, x1, y1 = found.xyxy[0]
    height, width = moved.shape
    assert 0 <= x0 <= x1 <= width
    assert 0 <= y0 <= y1 <= height
    if len(rows):
        assert x0 <= columns.min() + 2
        assert y0 <= rows.min() + 2
        assert x1 >= columns.max() - 1
        assert y1 >= rows.max() - 1


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_points_are_where_their_pixel_goes(seed):
    """A disc around each point comes out around the moved one."""
    rng = np.random.default_rng(seed)
    point = rng.uniform(10, 70, 2)
    down, across = np.mgrid[:80, :90] + 0.5
    mask = (across - point[0]) ** 2 + (down - point[1]) ** 2 <= 16
    *_, passes, moved = passes_and_mask(rng, mask)

    (place,), (visible,) = move_points(point[None], passes)

    x, y = place
    height, width = moved.shape
    if visible:
        assert 0 <= x <= width
        assert 0 <= y <= height
        rows, columns = np.nonzero(moved)
        if len(rows) > 3:
            assert np.hypot(columns + 0.5 - x, rows + 0.5 - y).min() <= 2


def any_extreme(rng):
    """Transforms with parameters at their limits."""
    interpolation = str(rng.choice(["nearest", "bilinear", "bicubic"]))
    scale = float(np.exp(rng.uniform(-6.9, 6.9)))
    kinds = [
        RandomRotation(36000, interpolation, expand=bool(rng.integers(2))),
        RandomAffine(180, (1, 1), (scale, scale), (-89, 89, -89, 89), interpolation, (1, 2, 3)),
        RandomAffine(0, scale=(scale, scale), interpolation=interpolation, center=(-65535, 65535)),
        RandomPerspective(1, 1, interpolation),
        Letterbox(int(rng.integers(1, 100))),
        *any_geometry(rng),
    ]
    return kinds[rng.integers(len(kinds))]


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_images_of_any_kind_and_their_targets_come_out_sound(seed):
    """Images, masks, boxes, keypoints and polygons, from 1 x 1 pixels, with 1 to 8 channels."""
    rng = np.random.default_rng(seed)
    height, width = rng.integers(1, rng.choice([3, 60, 200]), 2).tolist()
    dtype = str(rng.choice(["uint8", "uint16", "int16"]))
    image = noise(rng, height, width, int(rng.integers(1, 9)), dtype)
    transforms = [any_extreme(rng) for _ in range(rng.integers(1, 6))]
    compiled, key = compile(transforms, layout="HWC", color="keep"), any_key(rng).arguments()

    shape = compiled.image.apply(image, **key).shape[:2]

    assert compiled.mask.apply(np.ascontiguousarray(image[..., 0]), **key).shape == shape
    given_boxes = Boxes(np.array([[0, 0, width, height], [0, 0, width / 2, height]], np.float32), np.array([1, 2]))
    xyxy = compiled.boxes_kept(given_boxes, height, width, **key)[0].xyxy
    assert (xyxy >= 0).all()
    assert (xyxy <= [*shape[::-1], *shape[::-1]]).all()
    motion = compiled.motion(height, width, **key)
    (joints,) = motion.move_shapes("keypoints", [[width / 2, height / 2, 2]])
    (outlines,) = motion.move_shapes("polygons", [[[0, 0, width, 0, width, height]]])
    assert np.isfinite(joints).all()
    assert joints[2] in (0, 2)
    assert all(np.isfinite(outline).all() for outline in outlines)


def test_a_turned_box_becomes_the_box_around_it():
    """A square by 45 degrees becomes the square around the diamond."""
    compiled = compile([RandomRotation((45, 45))])
    boxes = Boxes(np.array([[40, 40, 60, 60]], np.float32), np.array([1]))

    found = compiled.boxes_kept(boxes, 100, 100, seed=0, epoch=0, sample=0)[0]

    assert np.allclose(found.xyxy, [[50 - 200**0.5, 50 - 200**0.5, 50 + 200**0.5, 50 + 200**0.5]], atol=1e-3)


def test_only_the_visible_part_of_a_turned_box_counts():
    """The corner that leaves the image does not make the box larger."""
    compiled = compile([RandomRotation((45, 45))])
    boxes = Boxes(np.array([[0, 0, 10, 10], [45, 0, 55, 20]], np.float32), np.array([1, 2]))

    found, kept = compiled.boxes_kept(boxes, 100, 100, seed=0, epoch=0, sample=0)

    assert kept.tolist() == [False, True]
    assert found.labels.tolist() == [2]
    assert (found.xyxy >= 0).all()
