# SPDX-License-Identifier: Apache-2.0
"""PngSuite by Willem van Schaik: every valid file as Pillow and libpng decode it, every broken one refused.

`data/pngsuite` is the collection of January 2013 with its licence. The first letter of a name says what a file tests;
those that begin with x are broken.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headrace import formats
from headrace.errors import CorruptImage
from headrace.formats.foreign import read_picture

PNG = formats.get("png")
FILES = sorted((Path(__file__).parent / "data" / "pngsuite").glob("*.png"))
VALID = [file for file in FILES if not file.stem.startswith("x")]
BROKEN = [file for file in FILES if file.stem.startswith("x")]
PILLOW = {"1": "L", "P": "RGB"}  # Pillow's modes of what decodes to other channels


def test_the_collection_is_complete():
    """A glob over a missing folder would pass every other test."""
    assert (len(VALID), len(BROKEN)) == (161, 14)


@pytest.mark.parametrize("file", VALID, ids=lambda file: file.stem)
def test_a_valid_file_equals_libpng(file):
    """Through imagecodecs, which makes alpha of a color key; we ignore the key, as Pillow does."""
    imagecodecs = pytest.importorskip("imagecodecs")
    image = PNG.decode(file.read_bytes())
    expected = imagecodecs.png_decode(file.read_bytes())
    if expected.ndim == 3 and expected.shape[2] == (1 if image.ndim == 2 else image.shape[2]) + 1:
        assert file.stem.startswith("tb")
        expected = expected[..., 0] if image.ndim == 2 else expected[..., :-1]

    assert image.dtype == expected.dtype
    assert np.array_equal(image, expected)


@pytest.mark.parametrize("file", VALID, ids=lambda file: file.stem)
def test_a_valid_file_equals_pillow(file):
    """Pillow reduces color of 16 bits to 8; these files are compared with their high bytes."""
    image = PNG.decode(file.read_bytes())
    with Image.open(io.BytesIO(file.read_bytes())) as opened:
        mode = "RGBA" if opened.mode == "P" and "transparency" in opened.info else PILLOW.get(opened.mode, opened.mode)
        expected = np.asarray(opened.convert(mode))
    if image.dtype == np.uint16 and expected.dtype == np.uint8:
        image = (image >> 8).astype(np.uint8)
        if image.shape[2] == 2:  # Pillow makes RGBA of gray and alpha
            image = image[..., [0, 0, 0, 1]]

    assert np.array_equal(image, expected)


@pytest.mark.parametrize("name", ["basn2c16", "basi4a16", "basn6a16", "tbbn2c16"])
def test_color_of_16_bits_becomes_a_picture(name):
    """With alpha where the file has a transparent color."""
    imagecodecs = pytest.importorskip("imagecodecs")
    data = (FILES[0].parent / f"{name}.png").read_bytes()

    assert np.array_equal(read_picture(data, ".png", max_pixels=2**20).array, imagecodecs.png_decode(data))


@pytest.mark.parametrize("file", BROKEN, ids=lambda file: file.stem)
def test_a_broken_file_is_corrupt(file):
    """The whole image, and a region of it."""
    for region in (None, (0, 0, 1, 1)):
        with pytest.raises(CorruptImage):
            PNG.decode(file.read_bytes(), region=region)
