# SPDX-License-Identifier: Apache-2.0
"""Pixels are those that NumPy and Pillow make of the same passes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.transforms.reference import apply_passes, resize
from tests.transforms.samples import any_image, any_key, moves, noise, resizing

import headrace
from headrace.transforms import (
    CenterCrop,
    HorizontalFlip,
    Normalize,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    compile,  # noqa: A004
)

KEY = {"seed": 3, "epoch": 1, "sample": 7}


def run(compiled, image, key):
    """The image that comes out, `[H, W, C]`."""
    assert compiled.layout == "HWC"
    return compiled.image.apply(image, **key.arguments())


@pytest.mark.parametrize("seed", range(400))
def test_moving_pixels_changes_none(seed):
    """Crops, pads and flips in any order give the very pixels."""
    rng = np.random.default_rng(seed)
    image, key, transforms = any_image(rng), any_key(rng), moves(rng)
    compiled = compile(transforms, layout="HWC", color="keep")

    found = run(compiled, image, key)

    passes = compiled.image.passes(*image.shape[:2], **key.arguments())
    assert found.dtype == image.dtype
    assert np.array_equal(found, apply_passes(image, passes)), transforms


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "area", "nearest"])
@pytest.mark.parametrize("seed", range(60))
def test_resizing_is_pillows(interpolation, seed):
    """One resize amid crops, pads and flips is within a level of Pillow's; by nearest it is the same."""
    rng = np.random.default_rng(seed)
    image, key = any_image(rng), any_key(rng)
    transforms = [*moves(rng)[:2], resizing(rng, interpolation), *moves(rng)[:3]]
    compiled = compile(transforms, layout="HWC", color="keep")

    found = run(compiled, image, key)

    expected = apply_passes(image, compiled.image.passes(*image.shape[:2], **key.arguments()))
    assert found.shape == expected.shape
    assert distance(found, expected) <= (interpolation != "nearest"), transforms


@pytest.mark.slow
def test_ten_thousand_resized_crops_are_pillows():
    """Any crop to any size, uint8, bilinear."""
    rng = np.random.default_rng(2026)
    for _ in range(10_000):
        height, width = rng.integers(1, 200, 2).tolist()
        image = noise(rng, height, width, 3, "uint8")
        compiled = compile([RandomResizedCrop(tuple(rng.integers(1, 150, 2).tolist()))], layout="HWC")
        key = any_key(rng)

        expected = apply_passes(image, compiled.image.passes(height, width, **key.arguments()))
        assert distance(run(compiled, image, key), expected) <= 1


def distance(a, b):
    return int(np.abs(a.astype(np.int64) - b.astype(np.int64)).max())


@pytest.mark.parametrize(
    ("size", "wanted", "expected"),
    [((480, 640), 256, (256, 341)), ((640, 480), 256, (341, 256)), ((100, 100), 7, (7, 7)), ((3, 1000), 2, (2, 666))],
)
def test_a_number_resizes_the_shorter_side(size, wanted, expected):
    """The longer side is scaled alike and cut to a whole number."""
    assert compile([Resize(wanted)]).image.shape(*size, 3, "uint8", **KEY) == ((3, *expected), "uint8")
    assert compile([Resize((5, 9))]).image.shape(*size, 3, "uint8", **KEY) == ((3, 5, 9), "uint8")


def test_half_a_pixel_off_centre_goes_to_the_even_place():
    """So torchvision rounds, and a smaller image gets the odd line of its border at the end."""
    ramp = np.arange(9, dtype=np.uint8).reshape(1, 9, 1)
    first = [compile([CenterCrop((1, n))], color="keep").image.apply(ramp, **KEY)[0, 0, 0] for n in (8, 6, 4, 2)]
    wide = compile([CenterCrop((1, 12))], color="keep").image.apply(ramp, **KEY)

    assert first == [0, 2, 2, 4]
    assert wide[0, 0].tolist() == [0, *range(9), 0, 0]


def test_a_crop_larger_than_the_image_says_what_to_do():
    """Only `pad_if_needed` lets it pass."""
    image = np.zeros((20, 30, 3), np.uint8)

    with pytest.raises(ValueError, match="pad_if_needed"):
        compile([RandomCrop(25)]).image.apply(image, **KEY)

    assert compile([RandomCrop(25, pad_if_needed=True)]).image.apply(image, **KEY).shape == (3, 25, 25)


def test_pixels_outside_the_crop_never_count():
    """A crop is taken first and then resized: what lies beside it may be anything."""
    rng = np.random.default_rng(0)
    image = noise(rng, 90, 110, 3, "uint8")
    compiled = compile([RandomResizedCrop(16)])
    (window,) = compiled.image.passes(90, 110, **KEY)
    rows, columns = window["rows"], window["columns"]
    inside = np.zeros((90, 110, 1), bool)
    inside[rows["start"] :, columns["start"] :][: rows["size"], : columns["size"]] = True

    other = np.where(inside, image, 255 - image)

    assert np.array_equal(compiled.image.apply(image, **KEY), compiled.image.apply(other, **KEY))


def test_shapes_are_known_before_anything_is_decoded():
    """`shape` foretells what `apply` gives."""
    rng = np.random.default_rng(5)
    for _ in range(100):
        image, key = any_image(rng), any_key(rng)
        compiled = compile(moves(rng), layout=str(rng.choice(["CHW", "HWC"])), color=str(rng.choice(["RGB", "keep"])))

        shape, dtype = compiled.image.shape(*image.shape, image.dtype.name, **key.arguments())
        found = compiled.image.apply(image, **key.arguments())
        assert (found.shape, found.dtype.name) == (shape, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("stored", "most"), [("uint8", 255), ("uint16", 65535), ("int16", 32768)])
def test_normalising_is_on_the_scale_of_nought_to_one(dtype, stored, most):
    """The same mean and std serve every depth."""
    image = noise(np.random.default_rng(1), 20, 30, 3, stored)
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])

    found = compile([HorizontalFlip(0), Normalize(mean, std)], dtype=dtype, layout="HWC").image.apply(image, **KEY)

    assert found.dtype == dtype
    assert np.allclose(found, (image / most - mean) / std, rtol=0, atol=1e-5 if dtype == "float32" else 5e-3)


def test_layouts_hold_the_same_pixels():
    """CHW is HWC with its axes moved."""
    image = noise(np.random.default_rng(2), 20, 30, 3, "uint8")
    transforms = [RandomResizedCrop((9, 11)), HorizontalFlip()]

    chw = compile(transforms, layout="CHW").image.apply(image, **KEY)
    hwc = compile(transforms, layout="HWC").image.apply(image, **KEY)

    assert np.array_equal(chw, np.moveaxis(hwc, -1, 0))


@pytest.mark.parametrize("target", headrace.codec.targets())
def test_targets_make_the_same_pixels(target):
    """What SIMD makes is what plain code makes, bit for bit."""
    rng = np.random.default_rng(3)
    for interpolation in ("bilinear", "bicubic", "area", "nearest"):
        image, key = any_image(rng), any_key(rng)
        transforms = [resizing(rng, interpolation), HorizontalFlip(), Normalize(0.4, 0.3)]
        headrace.codec.use_target("scalar")
        expected = compile(transforms).image.apply(image, **key.arguments())
        headrace.codec.use_target(target)

        assert np.array_equal(compile(transforms).image.apply(image, **key.arguments()), expected)


def test_without_antialias_few_pixels_are_mixed():
    """Shrinking fourfold, bilinear looks at two pixels a side, not at eight."""
    image = noise(np.random.default_rng(4), 64, 64, 1, "uint8")
    found = compile([Resize((16, 16), antialias=False)], layout="HWC", color="keep").image.apply(image, **KEY)

    middle = image[1::4, 1::4].astype(int) + image[2::4, 1::4] + image[1::4, 2::4] + image[2::4, 2::4]
    assert distance(found, np.rint(middle / 4)) <= 1
    assert distance(found, resize(image, 16, 16, "bilinear")) > 1


def test_gray_with_alpha_is_refused_where_nothing_takes_the_alpha_away():
    """Decoders do so before; pixels in memory would be read beyond their end."""
    image = np.zeros((3, 5, 2), np.uint8)

    with pytest.raises(ValueError, match="two channels cannot become RGB"):
        compile(None, color="RGB").image.apply(image, seed=0, epoch=0, sample=0)
    assert compile(None, color="keep").image.apply(image, seed=0, epoch=0, sample=0).shape == (2, 3, 5)
