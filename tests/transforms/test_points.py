# SPDX-License-Identifier: Apache-2.0
"""Boxes, points and polygons go where their image goes: drawn first and moved, or moved and drawn, within a pixel."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.transforms.samples import any_key, noise

from headrace.records import Boxes
from headrace.transforms import (
    CenterCrop,
    ElasticTransform,
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
    """Pixels whose centers are inside."""
    y, x = np.mgrid[:height, :width] + 0.5
    return outside(polygon, x, y) < 0


def passes_and_mask(rng, mask):
    compiled, key = compile(any_geometry(rng)), any_key(rng).arguments()
    return compiled, key, compiled.image.passes(*mask.shape, **key), compiled.mask.apply(mask.astype(np.uint8), **key)


def any_polygon(rng):
    n = rng.integers(4, 9)  # without spikes, which are lost between pixels
    angles = 2 * np.pi * (np.arange(n) + rng.uniform(0, 0.5, n)) / n
    radii = rng.uniform(18, 30, n)
    return np.stack([45 + radii * np.cos(angles), 40 + radii * np.sin(angles)], axis=-1)


def magnification(each):
    """The largest factor by which a pass that moves pixels apart does so, or 0 for one that only cuts and pads."""
    rows, columns, warp = each["rows"], each["columns"], each["warp"]
    if warp is None and (rows["resized"], columns["resized"]) == (rows["size"], columns["size"]):
        return 0
    if warp is None:
        return max(rows["resized"] / rows["size"], columns["resized"] / columns["size"])
    u, v = np.meshgrid(np.linspace(0, columns["canvas"], 9), np.linspace(0, rows["canvas"], 9))
    a, b, c, d, e, f, g, h, i = warp["map"]
    w = g * u + h * v + i
    x, y = (a * u + b * v + c) / w, (d * u + e * v + f) / w
    jacobians = np.array([[(a - g * x) / w, (b - h * x) / w], [(d - g * y) / w, (e - h * y) / w]])
    return 1 / max(1e-9, np.linalg.svd(np.moveaxis(jacobians[..., w > 1e-6], -1, 0))[1].min(initial=np.inf))


def tolerance(passes, *, drawn=False):
    """How far a mask may be off: half of a pixel of each picture that it was drawn on, as it comes out.

    On the first one a shape of whole pixels is exact; one that was `drawn` is not.
    """
    half = 2**-0.5  # of a diagonal
    pixels = half if drawn else 0.0
    for k, factor in enumerate(filter(None, map(magnification, passes))):
        pixels = (pixels + half * (k > 0)) * factor
    return pixels + 0.02  # for positions in 2^-16ths, over an image


def outside(polygon, x, y):
    """Distances of places from a polygon's edges; negative inside."""
    begin, end = polygon, np.roll(polygon, -1, axis=0)
    edge = end - begin
    length = np.maximum((edge**2).sum(axis=1), 1e-12)
    at = np.stack([x, y], axis=-1)[..., None, :]
    share = np.clip(((at - begin) * edge).sum(axis=-1) / length, 0, 1)
    distance = np.sqrt((((begin + share[..., None] * edge) - at) ** 2).sum(axis=-1)).min(axis=-1)
    crosses = (begin[:, 1] > y[..., None]) != (end[:, 1] > y[..., None])
    down = np.where(edge[:, 1] == 0, 1, edge[:, 1])
    right = begin[:, 0] + (y[..., None] - begin[:, 1]) / down * edge[:, 0] > x[..., None]
    return np.where((crosses & right).sum(axis=-1) % 2 == 1, -distance, distance)


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_shapes_of_whole_pixels_are_drawn_exactly_where_masks_go(seed):
    """Centers of pixels inside of the moved shape are those of the moved mask; of one resampling, to 0.02 pixels."""
    rng = np.random.default_rng(seed)
    (x0, x1, x2), (y0, y1, y2) = np.sort(rng.integers(3, 85, 3)), np.sort(rng.integers(3, 75, 3))
    mask = np.zeros((80, 90), bool)
    mask[y0:y2, x0:x1] = mask[y0:y1, x1:x2] = True  # an L
    shape = np.array([[x0, y0], [x2, y0], [x2, y1], [x1, y1], [x1, y2], [x0, y2]], np.float64)
    *_, passes, moved = passes_and_mask(rng, mask)

    (polygon,), (kept,) = move_polygons(shape[None], passes)

    y, x = np.mgrid[: moved.shape[0], : moved.shape[1]] + 0.5
    distance = outside(polygon, x, y) if kept else np.full(moved.shape, np.inf)
    allowed = tolerance(passes)
    assert not (moved[distance > allowed] > 0).any()
    assert (moved[distance < -allowed] > 0).all()


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_polygons_are_drawn_where_masks_go(seed):
    """Of any shape, which a mask shows to within half of a pixel before it is moved."""
    rng = np.random.default_rng(seed)
    polygon = any_polygon(rng)
    mask = drawn(polygon, 80, 90)
    *_, passes, moved = passes_and_mask(rng, mask)

    (found,), (kept,) = move_polygons(polygon[None], passes)

    y, x = np.mgrid[: moved.shape[0], : moved.shape[1]] + 0.5
    distance = outside(found, x, y) if kept else np.full(moved.shape, np.inf)
    allowed = tolerance(passes, drawn=True)
    assert not (moved[distance > allowed] > 0).any()
    assert (moved[distance < -allowed] > 0).all()


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_boxes_are_around_what_masks_show(seed):
    """No pixel of a mask is outside; and each side touches the moved shape, however many passes there are."""
    rng = np.random.default_rng(seed)
    y, x = np.sort(rng.integers(5, 75, 2)), np.sort(rng.integers(5, 85, 2))
    y[1], x[1] = y[1] + 5, x[1] + 5
    mask = np.zeros((80, 90), bool)
    mask[y[0] : y[1], x[0] : x[1]] = True
    compiled, key, passes, moved = passes_and_mask(rng, mask)
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
    allowed = tolerance(passes)  # of the centers of pixels
    if len(rows):
        assert x0 <= columns.min() + 0.5 + allowed
        assert y0 <= rows.min() + 0.5 + allowed
        assert x1 >= columns.max() + 0.5 - allowed
        assert y1 >= rows.max() + 0.5 - allowed
    v, u = np.meshgrid(np.linspace(*y, 60), np.linspace(*x, 60))
    places, visible = move_points(np.stack([u.ravel(), v.ravel()], axis=-1), passes)
    seen = places[visible]
    if len(seen) > 4:
        apart = 2.5 * max(np.ptp(x), np.ptp(y)) / 60 * max(1, *map(magnification, passes))
        assert np.abs([*seen.min(axis=0), *seen.max(axis=0)] - found.xyxy[0]).max() < apart + 1e-3


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_points_are_where_their_pixel_goes(seed):
    """The pixels of a mask around a point come out around the moved one, within a pixel."""
    rng = np.random.default_rng(seed)
    column, row = rng.integers(12, 70, 2)
    mask = np.zeros((80, 90), bool)
    mask[row - 4 : row + 4, column - 4 : column + 4] = True
    *_, passes, moved = passes_and_mask(rng, mask)

    (place,), (visible,) = move_points(np.array([[column, row]]), passes)

    x, y = place
    height, width = moved.shape
    if visible:
        assert 0 <= x <= width
        assert 0 <= y <= height
        rows, columns = np.nonzero(moved)
        if len(rows) > 3:
            assert np.hypot(columns + 0.5 - x, rows + 0.5 - y).min() <= 1
        affine = all(each["warp"] is None or each["warp"]["map"][6:] == (0, 0, 1) for each in passes)
        if affine and len(passes) == 1 and 20 < x < width - 20 and 20 < y < height - 20:
            assert np.hypot(columns.mean() + 0.5 - x, rows.mean() + 0.5 - y) <= 1


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
        ElasticTransform(float(np.exp(rng.uniform(0, 11))), tuple(rng.uniform(1, 30, 2).tolist()), interpolation),
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
    (joints,) = compiled.shapes_kept("keypoints", [[width / 2, height / 2, 2]], height, width, **key)
    (outlines,) = compiled.shapes_kept("polygons", [[[0, 0, width, 0, width, height]]], height, width, **key)
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
