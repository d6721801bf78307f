# SPDX-License-Identifier: Apache-2.0
"""JPEG in the core: a region is a crop of what headrace.formats decodes, bit for bit, and no damage passes."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from tests.formats.pictures import picture, saved

from headrace import _core, formats
from headrace.errors import CorruptImage, UnsupportedImage
from headrace.records.schema import FORMAT_CODES

CODE = FORMAT_CODES["jpeg"]
JPEG = formats.get("jpeg")
KEY = {"seed": 5, "epoch": 0}


def transform(ops: list[tuple[str, list[float]]], color: str = "keep") -> _core.Transform:
    return _core.Transform(ops, dtype=None, layout="HWC", mean=None, std=None, color=color, mask=False)


def crop(height: int, width: int, color: str = "keep") -> _core.Transform:
    return transform([("random_crop", [height, width, 0, 0, 0])], color)


def flat(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return image if image.ndim == 3 else image[..., None]


def assert_crops(data: bytes, color: str) -> None:
    """Crops of many sizes and places, and the whole."""
    whole = flat(JPEG.decode(data, color=color))
    height, width, channels = whole.shape
    for sample in range(24):
        rows, columns = 1 + sample * 7 % height, 1 + sample * 11 % width
        cut = crop(rows, columns, color)
        (step,) = cut.passes(height, width, **KEY, sample=sample)
        top, left = step["rows"]["start"], step["columns"]["start"]
        found = flat(cut.run(data, CODE, **KEY, sample=sample))

        assert found.shape == (rows, columns, channels)
        assert np.array_equal(found, whole[top : top + rows, left : left + columns]), (top, left, rows, columns)
    assert np.array_equal(flat(transform([], color).run(data, CODE, **KEY, sample=0)), whole)


@pytest.mark.parametrize("color", ["keep", "RGB"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 3}, {"optimize": True}])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_regions_of_what_pillow_writes(mode, subsampling, options, color):
    """Gray, color and CMYK, in one scan or many, with and without restarts."""
    pixels = picture(channels=len(mode), height=61, width=83)
    image = Image.frombytes(mode, (83, 61), pixels.tobytes())
    assert_crops(saved(image, "JPEG", quality=88, subsampling=subsampling, **options), color)


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (2, 3), (17, 16), (33, 65), (50, 120)])
@pytest.mark.parametrize("subsampling", ["444", "422", "420", "440", "411"])
def test_regions_of_every_subsampling(subsampling, size):
    """Regions whose edges are those of blocks, of the image, or neither."""
    simplejpeg = pytest.importorskip("simplejpeg")  # has no wheels for new versions of Python
    pixels = picture(height=size[0], width=size[1])
    assert_crops(simplejpeg.encode_jpeg(pixels, quality=90, colorsubsampling=subsampling), "RGB")


@pytest.mark.parametrize("progressive", [False, True])
def test_a_file_cut_short_is_refused(progressive):
    """Wherever it is cut, when it is read to its end."""
    data = saved(picture(), "JPEG", progressive=progressive)
    whole = transform([])
    whole.run(data, CODE, **KEY, sample=0)
    for size in range(0, len(data), 13):
        with pytest.raises(CorruptImage):
            whole.run(data[:size], CODE, **KEY, sample=0)


def test_what_follows_the_end_does_not_matter():
    """As in headrace.formats."""
    data = saved(picture(), "JPEG")
    assert_crops(data + b"\0\1\2 and more \xff\xd8", "keep")


def test_tables_of_another_file_are_not_used():
    """A file without quantization tables is refused, also after one that had them."""
    data = saved(picture(), "JPEG")
    whole = transform([])
    whole.run(data, CODE, **KEY, sample=0)
    bare = re.sub(rb"\xff\xdb\0\x43.{65}", b"", data, flags=re.DOTALL)
    assert len(bare) < len(data)
    with pytest.raises(CorruptImage):
        whole.run(bare, CODE, **KEY, sample=0)


@pytest.mark.parametrize(("at", "value"), [(1, 0xC3), (4, 12)])
def test_other_kinds_of_frame_are_refused(at, value):
    """Lossless frames, by their marker, and samples of 12 bits, which the frame head says first."""
    data = bytearray(saved(picture(), "JPEG"))
    data[data.index(b"\xff\xc0") + at] = value
    with pytest.raises(UnsupportedImage):
        transform([]).run(bytes(data), CODE, **KEY, sample=0)


def test_thousands_of_scans_are_refused():
    """Scans that say nothing of a large image would keep a core busy for minutes."""
    data = saved(Image.new("L", (1000, 1000)), "JPEG", progressive=True)
    # The last scan, as one that may come again: it brings all bits of its coefficients, instead of the last bit.
    scan = bytearray(data[data.rindex(b"\xff\xda") : -2])
    assert scan[9] == 0x10
    scan[9] = 0
    whole = transform([])

    assert not whole.run(data[:-2] + scan * 100 + data[-2:], CODE, **KEY, sample=0).any()
    with pytest.raises(CorruptImage, match="scans"):
        whole.run(data[:-2] + scan * 3000 + data[-2:], CODE, **KEY, sample=0)
