# SPDX-License-Identifier: Apache-2.0
"""Decoding many images at once gives what decoding each would."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codec.implementations import MODES, Native
from tests.codec.pictures import DTYPES, Recipe, recipes
from tests.codec.test_regions import crop, regions

from headrace.errors import CorruptImage, HeadraceError


@given(data=st.data())
@settings(max_examples=20)
def test_any_images_and_regions(native: Native, data: st.DataObject) -> None:
    images, datas, wanted = [], [], []
    for _ in range(data.draw(st.integers(0, 6))):
        recipe = data.draw(recipes(native.samples // 4))
        region = data.draw(st.none() | regions(recipe.height, recipe.width))
        image = recipe.render()
        datas.append(native.encode(image, mode=data.draw(st.sampled_from(MODES))))
        images.append(image if region is None else crop(image, region))
        wanted.append(region)

    many = native.decode_many(datas, regions=wanted, threads=data.draw(st.integers(0, 3)))

    assert len(many) == len(images)
    for actual, image in zip(many, images, strict=True):
        assert actual.dtype == image.dtype
        np.testing.assert_array_equal(actual, image)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_batch_is_filled_in_place(native: Native, mode: str, dtype: str, channels: int) -> None:
    """Images and rows lie apart in the batch; what is between them stays as it was."""
    images = [Recipe(40, 50, channels, dtype, seed=seed).render() for seed in range(5)]
    datas = [native.encode(image, mode=mode) for image in images]
    memory = np.full((5, 45, 55, channels)[: images[0].ndim + 1], 77, dtype)
    expected = memory.copy()
    expected[:, 2:42, 3:53] = np.stack(images)
    out = memory[:, 2:42, 3:53]

    assert native.decode_many(datas, out=out, threads=2) is out

    np.testing.assert_array_equal(memory, expected)


def test_a_batch_of_crops(native: Native, mode: str) -> None:
    images = [Recipe(64 + seed, 100, 3, seed=seed).render() for seed in range(8)]
    datas = [native.encode(image, mode=mode) for image in images]
    wanted = [(seed, 3 * seed, 32, 48) for seed in range(8)]
    out = np.empty((8, 32, 48, 3), np.uint8)

    native.decode_many(datas, regions=wanted, out=out)

    for actual, image, region in zip(out, images, wanted, strict=True):
        np.testing.assert_array_equal(actual, crop(image, region))


def test_the_damaged_image_is_named(native: Native, mode: str) -> None:
    datas = [native.encode(Recipe(40, 40, 3, seed=seed).render(), mode=mode) for seed in range(6)]
    datas[4] = datas[4][:-1]
    for threads in (1, 3):
        with pytest.raises(CorruptImage) as caught:
            native.decode_many(datas, threads=threads)
        assert isinstance(caught.value, HeadraceError)
        assert caught.value.index == 4
