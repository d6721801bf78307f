# SPDX-License-Identifier: Apache-2.0
"""WebP: lossless as we write it, lossy as others do."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from tests.formats.pictures import exif, picture, saved

from headrace import formats
from headrace.errors import CorruptImage, UnsupportedImage
from headrace.formats.containers import _riff

WEBP = formats.get("webp")


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("lossless", [False, True])
def test_pillow_sees_the_same_pixels(channels, lossless):
    """Files that Pillow wrote, with and without alpha."""
    data = saved(picture(channels=channels), "WEBP", lossless=lossless, quality=70)
    reference = Image.open(io.BytesIO(data))

    assert np.array_equal(WEBP.decode(data), np.asarray(reference))
    assert np.array_equal(WEBP.decode(data, color="RGB"), np.asarray(reference.convert("RGB")))


@pytest.mark.usefixtures("backend")
def test_colors_under_full_transparency_are_kept():
    """Lossless means all of it."""
    image = picture(channels=4)
    image[..., 3] = 0

    assert np.array_equal(WEBP.decode(WEBP.encode(image)), image)


@pytest.mark.usefixtures("backend")
def test_others_see_gray_as_equal_channels():
    """The mark is ours, the file is everyone's."""
    image = picture(channels=1)
    seen = np.asarray(Image.open(io.BytesIO(WEBP.encode(image))))

    assert np.array_equal(seen, np.stack([image] * 3, axis=2))


@pytest.mark.usefixtures("backend")
def test_a_false_gray_mark_is_corrupt():
    """Three channels that differ are not one."""
    forged = _riff.wrap(saved(picture(), "WEBP", lossless=True), gray=True, blocks={})
    with pytest.raises(CorruptImage, match="gray"):
        WEBP.decode(forged)


def test_animations_are_not_read():
    """Which frame is meant is not ours to guess."""
    frames = [Image.fromarray(picture(seed=seed)) for seed in range(2)]
    stream = io.BytesIO()
    frames[0].save(stream, "WEBP", save_all=True, append_images=frames[1:])
    with pytest.raises(UnsupportedImage, match="animation"):
        WEBP.decode(stream.getvalue())


@pytest.mark.usefixtures("backend")
def test_every_truncation_is_corrupt():
    """The head says how long the file is."""
    data = saved(picture(height=9, width=8), "WEBP", lossless=True)
    for length in range(len(data)):
        with pytest.raises(CorruptImage):
            WEBP.decode(data[:length])


def test_too_large_for_webp():
    """16383 is the largest side."""
    with pytest.raises(UnsupportedImage, match="16383"):
        WEBP.encode(np.zeros((1, 16384, 3), np.uint8))


def test_orientation_is_reported():
    """From the EXIF chunk."""
    assert formats.orientation(WEBP.encode(picture(), metadata={"exif": exif(8)})) == 8
