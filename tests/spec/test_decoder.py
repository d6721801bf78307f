# SPDX-License-Identifier: Apache-2.0
"""The oracle against files assembled by hand from the spec's words, without the writer's help."""

from __future__ import annotations

import struct

import decoder
import numpy as np
import pytest


def assemble(width, height, tile, *, channels=1, depth=8, flags=0, ranks=b""):
    """A file of one tile, spelled out."""
    fixed = b"\x89HRI" + bytes([0x81, flags, depth, channels]) + struct.pack("<HH", width, height)
    head = fixed + bytes([5, 0, 0, 0]) + struct.pack("<II", 0, len(ranks)) + ranks
    head += struct.pack("<II", len(tile), decoder.crc32c(tile))
    return head + struct.pack("<I", decoder.crc32c(head)) + tile


def test_checksum_is_crc32c():
    """The check value of the Castagnoli polynomial."""
    assert decoder.crc32c(b"123456789") == 0xE3069283


def test_constant():
    image = decoder.decode(assemble(2, 1, bytes.fromhex("00 2a 2b"), channels=2))

    assert image.tolist() == [[[42, 43], [42, 43]]]


def test_raw_16_bits_interleaved_and_little_endian():
    tile = bytes.fromhex("01 0100 0200 0300 ff00 00ff 3412")
    image = decoder.decode(assemble(2, 1, tile, channels=3, depth=16))

    assert image.tolist() == [[[1, 2, 3], [255, 0xFF00, 0x1234]]]


def test_packed():
    """One group of 2 bits: the number of its width is zigzag(2 - 4) = 3; residuals 1, 0, … 0, -1."""
    tile = bytes.fromhex("03 00 00 0100 08 01 00 00 c0")
    expected = np.full((4, 4), 129, np.uint8)
    expected[3, 3] = 128

    assert np.array_equal(decoder.decode(assemble(4, 4, tile)), expected)


def test_coded():
    """One block of class 2: its number is zigzag(2 - 8) = 11; then the numbers 2, 0, … 0 and no extra bits."""
    tile = bytes.fromhex("04 00 00 0200 0900 0008 fc ffffffffffffff 03")

    assert np.array_equal(decoder.decode(assemble(8, 8, tile, flags=1)), np.full((8, 8), 129, np.uint8))


def test_coded_pairs():
    """One block of class 1: zigzag(1 - 8) = 13; the pair 3 with x = 1, then zeros: residuals 1 -> -1 and 2 -> 1."""
    tile = bytes.fromhex("04 00 00 0200 0500 0020 f8 ffffff 07 01")
    image = decoder.decode(assemble(8, 8, tile, flags=1))

    assert image[0, :3].tolist() == [127, 128, 128]


def test_coded_escape():
    """A 16-bit block of class 2: the numbers 12, 1, 0, … 0 and one escape, z = 1000 -> 500; then z = 1 -> -1."""
    tile = bytes.fromhex("04 00 00 0200 0a00 0100 0008 00d0 ffffffffffffff 1f e803")
    image = decoder.decode(assemble(8, 8, tile, depth=16, flags=1))

    assert image[0, :3].tolist() == [33268, 33267, 33267]


def test_palette():
    """Two colours, exceptions in columns 2 and 4."""
    tile = bytes.fromhex("02 02 05 09 01 01 14 01")

    assert decoder.decode(assemble(8, 1, tile)).tolist() == [[5, 5, 9, 9, 5, 5, 5, 5]]


@pytest.mark.parametrize("section", ["00 03000000 0500 6400 e803", "01 0500 01" + "00" * 10 + "80" + "00" * 112 + "08"])
def test_ranks(section):
    """Ranks by list and by bitmap; a rank beyond the last is the last."""
    tile = bytes.fromhex("01 00 01 02 ff")
    data = assemble(4, 1, tile, depth=16, ranks=bytes.fromhex(section))

    assert decoder.decode(data).tolist() == [[5, 100, 1000, 1000]]


def test_signed_samples_are_carried_with_an_offset():
    image = decoder.decode(assemble(2, 1, bytes.fromhex("01 0000 ffff"), depth=16, flags=2))

    assert image.dtype == np.int16
    assert image.tolist() == [[-32768, 32767]]


@pytest.mark.parametrize(
    "region", [(0, 0, 0, 1), (0, 0, 1, 0), (-1, 0, 1, 1), (0, -1, 1, 1), (0, 0, 2, 1), (0, 1, 1, 2)]
)
def test_region_outside_of_the_image(region):
    data = assemble(2, 1, bytes.fromhex("00 2a"))

    with pytest.raises(ValueError, match="region"):
        decoder.decode(data, region)


def test_inspect():
    found = decoder.inspect(assemble(2, 1, bytes.fromhex("00 2a2a"), depth=16, flags=3))

    assert (found["width"], found["height"], found["channels"], found["dtype"]) == (2, 1, 1, "int16")
    assert (found["mode"], found["n"], found["tile_width"], found["bytes"]) == ("dense", 16, 32, 39)


def test_every_truncation_and_every_flipped_bit_is_corrupt():
    """No single bit passes for another version, either."""
    data = assemble(8, 8, bytes.fromhex("04 00 00 0200 0900 0008 fc ffffffffffffff 03"), flags=1)
    damaged = [data[:size] for size in range(len(data))]
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    for piece in damaged:
        with pytest.raises(decoder.CorruptImage):
            decoder.decode(piece)
