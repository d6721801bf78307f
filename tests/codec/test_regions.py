# SPDX-License-Identifier: Apache-2.0
"""A region is the crop of the whole image, and needs no tile that it does not touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codec.pictures import DTYPES, Image, Recipe, recipes

from headrace.errors import CorruptImage

if TYPE_CHECKING:
    from tests.codec.implementations import Implementation, Native, Region


@st.composite
def regions(draw: st.DrawFn, height: int, width: int) -> Region:
    """Any rectangle within an image; Hypothesis itself tries the first pixel first."""
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    return top, left, draw(st.integers(1, height - top)), draw(st.integers(1, width - left))


def crop(image: Image, region: Region) -> Image:
    top, left, height, width = region
    return image[top : top + height, left : left + width]


@given(data=st.data())
def test_any_region_is_the_crop_of_the_whole(implementation: Implementation, mode: str, data: st.DataObject) -> None:
    recipe = data.draw(recipes(implementation.samples))
    image = recipe.render()
    encoded = implementation.encode(image, mode=mode)
    whole: Region = (0, 0, recipe.height, recipe.width)
    for region in (whole, data.draw(regions(recipe.height, recipe.width))):
        actual = implementation.decode(encoded, region=region)

        assert actual.dtype == image.dtype
        np.testing.assert_array_equal(actual, crop(image, region))


def test_every_single_pixel(native: Native, mode: str) -> None:
    image = Recipe(35, 70, 3).render()
    encoded = native.encode(image, mode=mode)
    for top in range(35):
        for left in range(70):
            pixel = native.decode(encoded, region=(top, left, 1, 1))

            np.testing.assert_array_equal(pixel, image[top : top + 1, left : left + 1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("content", ["flat", "3 colours", "noise", "sparse levels", "smooth"])
def test_regions_across_tiles_of_every_kind(native: Native, mode: str, content: str, dtype: str) -> None:
    image = Recipe(100, 600, 2, dtype, content).render()
    encoded = native.encode(image, mode=mode)
    rng = np.random.default_rng(7)
    for _ in range(60):
        top, left = int(rng.integers(0, 100)), int(rng.integers(0, 600))
        region = (top, left, int(rng.integers(1, 101 - top)), int(rng.integers(1, 601 - left)))
        for threads in (1, 3):
            actual = native.decode(encoded, region=region, threads=threads)

            np.testing.assert_array_equal(actual, crop(image, region), err_msg=f"{region}, {threads} threads")


def test_damage_matters_only_to_the_regions_that_touch_it(implementation: Implementation, mode: str) -> None:
    image = Recipe(100, 12, 1).render()
    encoded = bytearray(implementation.encode(image, mode=mode))
    encoded[-1] ^= 1  # of the last tile: rows 96 to 99

    np.testing.assert_array_equal(implementation.decode(encoded, region=(0, 0, 96, 12)), image[:96])
    for region in ((0, 0, 97, 12), (99, 11, 1, 1), None):
        with pytest.raises(CorruptImage):
            implementation.decode(encoded, region=region)
