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
    RandomCrop,
    RandomResizedCrop,
    Resize,
    VerticalFlip,
    Views,
)

NAN = float("nan")

WRONG = [
    (lambda: Resize(0), ValueError, "Resize: size is 0; 1 to 65535"),
    (lambda: Resize(224.0), TypeError, "size is 224.0; a whole number"),
    (lambda: Resize(True), TypeError, "whole number"),
    (lambda: Resize("224"), TypeError, "whole number"),
    (lambda: Resize((1, 2, 3)), ValueError, "a number or .height, width. is expected"),
    (lambda: Resize(224, "lanczos"), ValueError, "'nearest', 'area', 'bilinear', 'bicubic'"),
    (lambda: Resize(224, antialias=1), TypeError, "True or False"),
    (lambda: CenterCrop(70000), ValueError, "70000; 1 to 65535"),
    (lambda: RandomCrop(32, padding=-1), ValueError, "padding is -1"),
    (lambda: RandomCrop(32, padding=(1, 2, 3)), ValueError, "left, top, right, bottom"),
    (lambda: RandomCrop(32, padding_mode="symmetric"), ValueError, "'constant', 'edge', 'reflect'"),
    (lambda: RandomCrop(32, fill=(0, 0, 0)), TypeError, "one number is expected"),
    (lambda: RandomResizedCrop(224, scale=(1, 0.1)), ValueError, "must not begin after its end"),
    (lambda: RandomResizedCrop(224, scale=0.5), TypeError, "a range"),
    (lambda: RandomResizedCrop(224, scale=(0, 1)), ValueError, "scale is 0"),
    (lambda: RandomResizedCrop(224, ratio=(NAN, 1)), ValueError, "ratio is nan"),
    (lambda: HorizontalFlip(1.5), ValueError, "HorizontalFlip: p is 1.5; 0 to 1"),
    (lambda: VerticalFlip("yes"), TypeError, "p is 'yes'; a number"),
    (lambda: Pad(1, fill=1e9), ValueError, "fill"),
    (lambda: ColorJitter(brightness=-0.1), ValueError, "brightness is -0.1"),
    (lambda: ColorJitter(hue=0.6), ValueError, "hue is 0.6; 0 to 0.5"),
    (lambda: ColorJitter(hue=(-0.6, 0)), ValueError, "-0.5 to 0.5"),
    (lambda: Grayscale(2), ValueError, "1 or 3"),
    (lambda: Grayscale(1, p=0.5), ValueError, "use channels=3"),
    (lambda: Normalize([123.7, 116.3, 103.5], 1), ValueError, "divide by 255"),
    (lambda: Normalize(0.5, 0), ValueError, "above 0"),
    (lambda: Normalize([0.5] * 3, [0.5] * 4), ValueError, "mean has 3 channels and std 4"),
    (lambda: Normalize([], []), ValueError, "0 channels"),
    (lambda: Views(1, []), ValueError, "as the list itself"),
    (lambda: Views(2, Resize(5)), TypeError, "a list of transforms"),
    (lambda: Views(2, [Views(2, [])]), ValueError, "views of views"),
    (lambda: Views(2, [len]), TypeError, "callables follow the views"),
    (lambda: Views(2, [Normalize(0.5, 0.5), Resize(5)]), ValueError, "Resize comes after Normalize"),
    (lambda: PerSample(3), TypeError, "cannot be called"),
    (lambda: PerSample(Resize(3)), TypeError, "put it into the list as it is"),
    (lambda: PerBatch(dict), TypeError, "is a class; write dict"),
]


@pytest.mark.parametrize(("make", "error", "message"), WRONG)
def test_a_wrong_argument_is_told_what_is_right(make, error, message):
    """The message names the transform's argument, what it was and what is possible."""
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
