# SPDX-License-Identifier: Apache-2.0
"""Every picture comes back from its file sample by sample, whatever its shape, content and memory layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codec.layouts import LAYOUTS
from tests.codec.pictures import CHANNELS, CONTENTS, DTYPES, SIDES, Image, Recipe, recipes

if TYPE_CHECKING:
    from tests.codec.implementations import Implementation, Native


def assert_same(expected: Image, actual: Image) -> None:
    assert actual.dtype == expected.dtype.newbyteorder("=")
    np.testing.assert_array_equal(actual, expected)


def assert_survives(implementation: Implementation, image: Image, mode: str) -> None:
    assert_same(image, implementation.decode(implementation.encode(image, mode=mode)))


@given(data=st.data())
def test_any_picture_survives(implementation: Implementation, mode: str, data: st.DataObject) -> None:
    recipe = data.draw(recipes(implementation.samples))

    assert_survives(implementation, recipe.render(), mode)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("content", CONTENTS)
def test_every_content_survives_in_every_dtype(
    implementation: Implementation, mode: str, content: str, dtype: str
) -> None:
    for height, width, channels in ((40, 37, 1), (33, 20, 3)):
        assert_survives(implementation, Recipe(height, width, channels, dtype, content).render(), mode)


@pytest.mark.parametrize("height", SIDES)
def test_every_shape_survives(implementation: Implementation, mode: str, height: int) -> None:
    for width in SIDES:
        if height * width * 3 <= implementation.samples // 4:
            assert_survives(implementation, Recipe(height, width, 3, seed=height + width).render(), mode)


@pytest.mark.parametrize("side", [31, 32, 33, 511, 512, 513, 700])
def test_single_rows_and_columns_cross_tiles(implementation: Implementation, mode: str, side: int) -> None:
    for recipe in (Recipe(1, side, 3), Recipe(side, 1, 3), Recipe(2, side, 1, "uint16"), Recipe(side, 2, 1, "int16")):
        assert_survives(implementation, recipe.render(), mode)


@pytest.mark.parametrize("channels", [*CHANNELS, 6, 8, 9, 13, 31, 32, 33, 63])
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_any_number_of_channels_survives(implementation: Implementation, mode: str, channels: int, dtype: str) -> None:
    for content in ("smooth", "3 colours", "noise"):
        assert_survives(implementation, Recipe(9, 7, channels, dtype, content).render(), mode)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_layout_does_not_matter(native: Native, mode: str, layout: str, dtype: str) -> None:
    for channels in (1, 3, 5):
        image = Recipe(41, 67, channels, dtype).render()
        laid_out = LAYOUTS[layout](image)

        data = native.encode(laid_out, mode=mode)

        assert data == native.encode(image, mode=mode)
        assert_same(image, native.decode(data))


def test_repeated_rows_without_memory_of_their_own(native: Native, mode: str) -> None:
    """A stride of zero is a stride."""
    row = Recipe(1, 50, 3).render()

    assert_survives(native, np.broadcast_to(row, (40, 50, 3)), mode)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_last_axis_of_one_is_dropped(implementation: Implementation, mode: str, dtype: str) -> None:
    image = Recipe(20, 30, 1, dtype).render()

    actual = implementation.decode(implementation.encode(image[:, :, None], mode=mode))

    assert actual.shape == (20, 30)
    assert_same(image, actual)


@pytest.mark.parametrize("dtype", ["uint16", "int16"])
def test_all_levels_of_16_bits(implementation: Implementation, mode: str, dtype: str) -> None:
    """As many ranks as there can be, each in use."""
    if implementation.name == "oracle":
        pytest.skip("the plain decoder takes a second for 65536 samples")
    levels = np.arange(65536, dtype="uint16")
    for order in (levels, levels[::-1], np.random.default_rng(1).permutation(levels)):
        assert_survives(implementation, order.reshape(256, 256).view(dtype), mode)


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=600, derandomize=False)
def test_any_large_picture_survives(native: Native, mode: str, data: st.DataObject) -> None:
    assert_survives(native, data.draw(recipes(6_000_000)).render(), mode)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 65535), (65535, 1), (33, 65535), (65535, 33)])
def test_the_longest_sides_survive(native: Native, mode: str, shape: tuple[int, int]) -> None:
    assert_survives(native, Recipe(*shape, 1).render(), mode)
