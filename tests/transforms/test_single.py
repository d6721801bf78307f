# SPDX-License-Identifier: Apache-2.0
"""Transforms can be called with one image, and make of it what they make of it in a dataset."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from tests.transforms.samples import noise

from headrace.transforms import (
    ColorJitter,
    Compose,
    Grayscale,
    HorizontalFlip,
    MultiCrop,
    Normalize,
    RandomErasing,
    RandomResizedCrop,
    Resize,
    View,
    Views,
    compile,  # noqa: A004
)

IMAGE = noise(np.random.default_rng(4), 40, 50, 3, "uint8")
KEY = {"seed": 5, "epoch": 2, "sample": 9}


def test_a_call_draws_as_a_dataset_does():
    made = RandomResizedCrop(20)(IMAGE, **KEY)

    assert np.array_equal(made, compile([RandomResizedCrop(20)], layout="HWC").image.apply(IMAGE, **KEY))
    assert np.array_equal(made, RandomResizedCrop(20)(IMAGE, **KEY)), "the same arguments, the same image"
    assert not np.array_equal(made, RandomResizedCrop(20)(IMAGE, **{**KEY, "epoch": 3}))
    assert not np.array_equal(made, RandomResizedCrop(20)(IMAGE, **KEY, view=1))


def test_a_list_is_called_as_one():
    transforms = [RandomResizedCrop(20), HorizontalFlip(), Normalize(0.5, 0.25), RandomErasing(1.0)]

    made = Compose(transforms)(IMAGE, **KEY)

    compiled = compile(Compose(transforms), layout="HWC")
    assert compiled.transforms == tuple(transforms)
    assert np.array_equal(made, compiled.image.apply(IMAGE, **KEY))
    assert repr(Compose(transforms)).startswith("Compose([RandomResizedCrop(")


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "1", "P", "CMYK", "I;16"])
def test_pillow_images_stay_pillow_images(mode):
    image = Image.fromarray(IMAGE[..., 0].astype(np.uint16)) if mode == "I;16" else Image.fromarray(IMAGE).convert(mode)
    kept = {"1": "L", "P": "RGB", "CMYK": "RGB"}.get(mode, mode)

    made = RandomResizedCrop(20)(image, **KEY)

    assert (made.mode, made.size) == (kept, (20, 20))
    plain = np.asarray(image if kept == mode else image.convert(kept))
    assert np.array_equal(np.asarray(made), RandomResizedCrop(20)(plain, **KEY))


def test_arrays_keep_their_axes():
    """Gray images have no channel axis before and after, 16 bits stay 16 bits, floats come from `Normalize`."""
    assert Resize(9)(IMAGE[..., 0]).shape == (9, 11)
    assert Resize(9)(IMAGE[..., :1]).shape == (9, 11, 1)
    assert Grayscale()(IMAGE).shape == (40, 50, 1)
    assert Resize(9)(IMAGE.astype(np.uint16)).dtype == np.uint16
    assert Normalize(0.5, 0.5)(Image.fromarray(IMAGE)).dtype == np.float32
    assert ColorJitter(0.4)(IMAGE[:, ::-1]).shape == IMAGE.shape


def test_views_are_lists():
    views = Views(3, [RandomResizedCrop(9)])(IMAGE, **KEY)
    groups = MultiCrop([View(1, [RandomResizedCrop(9)]), View(2, [Resize(7)])])(Image.fromarray(IMAGE), **KEY)

    assert [view.shape for view in views] == [(9, 9, 3)] * 3
    assert [[view.size for view in group] for group in groups] == [[(9, 9)], [(8, 7)] * 2]
    assert np.array_equal(np.asarray(groups[0][0]), views[0]), "the same draws"
