# SPDX-License-Identifier: Apache-2.0
"""`max_pixels` counts the pixels that a call would produce, and refuses before it makes room for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.codec.pictures import Recipe

import headrace
from headrace.codec import decoding
from headrace.errors import CorruptImage, ImageTooLarge

if TYPE_CHECKING:
    from tests.codec.implementations import Native


def test_the_limit_is_what_is_allowed(native: Native, mode: str) -> None:
    image = Recipe(40, 50, 3).render()
    data = native.encode(image, mode=mode)

    np.testing.assert_array_equal(native.decode(data, max_pixels=2000), image)
    with pytest.raises(ImageTooLarge, match="2000"):
        native.decode(data, max_pixels=1999)


def test_a_region_counts_its_own_pixels(native: Native, mode: str) -> None:
    image = Recipe(40, 50, 3).render()
    data = native.encode(image, mode=mode)

    np.testing.assert_array_equal(native.decode(data, region=(5, 6, 10, 10), max_pixels=100), image[5:15, 6:16])
    with pytest.raises(ImageTooLarge):
        native.decode(data, region=(5, 6, 10, 11), max_pixels=100)


def test_the_callers_memory_is_no_way_around_it(native: Native, mode: str) -> None:
    image = Recipe(40, 50, 3).render()
    out = np.zeros_like(image)

    with pytest.raises(ImageTooLarge):
        native.decode(native.encode(image, mode=mode), out=out, max_pixels=10)

    assert not out.any()


def test_each_of_many_images_has_the_limit(native: Native, mode: str) -> None:
    datas = [native.encode(Recipe(10, 10 + seed).render(), mode=mode) for seed in range(3)]

    assert len(native.decode_many(datas, max_pixels=120)) == 3
    with pytest.raises(ImageTooLarge) as caught:
        native.decode_many(datas, max_pixels=119)
    assert caught.value.index == 2


@pytest.mark.parametrize("shape", [(20, 30, 3), (300, 500), (70, 900, 64)])
def test_verify_reads_every_tile_in_pieces(monkeypatch: pytest.MonkeyPatch, mode: str, shape: tuple[int, ...]) -> None:
    """A damaged byte anywhere is found, whatever the size of the pieces."""
    monkeypatch.setattr(decoding, "_PIECE_BYTES", 1 << 12)
    data = bytearray(headrace.encode(np.random.default_rng(1).integers(0, 9, shape, np.uint8), mode=mode))
    headrace.codec.verify(data)
    for place in (len(data) - 1, len(data) * 3 // 4, len(data) // 2):
        data[place] ^= 1
        with pytest.raises(CorruptImage):
            headrace.codec.verify(data)
        data[place] ^= 1
    with pytest.raises(ImageTooLarge):
        headrace.codec.verify(data, max_pixels=shape[0] * shape[1] - 1)
