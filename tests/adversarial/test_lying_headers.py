# SPDX-License-Identifier: Apache-2.0
"""A header that says what cannot be, with checksums that match, raises `CorruptImage` or `UnsupportedImage`."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from tests.adversarial.specimens import SPECIMENS
from tests.codec.implementations import Implementation, decoder, writer

from headrace.errors import CorruptImage, UnsupportedImage

FIELDS = writer.Fields(16, 8, 1, 8, "fast")
PIXELS = [[[7 * y + x for x in range(16)] for y in range(8)]]
RAW = writer.raw(PIXELS, 8)  # 129 bytes, the longest that the tile may be


def sound(**fields: Any) -> bytes:
    data: bytes = writer.build(replace(FIELDS, **fields), [RAW])
    return data


def with_metadata(*entries: tuple[bytes, bytes]) -> bytes:
    data: bytes = writer.build(FIELDS, [RAW], writer.pack_metadata(entries))
    return data


def with_section(metadata: bytes = b"", ranks: bytes = b"", tile: bytes = RAW, **fields: Any) -> bytes:
    data: bytes = writer.build(replace(FIELDS, **fields), [tile], metadata, ranks)
    return data


def with_index(lengths: list[int], sums: list[int] | None = None, body: bytes = RAW) -> bytes:
    """One tile of `body`, whatever the index says of it."""
    head = FIELDS.pack(0, 0) + struct.pack(f"<{len(lengths)}I", *lengths)
    head += struct.pack("<I", decoder.crc32c(body)) if sums is None else struct.pack(f"<{len(sums)}I", *sums)
    sealed: bytes = head + struct.pack("<I", decoder.crc32c(head)) + body
    return sealed


def ranks16(section: bytes) -> bytes:
    """An image of 16 bits whose ranks are `section`, and whose one tile is right if there are up to 256 of them."""
    return with_section(ranks=section, tile=writer.constant([1], 8), depth=16)


LIES: dict[str, bytes] = {
    "another magic": sound(magic=b"\x89PNG"),
    "an unknown flag": sound(flags=4),
    "the highest flag": sound(flags=128),
    "signed samples of 8 bits": sound(signed=True),
    **{f"a depth of {depth}": sound(depth=depth) for depth in (0, 1, 7, 9, 12, 15, 17, 24, 32, 255)},
    **{f"{channels} channels": sound(channels=channels) for channels in (0, 2, 65, 255)},
    "no width": sound(width=0),
    "no height": sound(height=0),
    "a smaller width": sound(width=15),
    "a larger width than its tiles": sound(width=257),
    "a smaller height": sound(height=7),
    "a larger height than its tiles": sound(height=33),
    **{f"tiles of 2 to the {log2}": sound(log2_tile_width=log2) for log2 in (0, 4, 10, 16, 32, 63, 64, 255)},
    **{f"reserved bytes {bytes_!r}": sound(reserved=bytes_) for bytes_ in (b"\1\0\0", b"\0\1\0", b"\0\0\x80")},
    "an empty key": with_section(b"\0" + struct.pack("<I", 0)),
    "equal keys": with_metadata((b"a", b"1"), (b"a", b"2")),
    "descending keys": with_metadata((b"b", b"1"), (b"a", b"2")),
    "a key that begins like the one before": with_metadata((b"ab", b"1"), (b"a", b"2")),
    "a key that is not UTF-8": with_metadata((b"\xff\xfe", b"1")),
    "a key cut short": with_section(b"\5ab"),
    "a value without its length": with_section(b"\1a\0\0"),
    "a value cut short": with_section(b"\1a" + struct.pack("<I", 3) + b"xy"),
    "a value of four gigabytes": with_section(b"\1a" + struct.pack("<I", 0xFFFFFFFF)),
    "bytes after the metadata": with_section(b"\1a" + struct.pack("<I", 1) + b"xy"),
    "ranks of an unknown form": ranks16(b"\2\0\0\7"),
    "an empty list of ranks": ranks16(writer.rank_list([], 16)),
    "a single rank": ranks16(writer.rank_list([5], 16)),
    "a single rank in a bitmap": ranks16(writer.rank_bitmap([5])),
    "ranks that descend": ranks16(writer.rank_list([5, 4], 16)),
    "ranks that repeat": ranks16(writer.rank_list([5, 5], 16)),
    "a list longer than its count": ranks16(writer.rank_list([1, 2, 3], 16).replace(b"\3", b"\2", 1)),
    "a list shorter than its count": ranks16(writer.rank_list([1, 2, 3], 16).replace(b"\3", b"\4", 1)),
    "a count of four billions": ranks16(b"\0\xff\xff\xff\xff\1\0\2\0"),
    "more ranks than levels": with_section(
        ranks=b"\0" + struct.pack("<I", 257) + bytes(range(256)) + b"\xff", tile=writer.constant([1], 8)
    ),
    "a list of no more than its form": ranks16(b"\0"),
    "a bitmap of no more than its form": ranks16(b"\1"),
    "a bitmap without bits": ranks16(b"\1\0\0"),
    "a bitmap whose first bit is not set": ranks16(b"\1\0\0\6"),
    "a bitmap that ends with a zero byte": ranks16(b"\1\0\0\7\0"),
    "a bitmap beyond 16 bits": ranks16(b"\1" + struct.pack("<H", 65530) + b"\x41"),
    "a bitmap beyond 8 bits": with_section(ranks=b"\1\xfe\0\5", tile=writer.constant([1], 8)),
    "a tile of no bytes": with_index([0], [0], b""),
    "a tile of one byte": with_index([1], body=b"\0"),
    "a tile longer than raw": with_index([130], body=RAW + b"\0"),
    "a tile longer than the file": with_index([130]),
    "a tile of four gigabytes": with_index([0xFFFFFFFF]),
    "a tile shorter than the file": with_index([128]),
    "more tiles than the image has": with_index([64, 65], [decoder.crc32c(RAW[:64]), decoder.crc32c(RAW[64:])]),
    "the sum of another tile": with_index([129], [decoder.crc32c(RAW) ^ 1]),
    "a packed tile in mode dense": writer.patch(SPECIMENS["packed 8"], 5, b"\1"),
    "a coded tile in mode fast": writer.patch(SPECIMENS["coded 8"], 5, b"\0"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_found_out(implementation: Implementation, lie: str) -> None:
    with pytest.raises(CorruptImage):
        implementation.decode(LIES[lie])


def test_the_truth_is_accepted(implementation: Implementation) -> None:
    """What the lies were made from is sound: each is refused for itself."""
    for data in (sound(), with_section(), with_metadata((b"a", b"1"), (b"ab", b"2")), with_index([129])):
        assert implementation.decode(data).tolist() == PIXELS[0]
    for ranks in (writer.rank_list([1, 2], 16), writer.rank_bitmap([1, 2]), b"\1" + struct.pack("<H", 65530) + b"\x21"):
        assert implementation.decode(ranks16(ranks)).shape == (8, 16)


@pytest.mark.parametrize("kind", range(5, 256, 10))
def test_unknown_kinds_of_tile(implementation: Implementation, kind: int) -> None:
    with pytest.raises(CorruptImage):
        implementation.decode(with_index([129], body=bytes([kind]) + RAW[1:]))


@pytest.mark.parametrize("name", SPECIMENS)
def test_a_tile_is_consumed_to_its_last_byte(implementation: Implementation, name: str) -> None:
    """One byte more, or less, in the last tile of a file whose index and sums agree with it."""
    data = SPECIMENS[name]
    start, n_tiles = writer.index_offset(data)
    at = start + 4 * (n_tiles - 1)
    (length,) = struct.unpack_from("<I", data, at)
    for body, n_bytes in ((data + b"\0", length + 1), (data + b"\xff", length + 1), (data[:-1], length - 1)):
        with pytest.raises(CorruptImage):
            implementation.decode(writer.patch(body, at, struct.pack("<I", n_bytes)))


@pytest.mark.parametrize("version", [3, 5, 255])
def test_a_later_version_is_unsupported_and_not_corrupt(implementation: Implementation, version: int) -> None:
    """The remedy differs: a newer Headrace, not another copy of the file."""
    with pytest.raises(UnsupportedImage):
        implementation.decode(sound(version=version))
