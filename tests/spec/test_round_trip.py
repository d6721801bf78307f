# SPDX-License-Identifier: Apache-2.0
"""The oracle returns what the plain writer wrote, whole and by regions, whatever the choices."""

from __future__ import annotations

from functools import partial

import decoder
import numpy as np
import pytest
import writer
from hypothesis import given, settings
from hypothesis import strategies as st

CONTENTS = ("slope", "noise", "few", "extremes", "outliers")


def picture(rng, height, width, channels, dtype, content):
    info = np.iinfo(dtype)
    shape = (height, width, channels)
    if content == "slope":
        slope = np.add.outer(np.arange(height) * 2, np.arange(width))[..., None] + rng.integers(0, 3, shape)
        image = slope + info.min
    elif content == "outliers":
        image = rng.integers(0, 3, shape)
        image[rng.random(shape) < 0.03] = info.max
    elif content == "noise":
        image = rng.integers(info.min, info.max + 1, shape)
        image[:, width // 3 :] = image[0, 0]  # the rest flat, so that noise need not fall back to raw
    elif content == "few":
        image = rng.integers(info.min, info.max + 1, 3)[rng.integers(0, 3, (height, width))][..., None].repeat(
            channels, 2
        )
    else:
        image = rng.choice([info.min, info.max], shape)
    image = image.astype(dtype)
    return image[..., 0] if channels == 1 else image


def tiler(rng, kind, channels):
    """A maker of tiles that draws its choices."""

    def codes():
        return [int(rng.integers(0, 2)), 0, *rng.integers(0, 3, channels - 2).tolist()] if channels > 1 else [0]

    def packed(planes, n):
        ids = rng.integers(0, 3, channels).tolist()
        return writer.packed_of(planes, n, codes(), ids, wider=int(rng.integers(0, 2))).pack()

    def coded(planes, n):
        strips = -(-len(planes[0][0]) // 32)
        ids = rng.integers(0, 5, (channels, strips)).tolist()
        count = len(writer.class_table(n))
        return writer.coded_of(planes, n, codes(), ids, lambda *_: int(rng.integers(0, count))).pack()

    def palette(planes, n):
        tile = writer.palette_of(planes, n, forced=0.1)
        return tile.pack() if 2 <= len(tile.colours) <= 255 else writer.raw(planes, n)

    return {"packed": packed, "coded": coded, "palette": palette, "raw": writer.raw}[kind]


@st.composite
def files(draw):
    """A file and the image that it holds."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    side = st.sampled_from([1, 2, 7, 8, 9, 31, 32, 33, 40, 65])
    height, width = draw(side), draw(side)
    channels = draw(st.sampled_from([1, 2, 3, 4, 5]))
    dtype = draw(st.sampled_from(["uint8", "uint16", "int16"]))
    image = picture(rng, height, width, channels, dtype, draw(st.sampled_from(CONTENTS)))
    kind = draw(st.sampled_from(["packed", "coded", "palette", "raw"]))
    mode = "fast" if kind == "packed" else "dense"
    forms = [None, writer.rank_bitmap, partial(writer.rank_list, depth=8 * image.dtype.itemsize)]
    ranks = draw(st.sampled_from(forms)) if len(np.unique(image)) > 1 else None
    log2_tile_width = draw(st.integers(5, 8))
    data = writer.encode(image, tiler(rng, kind, channels), mode=mode, log2_tile_width=log2_tile_width, ranks=ranks)
    return data, image


@settings(max_examples=200, deadline=None, derandomize=True)
@given(files())
def test_the_oracle_returns_what_was_written(file):
    data, image = file
    decoded = decoder.decode(data)

    assert decoded.dtype == image.dtype
    assert np.array_equal(decoded, image)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(files(), st.data())
def test_a_region_is_a_crop(file, choice):
    data, image = file
    height, width = image.shape[:2]
    top, left = choice.draw(st.integers(0, height - 1)), choice.draw(st.integers(0, width - 1))
    rows, columns = choice.draw(st.integers(1, height - top)), choice.draw(st.integers(1, width - left))

    assert np.array_equal(
        decoder.decode(data, (top, left, rows, columns)), image[top : top + rows, left : left + columns]
    )


def test_a_region_needs_only_its_own_tiles():
    """Damage in the last tile is met by the regions that touch it and by no other."""
    image = np.arange(40 * 40, dtype=np.uint16).reshape(40, 40)
    data = writer.encode(image, writer.raw, log2_tile_width=5)
    damaged = data[:-1] + bytes([data[-1] ^ 1])

    assert np.array_equal(decoder.decode(damaged, (0, 0, 40, 32)), image[:, :32])
    with pytest.raises(decoder.CorruptImage, match="tile 3"):
        decoder.decode(damaged, (39, 39, 1, 1))


def test_patch_makes_hostile_bytes_with_valid_checksums():
    """The writer's tool for hostile files: the checksums pass, the content does not."""
    data = writer.encode(np.full((4, 4), 7, np.uint8), lambda *_: writer.constant([7], 8))
    patched = writer.patch(data, len(data) - 2, b"\x09")

    with pytest.raises(decoder.CorruptImage, match="kind 9"):
        decoder.decode(patched)
    assert writer.reseal(data) == data
