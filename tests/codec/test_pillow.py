# SPDX-License-Identifier: Apache-2.0
"""Pillow opens and saves `.hri` as it does its own formats, and never with fewer bits."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
from PIL import Image, ImageOps

import headrace
from headrace.codec import pillow
from headrace.errors import CorruptImage, UnsupportedImage

RNG = np.random.default_rng(11)
SHAPES = {"L": (20, 33), "LA": (20, 33, 2), "RGB": (20, 33, 3), "RGBA": (20, 33, 4)}


def saved(image: Image.Image, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, "HRI", **options)
    return file.getvalue()


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def labels(palette: list[int], *, alpha: bytes | None = None) -> Image.Image:
    """A palette image that uses the indices 0, 1 and 2."""
    image = Image.fromarray(RNG.integers(0, 3, (9, 9), np.uint8)).convert("L")
    image.putpalette(palette)
    if alpha is not None:
        image.info["transparency"] = alpha
    return image


@pytest.mark.parametrize("mode", SHAPES)
def test_eight_bit_modes_round_trip(mode, tmp_path):
    """Mode, size and pixels come back, from a path as from a stream."""
    pixels = RNG.integers(0, 256, SHAPES[mode], np.uint8)
    image = Image.fromarray(pixels)
    image.save(tmp_path / "image.hri", mode="fast")
    with Image.open(tmp_path / "image.hri") as again:
        assert (again.format, again.mode, again.size) == ("HRI", mode, (33, 20))
        np.testing.assert_array_equal(np.asarray(again), pixels)
        assert again.get_format_mimetype() == "image/x-headrace"
    np.testing.assert_array_equal(headrace.decode(saved(image)), pixels)


@pytest.mark.parametrize("byte_order", ["<u2", ">u2"])
def test_sixteen_bit_gray_keeps_every_bit(byte_order):
    """I;16 in either byte order is stored as uint16."""
    pixels = RNG.integers(0, 65536, (20, 33)).astype(byte_order)
    image = Image.fromarray(pixels)
    again = opened(saved(image))

    assert image.mode.startswith("I;16")
    assert again.mode == "I;16"
    np.testing.assert_array_equal(np.asarray(again), pixels)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((4, 4, 3), "uint16"), ((4, 4, 2), "uint16"), ((4, 4), "int16"), ((4, 4, 5), "uint8")]
)
def test_what_pillow_cannot_hold_is_refused_on_open(shape, dtype):
    """There is no mode for it, so there is an error, which is an OSError too."""
    data = headrace.encode(np.zeros(shape, dtype))
    with pytest.raises(UnsupportedImage, match=r"headrace\.decode") as caught:
        opened(data)
    assert isinstance(caught.value, OSError)


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "LAB", "HSV", "I", "F", "PA", "RGBX"])
def test_what_the_format_cannot_say_is_refused_on_save(mode):
    """Four channels of ink are not RGBA."""
    with pytest.raises(UnsupportedImage, match=mode):
        saved(Image.new(mode, (4, 4)))


def test_bilevel_images_are_stored_as_gray():
    """0 and 255, as Pillow itself converts them."""
    image = Image.fromarray(RNG.integers(0, 2, (9, 9)).astype(bool))
    again = opened(saved(image))

    assert (image.mode, again.mode) == ("1", "L")
    np.testing.assert_array_equal(np.asarray(again), np.asarray(image) * np.uint8(255))


def test_palettes_are_resolved_when_no_index_is_lost():
    """Distinct colours tell the indices; transparency makes them RGBA."""
    colours = [10, 20, 30, 40, 50, 60, 70, 80, 90]
    plain, clear = labels(colours), labels(colours, alpha=b"\x00\x80\xff")

    np.testing.assert_array_equal(np.asarray(opened(saved(plain))), np.asarray(plain.convert("RGB")))
    np.testing.assert_array_equal(np.asarray(opened(saved(clear))), np.asarray(clear.convert("RGBA")))
    assert set(np.asarray(opened(saved(clear)))[..., 3].flat) == {0, 128, 255}


def test_palettes_with_twice_the_same_colour_are_refused():
    """A label map whose classes share a colour would lose its classes."""
    with pytest.raises(UnsupportedImage, match="indices"):
        saved(labels([1, 2, 3, 1, 2, 3, 7, 8, 9]))


def test_a_transparent_colour_becomes_alpha():
    """PNG's colour key is not dropped."""
    image = Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8))
    image.info["transparency"] = (4, 5, 6)

    assert np.asarray(opened(saved(image)))[0].tolist() == [[1, 2, 3, 255], [4, 5, 6, 0]]


def test_metadata_goes_both_ways():
    """ICC, EXIF and XMP are found where Pillow looks for them; other entries under `metadata`."""
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: turned
    image = Image.new("RGB", (8, 4), "red")
    data = saved(image, exif=exif, icc_profile=b"profile", xmp=b"<x/>", metadata={"camera": "left"})
    stored = headrace.inspect(data).metadata
    again = opened(data)

    assert stored["exif"][:2] in (b"II", b"MM")
    assert (stored["icc"], stored["xmp"], stored["camera"]) == (b"profile", b"<x/>", b"left")
    assert again.getexif()[0x0112] == 6
    assert (again.info["icc_profile"], again.info["xmp"]) == (b"profile", b"<x/>")
    assert again.info["metadata"] == {"camera": b"left"}
    assert again.size == (8, 4), "orientation is carried, not applied"
    assert ImageOps.exif_transpose(again).size == (4, 8)
    assert saved(again) == data, "what was opened is saved with all that it carried"


def test_explicit_metadata_wins_over_the_images_own():
    """An empty block removes it."""
    image = opened(saved(Image.new("L", (4, 4)), icc_profile=b"old"))

    assert headrace.inspect(saved(image, icc_profile=b"new")).metadata["icc"] == b"new"
    assert "icc" not in headrace.inspect(saved(image, icc_profile=None)).metadata


def test_pixels_are_decoded_when_first_asked_for():
    """Opening reads the head; damage in a tile shows on load, and says where it is."""
    damaged = bytearray(saved(Image.fromarray(RNG.integers(0, 256, (40, 20), np.uint8))))
    damaged[-1] ^= 1
    image = opened(bytes(damaged))

    assert image.size == (20, 40)
    with pytest.raises(CorruptImage, match="tile 1") as caught:
        image.load()
    assert isinstance(caught.value, OSError)
    assert caught.value.tile == 1
    with pytest.raises(CorruptImage):
        opened(bytes(damaged)).verify()


def test_a_damaged_head_is_an_oserror_on_open(tmp_path):
    """The message is ours, not that no format knows the file."""
    path = tmp_path / "damaged.hri"
    path.write_bytes(saved(Image.new("L", (4, 4)))[:30])
    with pytest.raises(OSError, match="byte") as caught:
        Image.open(path)
    assert isinstance(caught.value, CorruptImage)


def test_other_files_are_none_of_its_business():
    """Without the magic number the plugin stays silent."""
    with pytest.raises(Image.UnidentifiedImageError):
        opened(b"\x89HRX" + bytes(40))


def test_opened_images_behave(tmp_path):
    """They can be verified, copied, pickled, changed and closed, before and after loading."""
    pixels = RNG.integers(0, 256, (20, 33, 3), np.uint8)
    path = tmp_path / "image.hri"
    path.write_bytes(headrace.encode(pixels))
    with Image.open(path) as image:
        image.verify()
    with Image.open(path) as image:
        for twin in (image.copy(), copy.deepcopy(image), pickle.loads(pickle.dumps(image))):
            np.testing.assert_array_equal(np.asarray(twin), pixels)
        image.putpixel((0, 0), (1, 2, 3))
        assert image.getpixel((0, 0)) == (1, 2, 3)
    path.unlink()


def test_pillows_bomb_check_applies(monkeypatch):
    """A file of more pixels than Pillow's own limit is refused by Pillow, before a pixel is decoded."""
    data = headrace.encode(np.zeros((40, 40), np.uint8))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(Image.DecompressionBombError):
        opened(data)


def test_the_parts_are_for_others_too():
    """What the command line builds on: exact pixels, and the blocks under the format's keys."""
    image = Image.new("LA", (3, 2), (7, 9))
    image.info["exif"] = b"Exif\0\0II*\0"

    assert pillow.to_array(image).tolist() == [[[7, 9]] * 3] * 2
    assert pillow.metadata_of(image) == {"exif": b"II*\0"}
