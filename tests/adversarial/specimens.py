# SPDX-License-Identifier: Apache-2.0
"""Small sound files, one for each kind of tile, depth and section, for the tests to damage.

They come from the plain writer, not from the encoder, so that each holds what its name says, whatever the encoder
would choose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.codec.implementations import writer
from tests.codec.pictures import Recipe

Tile = Callable[[list[Any], int], bytes]


def packed(channels: list[Any], n: int) -> bytes:
    codes = [1, 0, 2, 1] if len(channels) > 1 else [0]
    tile: bytes = writer.packed_of(channels, n, codes[: len(channels)], [i % 3 for i in range(len(channels))]).pack()
    return tile


def coded(channels: list[Any], n: int) -> bytes:
    strips = -(-len(channels[0][0]) // 32)
    predictors = [[(i + strip) % 5 for strip in range(strips)] for i in range(len(channels))]
    codes = [0, 0, 1, 2] if len(channels) > 1 else [0]
    tile: bytes = writer.coded_of(channels, n, codes[: len(channels)], predictors).pack()
    return tile


def palette(channels: list[Any], n: int) -> bytes:
    tile: bytes = writer.palette_of(channels, n).pack()
    return tile


def constant(channels: list[Any], n: int) -> bytes:
    tile: bytes = writer.constant([channel[0][0] for channel in channels], n)
    return tile


def file(recipe: Recipe, tile: Tile, mode: str, **options: Any) -> bytes:
    data: bytes = writer.encode(recipe.render(), tile, mode=mode, **options)
    return data


def make_specimens() -> dict[str, bytes]:
    entries = [(b"exif", b"II*\0"), (b"icc", b"profile"), (b"note", b"")]
    specimens = {
        "one pixel": file(Recipe(1, 1), constant, "fast"),
        "constant 8": file(Recipe(9, 11, 3, content="flat"), constant, "fast"),
        "constant 16": file(Recipe(9, 11, 2, "uint16", "flat"), constant, "dense"),
        "raw 8": file(Recipe(5, 7, 3, content="noise"), writer.raw, "dense"),
        "raw 16": file(Recipe(5, 7, 1, "int16", "noise"), writer.raw, "fast"),
        "palette 8": file(Recipe(19, 21, 3, content="3 colours"), palette, "fast"),
        "palette 16": file(Recipe(13, 17, 2, "uint16", "voronoi"), palette, "dense"),
        "packed 8": file(Recipe(9, 11, 3), packed, "fast"),
        "packed 16": file(Recipe(9, 11, 1, "int16"), packed, "fast"),
        "coded 8": file(Recipe(10, 11, 3), coded, "dense"),
        "coded 16": file(Recipe(9, 11, 2, "uint16"), coded, "dense"),
        "many tiles": file(Recipe(70, 40, 1, content="rectangles"), palette, "dense", log2_tile_width=5),
        "metadata": file(Recipe(6, 6), packed, "fast", metadata=writer.pack_metadata(entries)),
    }
    few_levels = Recipe(8, 9, 1, content="16 colours").render().astype(np.uint16) + 1000
    for name, section in (("list", lambda values: writer.rank_list(values, 16)), ("bitmap", writer.rank_bitmap)):
        specimens[f"ranks by {name}"] = writer.encode(few_levels, coded, mode="dense", ranks=section)
    return specimens


SPECIMENS = make_specimens()
