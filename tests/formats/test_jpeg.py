# SPDX-License-Identifier: Apache-2.0
"""JPEG: Pillow's pixels, and no half pictures."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image
from tests.formats.pictures import exif, picture, saved

from headrace import formats
from headrace.errors import CorruptImage, UnsupportedImage

JPEG = formats.get("jpeg")


def smooth(channels):
    """An image that JPEG is made for."""
    small = Image.fromarray(picture(channels=channels, height=9, width=11))
    return small.resize((83, 61), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_pillow_sees_the_same_pixels(mode, subsampling, progressive):
    """Gray, color and inverted CMYK, baseline and progressive, at every subsampling, kept and as RGB."""
    image = smooth(4).convert(mode) if mode != "CMYK" else Image.frombytes("CMYK", (83, 61), smooth(4).tobytes())
    data = saved(image, "JPEG", subsampling=subsampling, progressive=progressive, quality=87)
    reference = Image.open(io.BytesIO(data))

    assert reference.mode == mode
    assert np.array_equal(JPEG.decode(data), np.asarray(reference))
    assert np.array_equal(JPEG.decode(data, color="RGB"), np.asarray(reference.convert("RGB")))
    assert JPEG.probe(data).array == np.asarray(reference).shape


def test_cmyk_is_the_same_in_an_array_of_the_callers():
    data = saved(Image.frombytes("CMYK", (83, 61), smooth(4).tobytes()), "JPEG", quality=90, subsampling=0)
    out = np.empty((61, 83, 4), np.uint8)
    assert JPEG.decode(data, out=out) is out
    assert np.array_equal(out, JPEG.decode(data))


def test_cmyk_keeps_its_meaning_in_hri():
    """The metadata says so, and RGB comes out the same from both."""
    image = Image.frombytes("CMYK", (83, 61), smooth(4).tobytes())
    data = saved(image, "JPEG", quality=95)
    hri = formats.get("hri").encode(JPEG.decode(data), metadata=JPEG.metadata(data))

    assert JPEG.metadata(data)["color"] == b"CMYK"
    assert np.array_equal(formats.get("hri").decode(hri, color="RGB"), JPEG.decode(data, color="RGB"))
    assert np.array_equal(formats.get("hri").decode(hri), JPEG.decode(data))


def test_quality_must_be_given():
    """The format loses, and nobody loses by default."""
    with pytest.raises(UnsupportedImage, match="jpeg:95"):
        JPEG.encode(picture())


@pytest.mark.parametrize("channels", [1, 3])
def test_quality_changes_the_error(channels):
    """A high quality is closer to the original than a low one."""
    image = np.asarray(smooth(channels))
    errors = [np.abs(JPEG.decode(JPEG.encode(image, mode=mode)).astype(int) - image).mean() for mode in ("40", "98")]

    assert errors[1] < errors[0]


def test_every_truncation_is_corrupt():
    """Also the one that cuts only the end marker off."""
    data = saved(smooth(3), "JPEG", quality=80)
    for length in range(len(data)):
        with pytest.raises(CorruptImage):
            JPEG.decode(data[:length])


def test_truncations_of_odd_subsampling_are_corrupt():
    """Also where another decoder has to help out."""
    image = Image.frombytes("CMYK", (83, 61), smooth(4).tobytes())
    data = saved(image, "JPEG", quality=80, subsampling=2)
    for length in range(0, len(data), 3):
        with pytest.raises(CorruptImage):
            JPEG.decode(data[:length])


def test_progressive_truncations_are_corrupt():
    """A decoder could show a coarse picture; that is not the picture."""
    data = saved(smooth(3), "JPEG", quality=80, progressive=True)
    for length in range(0, len(data), 7):
        with pytest.raises(CorruptImage):
            JPEG.decode(data[:length])


def test_a_million_scans_are_refused():
    """Each would cost a pass over all pixels."""
    data = saved(smooth(3), "JPEG", progressive=True)
    start = data.rindex(b"\xff\xda")
    with pytest.raises(CorruptImage):
        JPEG.decode(data[:start] + data[start:-2] * 600 + b"\xff\xd9")


@pytest.mark.parametrize(
    ("at", "value", "what"),
    [(2, 12, "8 bits per sample"), (3, 0, "height"), (7, 2, "components")],
    ids=["depth", "height", "two"],
)
def test_kinds_that_are_not_read_are_named(at, value, what):
    """A valid file of another kind is not called damaged."""
    head = bytearray(struct.pack(">HBHHB", 17, 8, 61, 83, 3) + bytes(9))
    head[at] = value
    if what == "height":
        head[4] = 0
    if what == "components":
        head = bytearray(struct.pack(">HBHHB", 14, 8, 61, 83, 2) + bytes(6))
    with pytest.raises(UnsupportedImage, match=what):
        JPEG.probe(b"\xff\xd8\xff\xc0" + bytes(head))


def test_lossless_jpeg_is_not_read():
    """Frame FF C3 is another format in all but name."""
    with pytest.raises(UnsupportedImage, match="C3"):
        JPEG.probe(b"\xff\xd8\xff\xc3" + struct.pack(">HBHHB", 11, 8, 61, 83, 1) + bytes(3))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_reported_and_not_applied(orientation):
    """The shape is the stored one."""
    data = JPEG.encode(np.asarray(smooth(3)), mode="90", metadata={"exif": exif(orientation)})

    assert formats.orientation(data) == orientation
    assert JPEG.decode(data).shape == (61, 83, 3)


def test_pillow_reads_our_metadata():
    """A profile of several segments, and EXIF."""
    data = JPEG.encode(picture(), mode="90", metadata={"exif": exif(3), "icc": bytes(200_000)})
    image = Image.open(io.BytesIO(data))

    assert image.info["icc_profile"] == bytes(200_000)
    assert image.getexif()[0x0112] == 3
