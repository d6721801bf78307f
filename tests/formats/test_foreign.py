# SPDX-License-Identifier: Apache-2.0
"""BMP, GIF, PNM and TIFF: read as they are, refused where Pillow would lose bits."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image
from tests.formats.pictures import picture, saved

from headrace import formats
from headrace.errors import CorruptImage, ImageTooLarge, MissingExtra, UnsupportedImage


@pytest.mark.parametrize("kind", ["BMP", "PPM", "TIFF"])
@pytest.mark.parametrize("channels", [1, 3])
def test_eight_bit_images_are_read(kind, channels):
    """Gray and color; regions are crops."""
    image = picture(channels=channels)
    data = saved(image, kind)

    assert np.array_equal(formats.decode(data), image)
    assert np.array_equal(formats.decode(data, region=(3, 5, 20, 30)), image[3:23, 5:35])
    assert formats.decode(data, color="RGB").shape == (45, 37, 3)


@pytest.mark.parametrize("kind", ["PPM", "TIFF"])
def test_sixteen_bit_gray_is_read(kind):
    """All sixteen."""
    image = picture("uint16", 1)

    assert np.array_equal(formats.decode(saved(image, kind)), image)


def test_palettes_are_looked_up():
    """GIF has nothing else; indices on request."""
    image = Image.fromarray(picture()).quantize(16)
    data = saved(image, "GIF")
    reference = Image.open(io.BytesIO(data))

    assert np.array_equal(formats.decode(data), np.asarray(reference.convert("RGB")))
    assert np.array_equal(formats.decode(data, color="index"), np.asarray(reference))


def test_one_bit_spans_the_whole_range():
    """0 and 255."""
    image = Image.fromarray(picture(channels=1)).convert("1")

    assert np.array_equal(formats.decode(saved(image, "TIFF")), np.asarray(image) * np.uint8(255))


def tiff_of_16_bit_color():
    """Two pixels, uncompressed, as small as TIFF goes."""
    entries = [(256, 3, 1, 2), (257, 3, 1, 1), (258, 3, 3, 122), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 1, 128),
               (277, 3, 1, 3), (278, 3, 1, 1), (279, 4, 1, 12)]  # fmt: skip
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0\x08\0\0\0" + directory + bytes(4) + struct.pack("<HHH", 16, 16, 16) + bytes(12)


@pytest.mark.parametrize(
    "data",
    [
        b"P6\n2 1\n65535\n" + bytes(12),
        b"P6\n2 1\n100\n" + bytes(6),
        b"P5\n2 1\n1000\n" + bytes(4),
        saved(Image.new("F", (4, 5)), "TIFF"),
        saved(Image.new("I", (4, 5)), "TIFF"),
    ],
    ids=["16-bit PPM", "PPM to 100", "PGM to 1000", "float TIFF", "32-bit TIFF"],
)
def test_what_pillow_would_cut_down_is_refused(data):
    """Never silently. Some could be read with imagecodecs, if it were installed."""
    with pytest.raises((UnsupportedImage, MissingExtra)):
        formats.decode(data)


def test_what_pillow_would_cut_down_is_left_to_imagecodecs():
    """With every bit."""
    pytest.importorskip("imagecodecs")
    data = bytearray(tiff_of_16_bit_color())
    data[-12:] = struct.pack("<6H", 1, 2, 3, 65535, 5, 256)

    assert formats.decode(bytes(data)).tolist() == [[[1, 2, 3], [65535, 5, 256]]]


@pytest.mark.parametrize("data", [b"", b"hello", b"BM", b"GIF89a", b"P6\n2 1\n255\n", b"II*\0\x08\0\0\0"])
def test_rubbish_is_corrupt(data):
    """Unknown or cut short."""
    with pytest.raises(CorruptImage):
        formats.decode(data)


def test_bombs_are_refused():
    """From the head."""
    with pytest.raises(ImageTooLarge):
        formats.decode(b"P6\n60000 60000\n255\n")
