# SPDX-License-Identifier: Apache-2.0
"""Transforms are checked when they are made, and say what would be right."""

from __future__ import annotations

import dataclasses
import enum

import numpy as np
import pytest

from headrace import transforms
from headrace.transforms import (
    CenterCrop,
    ColorJitter,
    Grayscale,
    HorizontalFlip,
    Normalize,
    Pad,
    PerBatch,
    PerSample,
    RandomAffine,
    RandomCrop,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomShortestSize,
    RandomZoomOut,
    Resize,
    VerticalFlip,
    Views,
)

NAN = float("nan")

WRONG = [
    (lambda: Resize(0), ValueError, r"Resize: size must be in \[1, 65535\]; got 0"),
    (lambda: Resize(224.0), TypeError, "size must be an integer; got 224.0"),
    (lambda: Resize(True), TypeError, "must be an integer"),
    (lambda: Resize("224"), TypeError, "must be an integer"),
    (lambda: Resize((1, 2, 3)), ValueError, "must be a number or .height, width."),
    (lambda: Resize(224, "lanczos"), ValueError, "'nearest', 'area', 'bilinear', 'bicubic'"),
    (lambda: Resize(224, antialias=1), TypeError, "True or False"),
    (lambda: CenterCrop(70000), ValueError, r"\[1, 65535\]; got 70000"),
    (lambda: RandomCrop(32, padding=-1), ValueError, "padding must be in .*; got -1"),
    (lambda: RandomCrop(32, padding=(1, 2, 3)), ValueError, "left, top, right, bottom"),
    (lambda: RandomCrop(32, padding_mode="symmetric"), ValueError, "'constant', 'edge', 'reflect'"),
    (lambda: RandomCrop(32, fill=(0, 0, 0)), TypeError, "must be one number"),
    (lambda: RandomResizedCrop(224, scale=(1, 0.1)), ValueError, "min <= max"),
    (lambda: RandomResizedCrop(224, scale=0.5), TypeError, "a range"),
    (lambda: RandomResizedCrop(224, scale=(0, 1)), ValueError, "scale must be in .*; got 0"),
    (lambda: RandomResizedCrop(224, ratio=(NAN, 1)), ValueError, "ratio must be in .*; got nan"),
    (lambda: HorizontalFlip(1.5), ValueError, r"HorizontalFlip: p must be in \[0, 1\]; got 1.5"),
    (lambda: VerticalFlip("yes"), TypeError, "p must be a number; got 'yes'"),
    (lambda: Pad(1, fill=1e9), ValueError, "fill"),
    (lambda: ColorJitter(brightness=-0.1), ValueError, "brightness must be in .*; got -0.1"),
    (lambda: ColorJitter(hue=0.6), ValueError, r"hue must be in \[0, 0.5\]; got 0.6"),
    (lambda: ColorJitter(hue=(-0.6, 0)), ValueError, r"\[-0.5, 0.5\]"),
    (lambda: Grayscale(2), ValueError, "1 or 3"),
    (lambda: Grayscale(1, p=0.5), ValueError, "use channels=3"),
    (lambda: Normalize([123.7, 116.3, 103.5], 1), ValueError, "divide it by 255"),
    (lambda: Normalize(0.5, 0), ValueError, "std must be > 0"),
    (lambda: Normalize([0.5] * 3, [0.5] * 4), ValueError, "same length; got 3 and 4"),
    (lambda: Normalize([], []), ValueError, "1 to 64 values"),
    (lambda: Views(1, []), ValueError, "pass its transforms directly"),
    (lambda: Views(2, Resize(5)), TypeError, "transforms must be a list"),
    (lambda: Views(2, [Views(2, [])]), ValueError, "cannot be nested"),
    (lambda: Views(2, [len]), TypeError, "callables after the views"),
    (lambda: Views(2, [Normalize(0.5, 0.5), Resize(5)]), ValueError, "found Resize after it"),
    (lambda: RandomRotation(-1), ValueError, r"RandomRotation: degrees must be in \[0, 36000\]; got -1"),
    (lambda: RandomRotation(5, "area"), ValueError, "'nearest', 'bilinear', 'bicubic'"),
    (lambda: RandomRotation(5, expand=True, center=(1, 2)), ValueError, "expand needs center=None"),
    (lambda: RandomRotation(5, fill=0.5), ValueError, "fill must be whole levels; got 0.5"),
    (lambda: RandomRotation(5, fill=(1, 2)), ValueError, "one level or three"),
    (lambda: RandomAffine(5, translate=0.5), TypeError, "two fractions"),
    (lambda: RandomAffine(5, translate=(0.5, 2)), ValueError, r"translate must be in \[0, 1\]; got 2"),
    (lambda: RandomAffine(5, scale=(0, 1)), ValueError, "scale must be in .*; got 0"),
    (lambda: RandomAffine(5, shear=90), ValueError, r"shear must be in \[0, 89\]; got 90"),
    (lambda: RandomAffine(5, center=3), ValueError, "must be .x, y. or None"),
    (lambda: RandomPerspective(1.5), ValueError, "distortion_scale must be in"),
    (lambda: RandomShortestSize([]), ValueError, "1 to 12 sizes; got 0"),
    (lambda: RandomZoomOut(side_range=(0.5, 2)), ValueError, "side_range must be in .*; got 0.5"),
    (lambda: PerSample(3), TypeError, "must be callable"),
    (lambda: PerSample(Resize(3)), TypeError, "put it into the list directly"),
    (lambda: PerBatch(dict), TypeError, "is a class; pass an instance"),
]


@pytest.mark.parametrize(("make", "error", "message"), WRONG)
def test_a_wrong_argument_raises_an_error_that_says_what_must_hold(make, error, message):
    """The message names the argument, what must hold and what was found."""
    with pytest.raises(error, match=message):
        make()


def test_arguments_are_stored_in_one_form():
    """What means the same is equal, and numbers of NumPy become Python's."""
    assert CenterCrop(5) == CenterCrop((5, 5)) == CenterCrop([5]) == CenterCrop(np.int64(5))
    assert Resize(5) == Resize((5,)) != Resize((5, 5))
    assert Pad(1) == Pad((1, 1)) == Pad((1, 1, 1, 1))
    assert Pad((1, 2)).padding == (1, 2, 1, 2)
    assert ColorJitter(0.5).brightness == (0.5, 1.5)
    assert ColorJitter(2).brightness == (0, 3)
    assert ColorJitter().contrast == (1, 1)
    assert ColorJitter(hue=0.25).hue == (-0.25, 0.25)
    assert Normalize(np.float32([0.5, 0.25]), 0.5) == Normalize([0.5, 0.25], [0.5, 0.5])
    assert Grayscale() == Grayscale(1)
    assert Grayscale(p=0.2) == Grayscale(3, 0.2)
    assert Views(2, [Pad(1)]) == Views(2, (Pad(1),))


def test_an_enumeration_of_words_will_do():
    """As torchvision's InterpolationMode is one."""
    mode = enum.Enum("Mode", {"BICUBIC": "bicubic"})

    assert Resize(5, mode.BICUBIC) == Resize(5, "bicubic")


def test_transforms_are_values():
    """They cannot be changed, can be compared and hashed, and show how they were made."""
    crop = RandomResizedCrop(224)

    with pytest.raises(dataclasses.FrozenInstanceError):
        crop.size = 5
    assert len({crop, RandomResizedCrop(224), RandomResizedCrop(225)}) == 2
    assert eval(repr(crop), vars(transforms)) == crop


def test_names_show_their_public_path():
    """Tracebacks and reprs say `headrace.transforms`, not the private file."""
    assert {getattr(transforms, name).__module__ for name in transforms.__all__} == {"headrace.transforms"}
