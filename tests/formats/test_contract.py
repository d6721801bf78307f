# SPDX-License-Identifier: Apache-2.0
"""What all formats have in common."""

from __future__ import annotations

import mmap
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats.pictures import EVERY, picture, saved

from headrace import formats
from headrace.errors import ImageTooLarge, InvalidOutput, InvalidRegion, UnsupportedImage
from headrace.formats import webp


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("name", "dtype", "channels"), EVERY)
def test_lossless_formats_give_back_the_same_pixels(name, dtype, channels):
    """Encode and decode is the identity, for every kind of image that the format holds."""
    image = picture(dtype, channels)
    data = formats.get(name).encode(image)
    decoded = formats.get(name).decode(data)

    assert np.array_equal(decoded, image)
    assert decoded.dtype == image.dtype
    assert decoded.flags.c_contiguous
    assert formats.sniff(data) == name


@settings(max_examples=25, deadline=None)
@given(
    case=st.sampled_from(EVERY),
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    seed=st.integers(0, 9),
    cut=st.data(),
)
def test_a_region_is_the_crop_of_the_whole(case, height, width, seed, cut):
    """Bit for bit, in every format, at any place."""
    name, dtype, channels = case
    image = picture(dtype, channels, height, width, seed)
    data = formats.get(name).encode(image)
    top, left = cut.draw(st.integers(0, height - 1)), cut.draw(st.integers(0, width - 1))
    rows, columns = cut.draw(st.integers(1, height - top)), cut.draw(st.integers(1, width - left))
    region = formats.get(name).decode(data, region=(top, left, rows, columns))

    assert np.array_equal(region, image[top : top + rows, left : left + columns])


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("name", "dtype", "channels"), EVERY)
def test_probe_says_what_decode_gives(name, dtype, channels):
    """Shape and dtype are known from the head."""
    image = picture(dtype, channels)
    shape = formats.get(name).probe(formats.get(name).encode(image))

    assert shape == formats.ImageShape(45, 37, channels, dtype)
    assert shape.array == image.shape


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("name", "dtype", "channels"), EVERY)
def test_rgb_repeats_gray_and_drops_alpha(name, dtype, channels):
    """Three channels of the same depth, whatever is stored; more than four have no RGB."""
    image = picture(dtype, channels)
    data = formats.get(name).encode(image)
    if channels > 4:
        with pytest.raises(UnsupportedImage, match="needs 1 to 4 channels"):
            formats.get(name).decode(data, color="RGB")
        return
    rgb = formats.get(name).decode(data, color="RGB")
    gray = image if channels == 1 else image[..., 0]
    expected = np.stack([gray] * 3, axis=2) if channels < 3 else image[..., :3]

    assert np.array_equal(rgb, expected)
    assert rgb.dtype == image.dtype
    assert formats.get(name).probe(data, color="RGB").array == rgb.shape


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("region", [None, (3, 5, 20, 30)])
@pytest.mark.parametrize("color", ["keep", "RGB"])
@pytest.mark.parametrize(("name", "dtype", "channels"), [case for case in EVERY if case[2] in (1, 3, 4)])
def test_out_is_filled_and_returned(name, dtype, channels, color, region):
    """Contiguous or a slice of something larger, whole or region."""
    data = formats.get(name).encode(picture(dtype, channels))
    expected = formats.get(name).decode(data, color=color, region=region)
    whole = np.full_like(expected, 77)
    batch = np.full((3, expected.shape[0] + 2, *expected.shape[1:]), 77, expected.dtype)
    part = batch[1, 1:-1]

    assert formats.get(name).decode(data, color=color, region=region, out=whole) is whole
    assert formats.get(name).decode(data, color=color, region=region, out=part) is part
    assert np.array_equal(whole, expected)
    assert np.array_equal(part, expected)
    assert (batch[[0, 2]] == 77).all()
    assert (batch[1, [0, -1]] == 77).all()


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", formats.NAMES)
def test_a_wrong_out_is_refused(name):
    """Another shape, another dtype, or read-only."""
    data = formats.get(name).encode(picture(), mode="90" if name == "jpeg" else None)
    frozen = np.empty((45, 37, 3), np.uint8)
    frozen.flags.writeable = False
    for out in (
        np.empty((45, 36, 3), np.uint8),
        np.empty((45, 37, 3), np.uint16),
        np.empty((45, 37), np.uint8),
        frozen,
    ):
        with pytest.raises(InvalidOutput):
            formats.get(name).decode(data, out=out)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", formats.NAMES)
def test_a_region_outside_of_the_image_is_refused(name):
    """Empty, negative, or reaching over an edge."""
    data = formats.get(name).encode(picture(), mode="90" if name == "jpeg" else None)
    for region in ((0, 0, 0, 1), (0, 0, 46, 1), (40, 0, 6, 1), (-1, 0, 1, 1), (0, 36, 1, 2)):
        with pytest.raises(InvalidRegion):
            formats.get(name).decode(data, region=region)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", formats.NAMES)
def test_max_pixels_is_checked_from_the_head(name):
    """One pixel fewer than the image has is too few."""
    data = formats.get(name).encode(picture(), mode="90" if name == "jpeg" else None)

    assert formats.get(name).decode(data, max_pixels=45 * 37).shape == (45, 37, 3)
    with pytest.raises(ImageTooLarge):
        formats.get(name).decode(data, max_pixels=45 * 37 - 1)


@pytest.mark.parametrize("name", formats.NAMES)
def test_an_unknown_color_is_refused(name):
    """The message lists the choices."""
    data = formats.get(name).encode(picture(), mode="90" if name == "jpeg" else None)
    with pytest.raises(ValueError, match="'keep', 'RGB', 'index'"):
        formats.get(name).decode(data, color="BGR")


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", formats.NAMES)
def test_any_buffer_will_do(name, tmp_path):
    """Bytes, bytearray, a slice of a memoryview, an array, a memory map."""
    data = formats.get(name).encode(picture(), mode="90" if name == "jpeg" else None)
    expected = formats.get(name).decode(data)
    path = tmp_path / "image"
    path.write_bytes(b"\0" * 64 + data)
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as whole,
        whole[64:] as part,
    ):
        decoded = formats.get(name).decode(part)
    buffers = (bytearray(data), memoryview(b"12" + data)[2:], np.frombuffer(data, np.uint8))

    assert np.array_equal(decoded, expected)
    assert all(np.array_equal(formats.get(name).decode(buffer), expected) for buffer in buffers)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", formats.NAMES)
def test_the_result_belongs_to_the_caller(name):
    """It may be written to, and does not look into the encoded bytes."""
    data = bytearray(formats.get(name).encode(picture(), mode="90" if name == "jpeg" else None))
    decoded = formats.get(name).decode(data)
    before = decoded.copy()
    data[:] = bytes(len(data))

    assert decoded.flags.writeable
    assert np.array_equal(decoded, before)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", formats.NAMES)
def test_threads_may_decode_at_once(name):
    """Four threads, each with an image of its own, see their own pixels."""
    images = [picture(seed=seed) for seed in range(4)]
    mode = "90" if name == "jpeg" else None
    datas = [formats.get(name).encode(image, mode=mode) for image in images]
    expected = [formats.get(name).decode(data) for data in datas]
    wrong = []

    def decode(which):
        decoded = [formats.get(name).decode(datas[which]) for _ in range(20)]
        wrong.extend(which for image in decoded if not np.array_equal(image, expected[which]))

    threads = [threading.Thread(target=decode, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


@pytest.mark.parametrize("name", formats.NAMES)
def test_formats_pickle(name):
    """Workers get a copy."""
    assert pickle.loads(pickle.dumps(formats.get(name))).name == name


@pytest.mark.parametrize(
    ("name", "dtype", "channels"),
    [("png", "int16", 1), ("png", "uint8", 5), ("webp", "uint16", 3), ("webp", "uint8", 2), ("jpeg", "uint16", 1),
     ("jpeg", "uint8", 4), ("raw", "float32", 1), ("hri", "float32", 1), ("png", "float32", 3), ("raw", "uint8", 65)],
)  # fmt: skip
def test_an_image_that_a_format_cannot_hold_is_refused(name, dtype, channels):
    """Nothing is down-cast or dropped."""
    image = np.zeros((4, 5, channels), dtype)
    with pytest.raises(UnsupportedImage):
        formats.get(name).encode(image, mode="90" if name == "jpeg" else None)


@pytest.mark.parametrize("name", formats.NAMES)
def test_an_empty_image_is_refused(name):
    """No rows are no image."""
    with pytest.raises(UnsupportedImage):
        formats.get(name).encode(np.zeros((0, 5, 3), np.uint8), mode="90" if name == "jpeg" else None)


@pytest.mark.parametrize(("name", "mode"), [("hri", "slow"), ("png", "13"), ("raw", "1"), ("webp", "7"), ("jpeg", "0")])
def test_an_unknown_mode_is_refused(name, mode):
    """And the message says which there are."""
    with pytest.raises(UnsupportedImage, match=mode):
        formats.get(name).encode(picture(), mode=mode)


@pytest.mark.parametrize(("name", "mode"), [("hri", "fast"), ("png", "1"), ("webp", "0")])
def test_modes_change_bytes_and_no_pixels(name, mode):
    """A mode trades time for size."""
    image = picture()
    data = formats.get(name).encode(image, mode=mode)

    assert data != formats.get(name).encode(image)
    assert np.array_equal(formats.get(name).decode(data), image)


@pytest.mark.parametrize("name", ["hri", "png", "webp", "raw"])
def test_strided_images_encode_as_their_copies(name):
    """Views of any strides."""
    image = picture(height=60, width=80)[::-2, ::2, ::-1]

    assert np.array_equal(formats.get(name).decode(formats.get(name).encode(image)), image)


@pytest.mark.parametrize("name", ["hri", "png", "webp", "jpeg"])
def test_metadata_is_carried(name):
    """ICC, EXIF and XMP come back as they went in."""
    blocks = {"icc": bytes(range(256)) * 300, "exif": b"II*\0\x08\0\0\0\0\0\0\0\0\0", "xmp": b"<x:xmpmeta/>"}
    data = formats.get(name).encode(picture(), mode="90" if name == "jpeg" else None, metadata=blocks)

    assert formats.get(name).metadata(data) == blocks


def test_the_bytes_do_not_depend_on_the_backend(monkeypatch):
    """A dataset is the same wherever it is built."""
    pytest.importorskip("imagecodecs")
    written = [[formats.get(name).encode(picture(dtype, channels)) for name, dtype, channels in EVERY]]
    monkeypatch.setattr(webp, "fast_decoders", lambda: None)
    written.append([formats.get(name).encode(picture(dtype, channels)) for name, dtype, channels in EVERY])

    assert written[0] == written[1]


def test_formats_are_parsed_with_their_modes():
    """As the command line writes them."""
    assert formats.parse("hri:dense") == (formats.get("hri"), "dense")
    assert formats.parse("png") == (formats.get("png"), None)
    for text in ("gif", "png:", "", ":fast"):
        with pytest.raises(UnsupportedImage):
            formats.parse(text)


def test_backends_are_listed():
    """Every format has one."""
    assert set(formats.backends()) == set(formats.NAMES)


def test_sniff_knows_ours_and_nothing_else():
    """Too short, empty or foreign bytes are None."""
    image = picture()

    assert formats.sniff(saved(image, "JPEG")) == "jpeg"
    assert [formats.sniff(data) for data in (b"", b"\x89", b"RIFF1234WAVE", saved(image, "BMP"))] == [None] * 4


@pytest.mark.parametrize("name", ["hri", "png", "webp", "raw"])
def test_opaque_alpha_stays_a_channel(name):
    """Four channels come back as four, also where the fourth holds nothing but 255."""
    image = np.full((3, 5, 4), 255, np.uint8)
    image[..., 0] = 7
    data = formats.get(name).encode(image)

    assert formats.get(name).probe(data).channels == 4
    np.testing.assert_array_equal(formats.get(name).decode(data), image)
