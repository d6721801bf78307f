# SPDX-License-Identifier: Apache-2.0
"""Warps have the pixels of Pillow, the matrices of torchvision, and compose into one resampling."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.transforms.philox import below, uniform, unit
from tests.transforms.samples import any_image, any_key, noise
from tests.transforms.warp_reference import apply_warp, inverse_affine, perspective, positions, sampled

import headrace
from headrace import _core
from headrace.transforms import (
    CenterCrop,
    ColorJitter,
    HorizontalFlip,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    Resize,
    VerticalFlip,
    compile,  # noqa: A004
)

KEY = {"seed": 3, "epoch": 1, "sample": 7}
PILLOW = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


def compiled_for(transforms):
    return compile(transforms, layout="HWC", color="keep").image


def any_affine(rng, interpolation):
    fill = rng.integers(0, 256, 3).tolist()
    turns = rng.integers(3)
    return RandomAffine(
        180 if turns else 0,
        translate=tuple(rng.uniform(0, 0.5, 2)),
        scale=(1.0, 1.6),
        shear=(-20, 20, -10, 10) if turns == 2 else None,
        interpolation=interpolation,
        fill=fill,
    )


def distance(a, b):
    return int(np.abs(a.astype(np.int64) - b.astype(np.int64)).max(initial=0))


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("seed", range(30))
def test_affine_pixels_are_pillows(seed, interpolation):
    """Nearest exactly, the others within one level."""
    rng = np.random.default_rng(seed)
    image, key = noise(rng, *rng.integers(1, 90, 2).tolist(), 3, "uint8"), any_key(rng).arguments()
    transform = any_affine(rng, interpolation)
    core = compiled_for([transform])

    found = core.apply(image, **key)

    (only,) = core.passes(*image.shape[:2], **key)
    size = image.shape[1], image.shape[0]
    pillow = Image.fromarray(image).transform(
        size, Image.Transform.AFFINE, only["warp"]["map"][:6], PILLOW[interpolation], fillcolor=tuple(transform.fill)
    )
    assert distance(found, np.asarray(pillow)) <= (0 if interpolation == "nearest" else 1)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize("seed", range(20))
def test_perspective_pixels_are_pillows(seed, interpolation):
    """Where the picture is not made smaller."""
    rng = np.random.default_rng(seed)
    image, key = noise(rng, *rng.integers(40, 90, 2).tolist(), 3, "uint8"), any_key(rng).arguments()
    core = compiled_for([RandomPerspective(0.2, 1, interpolation)])
    (only,) = core.passes(*image.shape[:2], **key)
    larger = compiled_for([RandomPerspective(0.2, 1, interpolation), Resize((200, 200), interpolation)])
    (only,) = larger.passes(*image.shape[:2], **key)

    found = larger.apply(image, **key)

    matrix = np.array(only["warp"]["map"]) / only["warp"]["map"][8]
    pillow = Image.fromarray(image).transform(
        (200, 200), Image.Transform.PERSPECTIVE, matrix[:8].tolist(), PILLOW[interpolation]
    )
    off = np.abs(found.astype(int) - np.asarray(pillow)).max(axis=2)
    assert (off > (0 if interpolation == "nearest" else 1)).mean() < 1e-3  # a position may round across an edge


@pytest.mark.parametrize("seed", range(20))
def test_affine_matrices_are_torchvisions(seed):
    """Draws are those of the recipe, and the matrix is that of the documented product."""
    rng = np.random.default_rng(seed)
    height, width = rng.integers(1, 200, 2).tolist()
    key = any_key(rng)
    across, down, low, high = 0.2, 0.4, 0.5, 1.5
    transform = RandomAffine((-30, 170), (across, down), (low, high), (-10, 20, -30, 5), "nearest")

    (only,) = compiled_for([transform]).passes(height, width, **key.arguments())

    degrees, x, y, scale = key.words(0, 0)
    shear_x, shear_y, *_ = key.words(0, 1)
    expected = inverse_affine(
        uniform(degrees, -30, 170),
        (round(uniform(x, -across, across) * width), round(uniform(y, -down, down) * height)),
        uniform(scale, low, high),
        (uniform(shear_x, -10, 20), uniform(shear_y, -30, 5)),
        (width / 2, height / 2),
    )
    assert np.allclose(np.reshape(only["warp"]["map"], (3, 3)), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_perspective_matrices_are_torchvisions(seed):
    """Each corner moves inwards by a drawn number of pixels."""
    rng = np.random.default_rng(seed)
    height, width = rng.integers(20, 200, 2).tolist()
    key = any_key(rng)

    (only,) = compiled_for([RandomPerspective(0.6, 1)]).passes(height, width, **key.arguments())

    words = (*key.words(0, 1), *key.words(0, 2))
    across, down = int(0.6 * (width // 2)) + 1, int(0.6 * (height // 2)) + 1
    x = [below(word, across) for word in words[::2]]
    y = [below(word, down) for word in words[1::2]]
    right, bottom = width - 1, height - 1
    end = [(x[0], y[0]), (right - x[1], y[1]), (right - x[2], bottom - y[2]), (x[3], bottom - y[3])]
    expected = perspective([(0, 0), (right, 0), (right, bottom), (0, bottom)], end)
    assert np.allclose(np.reshape(only["warp"]["map"], (3, 3)), expected, rtol=1e-6, atol=1e-9)


def sure(each):
    """Pixels whose position is not so close to an edge between two that rounding to 2^-16ths may move it across."""
    x, y, _ = positions(np.reshape(each["warp"]["map"], (3, 3)), each["rows"]["canvas"], each["columns"]["canvas"])
    close = (np.abs(x - np.rint(x)) < 5e-3) | (np.abs(y - np.rint(y)) < 5e-3)
    return ~close[:: -1 if each["rows"]["flipped"] else 1, :: -1 if each["columns"]["flipped"] else 1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["nearest", "bilinear", "bicubic"]), st.integers(1, 8))
def test_every_dtype_and_channel_count_is_as_the_reference(seed, interpolation, channels):
    """Of any size from 1 x 1; bilinear and bicubic within one level of 8 bits, or 8 of 16."""
    rng = np.random.default_rng(seed)
    dtype = str(rng.choice(["uint8", "uint16", "int16"]))
    image, key = noise(rng, *rng.integers(1, 60, 2).tolist(), channels, dtype), any_key(rng).arguments()
    core = compiled_for([any_affine(rng, interpolation), HorizontalFlip(), VerticalFlip()])

    (only,) = core.passes(*image.shape[:2], **key)
    found, expected = core.apply(image, **key), apply_warp(image, only, interpolation)

    off = np.abs(found.astype(np.int64) - expected).max(axis=2)
    if interpolation == "nearest":
        assert (off[sure(only)] == 0).all()
    else:
        assert off.max() <= (1 if dtype == "uint8" else 8)


@pytest.mark.slow
def test_parameters_are_uniform():
    """Chi-square of 20 bins over 20000 samples, for each parameter of an affine; the limit is passed once in 10^6."""
    compiled = compiled_for([RandomAffine((0, 90), (0.4, 0.4), (0.5, 1.5))])
    maps = np.array(
        [compiled.passes(1000, 1000, seed=1, epoch=0, sample=sample)[0]["warp"]["map"] for sample in range(20000)]
    ).reshape(-1, 3, 3)
    forward = np.linalg.inv(maps)
    scale = np.sqrt(np.linalg.det(forward[:, :2, :2]))
    angle = np.degrees(np.arctan2(forward[:, 1, 0], forward[:, 0, 0]))
    middle = (forward @ [500, 500, 1])[:, :2] - 500
    for values, low, high in ((angle, 0, 90), (scale, 0.5, 1.5), (middle[:, 0], -400, 400), (middle[:, 1], -400, 400)):
        counts, _ = np.histogram(values, 20, (low, high))
        assert counts.sum() >= 19900  # translations are rounded, so that a few lie on the edge
        assert ((counts - 1000) ** 2 / 1000).sum() < 63


@pytest.mark.parametrize("target", headrace.codec.targets())
def test_targets_make_the_same_pixels(target):
    """Bit for bit."""
    rng = np.random.default_rng(0)
    for k in range(60):
        interpolation = ("nearest", "bilinear", "bicubic")[k % 3]
        image, key = any_image(rng), any_key(rng).arguments()
        transforms = [RandomPerspective(0.4, 0.5, interpolation), any_affine(rng, interpolation), Resize((33, 9))]
        headrace.codec.use_target("scalar")
        expected = compiled_for(transforms).apply(image, **key)
        headrace.codec.use_target(target)

        assert np.array_equal(compiled_for(transforms).apply(image, **key), expected)


def ramp(height, width):
    """Positions as levels: 64 per pixel, which every resampling but the nearest keeps exactly."""
    y, x = np.mgrid[:height, :width]
    return np.stack([8000 + 64 * x, 8000 + 64 * y], axis=-1).astype(np.uint16)


def fixed(rng):
    """A transform with nothing random in it."""
    a, b, c = rng.uniform(-1, 1, 3)
    size = tuple(rng.integers(40, 90, 2).tolist())
    shear = (5 * c, 5 * c, 0, 0)
    kinds = [
        RandomRotation((60 * a, 60 * a), "bilinear"),
        RandomAffine((20 * b, 20 * b), scale=(1 + 0.2 * c, 1 + 0.2 * c), shear=shear, interpolation="bilinear"),
        CenterCrop(size),
        HorizontalFlip(1),
        VerticalFlip(1),
        Pad(tuple(rng.integers(0, 20, 4).tolist())),
        Resize(size, antialias=False),
    ]
    return kinds[rng.integers(len(kinds))]


@pytest.mark.parametrize("seed", range(60))
def test_a_composition_is_what_its_parts_do_one_by_one(seed):
    """One resampling shows the same places as several, apart from edges; what was cut off does not come back."""
    rng = np.random.default_rng(seed)
    image = ramp(60, 70)
    transforms = [fixed(rng) for _ in range(rng.integers(2, 6))]

    together = compiled_for(transforms).apply(image, **KEY)

    for transform in transforms:
        image = compiled_for([transform]).apply(image, **KEY)
    filled, other = (together == 0).all(axis=-1), (image < 7900).any(axis=-1)
    inside = ~_grown(filled | other, 3)
    assert distance(together[inside], image[inside]) <= 3 * 64 // 4
    assert not (~_grown(filled, 3) & (image == 0).all(axis=-1)).any()
    assert not (~_grown(other, 3) & filled).any()


def _grown(mask, pixels):
    padded = np.pad(mask, pixels, constant_values=True)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2 * pixels + 1, 2 * pixels + 1))
    return windows.any(axis=(2, 3))


@pytest.mark.parametrize(
    "transforms",
    [
        [RandomResizedCrop(32, scale=(0.5, 1)), RandomRotation(20), HorizontalFlip(1)],
        [RandomRotation(20), RandomAffine(5, (0.1, 0.1)), RandomPerspective(0.2, 1)],
        [Pad(9, fill=3), RandomRotation(20, fill=3), Pad(4, fill=3), CenterCrop(30), VerticalFlip(1)],
        [RandomAffine(20, scale=(0.8, 1.2)), RandomCrop(20), Resize(10)],
    ],
)
def test_consecutive_geometry_is_one_pass(transforms):
    """One resampling, and the pixels are looked up once."""
    assert len(compiled_for(transforms).passes(50, 60, **KEY)) == 1


@pytest.mark.parametrize(
    ("transforms", "n_passes"),
    [
        ([Pad(3, padding_mode="reflect"), RandomRotation(20)], 2),
        ([Pad(3, fill=1), RandomRotation(20)], 2),
        ([Resize(10), RandomRotation(20)], 2),
        ([RandomRotation(20), ColorJitter(0.4), RandomRotation(20)], 2),
        ([RandomRotation(20)] * 5, 2),
        ([RandomPerspective(0.2, 1), RandomRotation(20), RandomPerspective(0.2, 1)], 2),
    ],
)
def test_what_is_another_picture_is_another_pass(transforms, n_passes):
    """Borders that repeat pixels, another fill, much smaller pictures, colors; and there are at most 12 gates."""
    assert len(compiled_for(transforms).passes(50, 60, **KEY)) == n_passes


def test_what_a_canvas_cut_off_stays_away():
    """Moved out of sight and back, half of the picture is fill."""
    image = np.full((10, 20, 3), 200, np.uint8)
    there = ("affine", (0, 0, 0.5, 0.5, 0, 0, 1, 1, 0, 0, 0, 0, 0, _packed(9), 0, 0))
    back = ("affine", (0, 0, -0.5, -0.5, 0, 0, 1, 1, 0, 0, 0, 0, 0, _packed(9), 0, 0))
    core = _core.Transform([there, back], dtype=None, layout="HWC", mean=None, std=None, color="keep", mask=False)

    found = core.apply(image, **KEY)

    assert np.unique(found[:, :10]).tolist() == [200]
    assert np.unique(found[:, 10:]).tolist() == [9]


def _packed(level):
    return sum((level + 32768) << 17 * k for k in range(3))


def test_a_picture_that_shrinks_is_averaged():
    """At a third of the size each pixel is the mean of nine positions; nearest takes one."""
    rng = np.random.default_rng(0)
    image = noise(rng, 90, 90, 1, "uint8")
    shrunk = [RandomAffine(0, scale=(1 / 3, 1 / 3), interpolation="bilinear")]

    found = compiled_for(shrunk).apply(image, **KEY)[30:60, 30:60]

    means = image.reshape(30, 3, 30, 3, 1).mean(axis=(1, 3))
    assert distance(found, np.floor(means + 0.5)) <= 1


@pytest.mark.parametrize("degrees", [0, 10, 45, 90, 123.4, 180, -77])
def test_expanding_gives_pillows_size_and_pixels(degrees):
    """As Image.rotate(expand=True), which counts counterclockwise too."""
    image = noise(np.random.default_rng(0), 37, 52, 3, "uint8")
    rotate = RandomRotation((degrees, degrees), "nearest", expand=True, fill=(1, 2, 3))

    found = compiled_for([rotate]).apply(image, **KEY)

    pillow = np.asarray(Image.fromarray(image).rotate(degrees, expand=True, fillcolor=(1, 2, 3)))
    assert found.shape == pillow.shape
    assert (found != pillow).any(axis=2).mean() < 1e-3  # Pillow rounds sines to 15 digits


@pytest.mark.parametrize(
    ("movement", "matrix"),
    [
        (1, (1, 0.27, 0, 0, 1, 0)),
        (2, (1, 0, 0, 0.27, 1, 0)),
        (3, (1, 0, -0.27 * 47, 0, 1, 0)),
        (4, (1, 0, 0, 0, 1, -0.27 * 60)),
    ],
)
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
def test_leveled_movements_are_pillows(movement, matrix, interpolation):
    """Shears and translations as policies use them."""
    image = noise(np.random.default_rng(1), 60, 47, 3, "uint8")
    level = (0, 0.27, 0.27, -1, 1, 0, 0, 1)
    filters = {"nearest": 0, "bilinear": 2, "bicubic": 3}
    op = ("affine_level", (movement, *level, filters[interpolation], _packed(128)))
    core = _core.Transform([op], dtype=None, layout="HWC", mean=None, std=None, color="keep", mask=False)

    pillow = Image.fromarray(image).transform(
        (47, 60), Image.Transform.AFFINE, matrix, PILLOW[interpolation], fillcolor=(128,) * 3
    )

    assert distance(core.apply(image, **KEY), np.asarray(pillow)) <= (0 if interpolation == "nearest" else 1)


@pytest.mark.parametrize("distribution", [0, 1, 2])
@pytest.mark.parametrize("seed", range(20))
def test_levels_are_drawn_as_the_recipe_says(distribution, seed):
    """Uniform, normal or whole; clamped, scaled and given a sign."""
    rng = np.random.default_rng(seed)
    key = any_key(rng)
    level = (distribution, 2, 7, 3, 6, 1, 0.01, 0.02)
    op = ("affine_level", (3, *level, 0, _packed(0)))
    core = _core.Transform([op], dtype=None, layout="HWC", mean=None, std=None, color="keep", mask=False)

    (only,) = core.passes(10, 1000, **key.arguments())

    first, second, sign, _ = key.words(0)
    amount = (
        uniform(first, 2, 7),
        2 + 7 * math.sqrt(-2 * math.log(1 - unit(first))) * math.cos(2 * math.pi * unit(second)),
        2 + below(first, 6),
    )[distribution]
    expected = (0.01 + 0.02 * min(max(amount, 3), 6)) * (-1 if unit(sign) < 0.5 else 1)
    assert only["warp"]["map"][2] == pytest.approx(-1000 * expected, abs=1e-9)


@pytest.mark.parametrize("mode", ["fast", "dense"])
def test_only_the_region_that_is_needed_is_decoded(mode):
    """Encoded bytes give the pixels of the picture."""
    image = noise(np.random.default_rng(0), 150, 300, 3, "uint8")
    core = compiled_for([RandomResizedCrop(64, scale=(0.02, 0.3)), RandomRotation(40, "bilinear")])
    file = headrace.encode(image, mode=mode)

    for sample in range(20):
        key = {"seed": 0, "epoch": 0, "sample": sample}
        assert np.array_equal(core.run(file, {"fast": 1, "dense": 2}[mode], **key), core.apply(image, **key))


def test_masks_take_the_nearest_pixel_and_their_own_fill():
    """Class ids are not mixed."""
    mask = np.random.default_rng(0).choice(np.array([3, 200], np.uint8), (50, 60))
    compiled = compile([RandomAffine(30, scale=(0.5, 0.5), interpolation="bilinear", fill=7, mask_fill=255)])

    assert np.unique(compiled.mask.apply(mask, **KEY)).tolist() == [3, 200, 255]


def test_a_device_leaves_warps_to_the_cpu():
    """Its plan has no method for them, also behind a crop."""
    sizes = np.array([[50, 60]] * 8)
    rows = np.arange(8)
    for transforms, able in (([RandomCrop(20)], True), ([RandomCrop(20), RandomRotation(20)], False)):
        methods = _core.plan_views(compile(transforms).image, sizes, rows, 1, 0, 0)[0]
        assert (methods > 0).tolist() == [able] * 8


def test_positions_of_the_reference_are_pillows():
    """The reference itself, against Pillow."""
    image = noise(np.random.default_rng(0), 20, 30, 1, "uint8")
    y, x = np.mgrid[:20, :30] * 0.7 + 3.2
    pillow = Image.fromarray(image[..., 0]).transform(
        (30, 20), Image.Transform.AFFINE, (0.7, 0, 2.85, 0, 0.7, 2.85), PILLOW["bicubic"]
    )

    assert distance(np.clip(sampled(image, x, y, "bicubic"), 0, 255)[..., 0], np.asarray(pillow)) <= 1
