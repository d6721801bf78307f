# SPDX-License-Identifier: Apache-2.0
"""Colours are those of torchvision's formulas, worked out plainly in float64."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
from tests.transforms.samples import any_key, noise

from headrace.transforms import (
    ColorJitter,
    Grayscale,
    HorizontalFlip,
    RandomCrop,
    compile,  # noqa: A004
)

KEY = {"seed": 3, "epoch": 1, "sample": 7}
WEIGHTS = np.array([0.299, 0.587, 0.114])


def gray_of(image):
    return image @ WEIGHTS if image.shape[2] == 3 else image[..., 0]


def shifted_hue(pixel, turns):
    hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
    return colorsys.hsv_to_rgb((hue + turns) % 1, saturation, value)


def apply_colors(image, steps):
    """All steps on levels `[H, W, C]`, clamped after each and rounded at the end."""
    limits = np.iinfo(image.dtype)
    levels = image.astype(np.float64)
    for name, value in steps:
        if name == "brightness":
            levels = levels * value
        elif name == "contrast":
            levels = levels * value + np.rint(gray_of(levels)).mean() * (1 - value)
        elif name == "saturation":
            levels = levels * value + gray_of(levels)[..., None] * (1 - value)
        elif name == "hue" and image.shape[2] == 3:
            levels = np.apply_along_axis(shifted_hue, 2, levels / limits.max, value) * limits.max
        elif name == "grayscale":
            levels = np.repeat(gray_of(levels)[..., None], int(value), axis=2)
        levels = np.clip(levels, limits.min, limits.max)
    return np.rint(levels)


@pytest.mark.parametrize("stored", ["uint8", "uint16"])
@pytest.mark.parametrize("seed", range(40))
def test_jitter_follows_the_formulas(stored, seed):
    """Brightness, contrast, saturation and hue in their drawn order, within a level of 8 bits."""
    rng = np.random.default_rng(seed)
    image, key = noise(rng, 12, 17, 3, stored), any_key(rng).arguments()
    compiled = compile([ColorJitter(0.4, 0.4, 0.4, 0.1), Grayscale(p=0.2)], layout="HWC")

    found = compiled.image.apply(image, **key)

    (only,) = compiled.image.passes(12, 17, **key)
    off = np.abs(found - apply_colors(image, only["colors"])).max()
    assert off <= (1 if stored == "uint8" else 16)


def test_colours_of_one_channel_are_left_alone():
    """Saturation, hue and grey do nothing to an image that has no colours; brightness does."""
    image = noise(np.random.default_rng(0), 9, 9, 1, "uint8")
    quiet = compile([ColorJitter(saturation=0.9, hue=0.5), Grayscale(3)], layout="HWC", color="keep")
    bright = compile([ColorJitter(brightness=(2, 2))], layout="HWC", color="keep")

    assert np.array_equal(quiet.image.apply(image, **KEY), image)
    assert np.array_equal(bright.image.apply(image, **KEY), np.minimum(image.astype(int) * 2, 255))


def test_contrast_is_that_of_the_picture_it_was_given():
    """Before a crop it takes the mean of the whole image, after it that of the crop."""
    image = np.zeros((20, 20, 3), np.uint8)
    image[:, 10:] = 200
    flat = ColorJitter(contrast=(0, 0))
    left = compile([flat, RandomCrop((20, 5))], layout="HWC").image

    assert np.unique(left.apply(image, **KEY)).tolist() == [100]
    after = compile([RandomCrop((20, 5)), HorizontalFlip(), flat], layout="HWC").image
    means = {int(np.unique(after.apply(image, seed=0, epoch=0, sample=sample))[0]) for sample in range(30)}
    assert means == {0, 40, 80, 120, 160, 200}


@pytest.mark.parametrize(("channels", "expected"), [(None, 1), (1, 1), (3, 3)])
def test_grey_has_the_channels_that_were_asked_for(channels, expected):
    """One by default, or three equal ones, also of an image that is grey already."""
    for stored in (1, 3, 4):
        image = noise(np.random.default_rng(1), 5, 7, stored, "uint8")
        found = compile([Grayscale(channels)], layout="HWC", color="RGB").image.apply(image, **KEY)

        assert found.shape == (5, 7, expected)
        assert (found == found[..., :1]).all()


def test_masks_keep_their_levels():
    """No colour touches a mask."""
    mask = np.arange(30, dtype=np.uint8).reshape(5, 6)

    assert np.array_equal(compile([ColorJitter(0.9, 0.9, 0.9, 0.5), Grayscale()]).mask.apply(mask, **KEY), mask)
