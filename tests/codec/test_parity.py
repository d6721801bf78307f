# SPDX-License-Identifier: Apache-2.0
"""A file's bytes are a function of pixels, mode and metadata: not of the target, the threads or the memory layout."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.codec.implementations import NATIVES, Native
from tests.codec.layouts import LAYOUTS
from tests.codec.pictures import CHANNELS, CONTENTS, DTYPES, Recipe, recipes


@given(recipe=recipes(60_000), layout=st.sampled_from(sorted(LAYOUTS)), threads=st.integers(1, 3))
def test_any_target_layout_and_threads_give_the_same_bytes(
    mode: str, recipe: Recipe, layout: str, threads: int
) -> None:
    image = recipe.render()
    scalar, *others = NATIVES

    expected = scalar.encode(image, mode=mode)

    assert scalar.encode(LAYOUTS[layout](image), mode=mode, threads=threads) == expected
    for native in others:
        assert native.encode(LAYOUTS[layout](image), mode=mode, threads=threads) == expected


def test_every_content_gives_the_same_bytes_on_every_target(mode: str) -> None:
    for content in CONTENTS:
        for dtype in DTYPES:
            for channels in CHANNELS:
                image = Recipe(70, 20 if channels == 64 else 139, channels, dtype, content).render()
                first, *others = [native.encode(image, mode=mode) for native in NATIVES]

                assert all(other == first for other in others), (content, dtype, channels)


def test_encoding_twice_gives_the_same_bytes(native: Native, mode: str) -> None:
    """No scratch memory of an earlier image shows in a later one."""
    image = Recipe(45, 77, 3).render()
    first = native.encode(image, mode=mode)
    native.encode(Recipe(300, 300, 4, content="noise").render(), mode=mode)

    assert native.encode(image, mode=mode) == first


def test_the_bytes_do_not_exceed_the_pixels_by_more_than_the_index(native: Native, mode: str) -> None:
    """Noise is stored raw: one byte a tile, eight in the index."""
    for dtype in ("uint8", "uint16"):
        image = Recipe(100, 1100, 3, dtype, "noise").render()
        tiles = 4 * (1100 // 32 + 1)

        assert len(native.encode(image, mode=mode)) <= 28 + 9 * tiles + image.nbytes
