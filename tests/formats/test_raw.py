# SPDX-License-Identifier: Apache-2.0
"""Raw: the layout that its module describes, byte by byte."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from tests.formats.pictures import picture

from headrace import formats
from headrace._core import crc32c
from headrace.errors import CorruptImage, UnsupportedImage

RAW = formats.get("raw")


def test_the_layout_is_as_described():
    """A head, sums of bands of 32 rows, padding, and the pixels at a multiple of 64."""
    image = picture("uint16", 3, 45, 37)
    data = RAW.encode(image)

    assert data[:16] == struct.pack("<4sBBBBII", b"\x89HRR", 0, 1, 3, 0, 45, 37)
    assert data[28:64] == bytes(36)
    assert data[64:] == image.astype("<u2").tobytes()


def test_every_flipped_bit_is_found():
    """In the head, the padding and the pixels."""
    data = RAW.encode(picture(height=35, width=3))
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptImage):
                RAW.decode(damaged)


def test_every_truncation_and_extension_is_found():
    """The length is exact."""
    data = RAW.encode(picture(height=35, width=3))
    for length in range(len(data)):
        with pytest.raises(CorruptImage):
            RAW.decode(data[:length])
    with pytest.raises(CorruptImage):
        RAW.decode(data + b"\0")


def test_a_region_reads_the_bands_that_it_touches():
    """Damage elsewhere is not its business, damage beside it is."""
    image = picture(height=100)
    damaged = bytearray(RAW.encode(image))
    damaged[-1] ^= 1

    assert np.array_equal(RAW.decode(damaged, region=(0, 0, 96, 37)), image[:96])
    with pytest.raises(CorruptImage, match="rows from 96"):
        RAW.decode(damaged, region=(96, 0, 1, 1))


def test_another_version_is_unsupported():
    """With an honest checksum."""
    data = bytearray(RAW.encode(picture(height=1, width=1)))
    data[4] = 1
    data[20:24] = struct.pack("<I", crc32c(bytes(data[:20]), 0))
    with pytest.raises(UnsupportedImage, match="version 1"):
        RAW.decode(data)


def test_cmyk_is_refused():
    """There is no metadata to say it in."""
    with pytest.raises(UnsupportedImage, match="CMYK"):
        RAW.encode(picture(channels=4), metadata={"color": b"CMYK"})
