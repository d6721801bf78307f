# SPDX-License-Identifier: Apache-2.0
"""Decoding into the caller's memory writes the image's samples and not a byte beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codec.pictures import DTYPES, Recipe, recipes

if TYPE_CHECKING:
    from tests.codec.implementations import Native

POISON = 0xCD


@given(data=st.data())
def test_rows_may_be_any_distance_apart(native: Native, mode: str, data: st.DataObject) -> None:
    recipe = data.draw(recipes(native.samples))
    image = recipe.render()
    row_bytes = image.strides[0]
    gap = data.draw(st.integers(0, 40)) * image.itemsize
    start = data.draw(st.integers(0, 40)) * image.itemsize
    memory = np.full(start + recipe.height * (row_bytes + gap) + 40, POISON, np.uint8)
    strides = (row_bytes + gap, *image.strides[1:])
    out = np.ndarray(image.shape, image.dtype, memory.data, start, strides)
    expected = memory.copy()
    np.ndarray(image.shape, image.dtype, expected.data, start, strides)[...] = image
    if data.draw(st.booleans(), label="upside down"):
        out, image = out[::-1], image[::-1]

    encoded = native.encode(image, mode=mode)
    returned = native.decode(encoded, out=out, threads=data.draw(st.integers(1, 3), label="threads"))

    assert returned is out
    np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_region_fills_a_window_of_a_larger_image(native: Native, mode: str, dtype: str) -> None:
    image = Recipe(90, 150, 4, dtype).render()
    encoded = native.encode(image, mode=mode)
    canvas = np.full((100, 160, 4), 77, dtype)
    expected = canvas.copy()
    expected[10:60, 20:131] = image[33:83, 35:146]

    native.decode(encoded, region=(33, 35, 50, 111), out=canvas[10:60, 20:131])

    np.testing.assert_array_equal(canvas, expected)


@pytest.mark.parametrize("dtype", ["uint16", "int16"])
def test_16_bit_rows_may_begin_at_odd_addresses(native: Native, mode: str, dtype: str) -> None:
    image = Recipe(40, 70, 3, dtype).render()
    memory = np.full(1 + 40 * (image.strides[0] + 3), POISON, np.uint8)
    out = np.ndarray(image.shape, dtype, memory.data, 1, (image.strides[0] + 3, 6, 2))

    native.decode(native.encode(image, mode=mode), out=out)

    np.testing.assert_array_equal(out, image)
    gaps = memory[1:].reshape(40, -1)[:, image.strides[0] :]
    assert memory[0] == POISON
    assert (gaps == POISON).all()


def test_one_channel_fits_two_axes_or_three(native: Native, mode: str) -> None:
    image = Recipe(20, 30).render()
    for shape in ((20, 30), (20, 30, 1)):
        out = np.empty(shape, np.uint8)

        native.decode(native.encode(image, mode=mode), out=out)

        np.testing.assert_array_equal(out.reshape(20, 30), image)


def test_every_thread_count_gives_the_same_pixels(native: Native, mode: str) -> None:
    image = Recipe(300, 300, 3).render()
    encoded = native.encode(image, mode=mode)
    for threads in (0, 1, 2, 3, 64):
        out = np.full(image.shape, POISON, np.uint8)

        np.testing.assert_array_equal(native.decode(encoded, out=out, threads=threads), image)
