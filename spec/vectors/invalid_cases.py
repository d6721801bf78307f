# SPDX-License-Identifier: Apache-2.0
"""The invalid vectors: each violates one rule of the spec and, unless the rule is a checksum, has valid checksums.

A case is a name, a file, the kind of error, why it is an error, and a piece of what the oracle says of it: so that a
vector cannot pass for a reason other than its own.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import decoder
import writer

if TYPE_CHECKING:
    from collections.abc import Iterator


class Case(NamedTuple):
    name: str
    data: bytes
    why: str
    says: str
    error: str = "CorruptImage"


RAMP = [[x + y for x in range(16)] for y in range(16)]
FLAT = [[128] * 64 for _ in range(32)]
SMALL = writer.Fields(16, 16, mode="fast")


def cases() -> Iterator[Case]:
    yield from fixed_header()
    yield from lengths()
    yield from checksums()
    yield from metadata()
    yield from ranks()
    yield from kinds()
    yield from colours_and_predictors()
    yield from packed()
    yield from coded()
    yield from escapes()
    yield from palettes()


def small(fields: writer.Fields = SMALL, tile: bytes | None = None, metadata: bytes = b"", ranks: bytes = b"") -> bytes:
    """A file of one tile, by default of a small ramp."""
    return writer.build(fields, [writer.raw([RAMP], 8) if tile is None else tile], metadata, ranks)


def fixed_header() -> Iterator[Case]:
    yield Case("magic", small(replace(SMALL, magic=b"\x89HRJ")), "another magic", "magic")
    damaged = small(replace(SMALL, version=1))
    yield Case("version-parity", damaged, "version byte with an odd number of one bits", "odd parity")
    other = small(replace(SMALL, version=0))
    yield Case("version-0", other, "the draft before version 1", "version 0", "UnsupportedImage")
    other = small(replace(SMALL, version=0x7F | 0x80))
    yield Case("version-127", other, "a version that is not known", "version 127", "UnsupportedImage")
    for bit in range(2, 8):
        yield Case(f"flags-bit-{bit}", small(replace(SMALL, flags=1 << bit)), "an unknown flag", "flags")
    yield Case("signed-8", small(replace(SMALL, signed=True)), "signed samples of 8 bits", "signed")
    for depth in (0, 12, 32):
        yield Case(f"depth-{depth}", small(replace(SMALL, depth=depth)), "depth is neither 8 nor 16", "depth")
    for channels in (0, 65, 255):
        fields = replace(SMALL, channels=channels)
        yield Case(f"channels-{channels}", small(fields), "channels are not 1 to 64", "channels")
    for name, fields in (("width", replace(SMALL, width=0)), ("height", replace(SMALL, height=0))):
        yield Case(f"{name}-0", small(fields), "an image without pixels", "pixels")
    for log2 in (0, 4, 9, 10, 255):
        fields = replace(SMALL, log2_tile_width=log2)
        yield Case(f"tile-width-{log2}", small(fields), "log2 of the tile width is not 5 to 8", "tile_width")
    for i in range(3):
        reserved = bytes([i == 0, i == 1, i == 2])
        yield Case(f"reserved-{i}", small(replace(SMALL, reserved=reserved)), "a reserved byte is not 0", "reserved")


def lengths() -> Iterator[Case]:
    data = small()
    index, _ = writer.index_offset(data)
    yield Case("empty", b"", "an empty file", "fixed header")
    for size in (4, 23, 24, 35, len(data) - 1):
        yield Case(f"truncated-{size}", data[:size], "the file is cut short", "")
    yield Case("trailing-byte", data + b"\0", "a byte after the last tile", "add up")
    claim = writer.Fields(width=65535, height=65535, channels=64, depth=16, log2_tile_width=5)
    huge = claim.pack(metadata_bytes=0, ranks_bytes=0).ljust(100, b"\0")
    yield Case("huge-claim", huge, "100 bytes that claim 65535 x 65535 pixels", "shorter than its header")
    for name, offset in (("metadata", 16), ("ranks", 20)):
        for claim in (1, len(data), 0xFFFFFFFF):
            lie = data[:offset] + struct.pack("<I", claim) + data[offset + 4 :]
            yield Case(f"{name}-bytes-{claim:x}", lie, f"more bytes of {name} than there are", "")
    both = data[:16] + b"\xff" * 8 + data[24:]
    yield Case("sections-overflow", both, "sizes whose sum exceeds 32 bits", "shorter than its header")
    short, long = struct.pack("<I", 256), struct.pack("<I", 258)
    yield Case("tile-length-short", writer.patch(data, index, short), "tile lengths leave a byte over", "add up")
    yield Case("tile-length-long", writer.patch(data, index, long), "tile lengths exceed the file", "add up")
    yield Case("tile-of-1-byte", small(tile=b"\0"), "a tile of one byte", "1 bytes")
    yield Case("tile-of-0-bytes", small(tile=b""), "a tile of no bytes", "0 bytes")
    over = writer.raw([RAMP], 8) + b"\0"
    yield Case("tile-over-raw", small(tile=over), "a tile longer than a raw one", "258 bytes")
    fields = replace(SMALL, depth=16)
    ranked = small(fields, writer.raw([RAMP], 16), ranks=writer.rank_list([3, 5], 16))
    yield Case("tile-over-raw-ranks", ranked, "a tile longer than a raw one of coded values of 8 bits", "513 bytes")
    two = replace(SMALL, width=33, height=1, log2_tile_width=5)
    good = writer.build(two, [writer.constant([1], 8)] * 2)
    wrap = writer.patch(good, 24, struct.pack("<II", 0xFFFFFFFF, 5))
    yield Case("tile-lengths-overflow", wrap, "tile lengths that add up modulo 2^32 only", "add up")


def checksums() -> Iterator[Case]:
    data = small(metadata=writer.pack_metadata([(b"key", b"value")]))
    index, _ = writer.index_offset(data)
    for name, offset in (("metadata", index - 1), ("tile-sum", index + 4), ("header-sum", index + 8)):
        yield Case(f"damage-{name}", flip(data, offset), "a flipped bit in the header", "header sum")
    yield Case("damage-tile-first", flip(data, index + 12), "a flipped bit in a tile", "tile sum")
    yield Case("damage-tile-last", flip(data, len(data) - 1), "a flipped bit in a tile", "tile sum")
    head = flip(data, index + 4)[: index + 8]
    resealed = head + struct.pack("<I", decoder.crc32c(head)) + data[index + 12 :]
    yield Case("tile-sum-wrong", resealed, "a wrong tile sum under a right header sum", "tile sum")


def flip(data: bytes, offset: int) -> bytes:
    return data[:offset] + bytes([data[offset] ^ 16]) + data[offset + 1 :]


def metadata() -> Iterator[Case]:
    entry = writer.pack_metadata
    sections = {
        "key-empty": (entry([(b"", b"x")]), "a key without bytes", "empty"),
        "keys-descend": (entry([(b"b", b""), (b"a", b"")]), "keys are not ascending", "not above"),
        "keys-equal": (entry([(b"a", b""), (b"a", b"")]), "a key comes twice", "not above"),
        "keys-prefix": (entry([(b"ab", b""), (b"a", b"")]), "a key before its own prefix", "not above"),
        "key-not-utf8": (entry([(b"\xff", b"")]), "a key that is not UTF-8", "UTF-8"),
        "key-surrogate": (entry([(b"\xed\xa0\x80", b"")]), "a key with a surrogate", "UTF-8"),
        "key-overlong": (entry([(b"\xc0\xaf", b"")]), "a key with an overlong form", "UTF-8"),
        "key-overlong-3": (entry([(b"\xe0\x9f\xbf", b"")]), "a key with an overlong form of 3 bytes", "UTF-8"),
        "key-overlong-4": (entry([(b"\xf0\x8f\xbf\xbf", b"")]), "a key with an overlong form of 4 bytes", "UTF-8"),
        "key-beyond": (entry([(b"\xf4\x90\x80\x80", b"")]), "a key with a code point above U+10FFFF", "UTF-8"),
        "key-5-bytes": (entry([(b"\xf8\x88\x80\x80\x80", b"")]), "a key with a form of 5 bytes", "UTF-8"),
        "key-stray": (entry([(b"a\x80", b"")]), "a key with a stray continuation byte", "UTF-8"),
        "key-unfinished": (entry([(b"a\xe2\x82", b"\xac")]), "a key that ends within a character", "UTF-8"),
        "key-cut": (b"\x09abc", "a key beyond the section", "metadata key"),
        "value-cut": (entry([(b"a", b"xyz")])[:-1], "a value beyond the section", "metadata value"),
        "value-size-cut": (b"\x01a\0\0\0", "no size of a value", "bytes of a metadata value"),
        "value-lies": (b"\x01a\xff\xff\xff\xff", "a value of 4 GB", "metadata value"),
        "tail": (entry([(b"a", b"x")]) + b"\0", "a byte after the last entry", "empty"),
    }
    for name, (section, why, says) in sections.items():
        yield Case(f"metadata-{name}", small(metadata=section), why, says)


def ranks() -> Iterator[Case]:
    good, bitmap = writer.rank_list([1, 2, 9], 8), writer.rank_bitmap([1, 2, 9])
    sections = {
        "form-2": (b"\2" + good[1:], "an unknown form", "form 2"),
        "list-no-count": (b"\0\2\0", "a list without its count", "count of ranks"),
        "list-0": (writer.rank_list([], 8), "no value", "count of 0"),
        "list-1": (writer.rank_list([7], 8), "one value", "count of 1"),
        "list-descends": (writer.rank_list([1, 9, 2], 8), "values are not ascending", "ascending"),
        "list-repeats": (writer.rank_list([1, 2, 2], 8), "a value comes twice", "ascending"),
        "list-short": (good[:-1], "fewer values than the count", "ranks"),
        "list-long": (good + b"\x20", "more values than the count", "too many"),
        "list-lies": (b"\0\xff\xff\xff\xff" + good[5:], "a count of 2^32 - 1", "bytes claimed"),
        "list-257-of-8-bits": (writer.rank_list([*range(256), 255], 8), "more values than levels", "ascending"),
        "bitmap-no-first": (b"\1\0", "a bitmap without its first value", "first rank"),
        "bitmap-empty": (b"\1\0\0", "a bitmap without bits", "begin"),
        "bitmap-bit-0": (b"\1\0\0\x06", "bit 0 is not set", "begin"),
        "bitmap-zero-end": (bitmap + b"\0", "the last byte is zero", "zero byte"),
        "bitmap-1": (b"\1\5\0\1", "one value", "count of 1"),
        "bitmap-over-8-bits": (b"\1\xff\0\3", "a value of 256 with depth 8", "exceeds 8 bits"),
        "bitmap-far-over": (b"\1\xff\xff\3", "a first value of 65535 with depth 8", "exceeds 8 bits"),
    }
    for name, (section, why, says) in sections.items():
        yield Case(f"ranks-{name}", small(ranks=section), why, says)
    deep = replace(SMALL, depth=16)
    over = small(deep, writer.raw([RAMP], 16), ranks=b"\1\xff\xff\3")
    yield Case("ranks-bitmap-over-16-bits", over, "a value of 65536 with depth 16", "exceeds 16 bits")
    odd = small(deep, writer.raw([RAMP], 16), ranks=writer.rank_list([1, 2], 16)[:-1])
    yield Case("ranks-list-half-a-value", odd, "a list that ends within a value", "ranks")


def kinds() -> Iterator[Case]:
    for kind in (5, 128, 255):
        yield Case(f"kind-{kind}", small(tile=bytes([kind, 0])), "an unknown kind", f"kind {kind}")
    dense = replace(SMALL, mode="dense")
    tile = writer.coded_of([RAMP], 8).pack()
    yield Case("kind-4-in-fast", small(tile=tile), "a coded tile in mode fast", "kind 4")
    tile = writer.packed_of([RAMP], 8).pack()
    yield Case("kind-3-in-dense", small(dense, tile), "a packed tile in mode dense", "kind 3")
    yield Case("constant-long", small(tile=b"\0\5\5"), "a constant tile with a byte too many", "too many")
    rgb = small(replace(SMALL, channels=3), b"\0\5\5")
    yield Case("constant-short", rgb, "a constant tile that lacks a channel", "constant")
    yield Case("raw-short", small(tile=writer.raw([RAMP], 8)[:-1]), "a raw tile that lacks a sample", "raw samples")


def colours_and_predictors() -> Iterator[Case]:
    for mode in ("fast", "dense"):
        code_cases = [
            ("gray", [1], "a colour code of the only channel"),
            ("unused", [0, 0, 0, 1], "unused colour bits are not 0"),
            ("first", [0, 1, 0], "a colour code of the first channel coded"),
            ("channel-0", [2, 0, 0], "code 2 of channel 0"),
            ("code-3", [0, 0, 3], "code 3"),
        ]
        for name, codes, why in code_cases:
            channels = [FLAT] * (1 if name == "gray" else 3)
            yield Case(f"colour-{name}-{mode}", flat(mode, channels, codes=codes), why, "colour")
    unknown, unused = "an unknown predictor", "unused predictor bits are not 0"
    yield Case("predictor-3-fast", flat("fast", [FLAT], predictors=[3]), unknown, "predictor id 3")
    yield Case("predictor-15-fast", flat("fast", [FLAT], predictors=[15]), unknown, "predictor id 15")
    yield Case("predictor-unused-fast", flat("fast", [FLAT], predictors=[0, 1]), unused, "unused predictor")
    yield Case("predictor-5-dense", flat("dense", [FLAT], predictors=[[0, 5]]), unknown, "predictor id 5")
    yield Case("predictor-15-dense", flat("dense", [FLAT], predictors=[[15, 0]]), unknown, "predictor id 15")
    narrow = [row[:32] for row in FLAT]
    yield Case("predictor-unused-dense", flat("dense", [narrow], predictors=[[0, 1]]), unused, "unused predictor")


def flat(mode: str, channels: list[writer.Plane], **changes: object) -> bytes:
    """A file of one packed or coded tile, some of its parts changed after it was made."""
    tile: writer.Packed | writer.Coded
    tile = writer.packed_of(channels, 8) if mode == "fast" else writer.coded_of(channels, 8)
    fields = writer.Fields(len(channels[0][0]), 32, len(channels), 8, mode, log2_tile_width=6)
    return small(fields, replace(tile, **changes).pack())  # type: ignore[arg-type]


def packed() -> Iterator[Case]:
    for n in (8, 16):
        fields = writer.Fields(64, 32, 1, n, "fast", log2_tile_width=6)
        tile = writer.packed_of([FLAT], n)
        tile.widths[0][100] = n + 1
        yield Case(f"width-over-{n}", small(fields, tile.pack()), f"a width of {n + 1} bits", f"width of {n + 1}")
        section = writer.pack_unary([7] + [0] * 99 + [1] + [0] * 27)
        below = replace(tile, section=section)
        yield Case(f"width-below-0-{n}", small(fields, below.pack()), "a width of -1 bits", "width of 255")
    fields = writer.Fields(64, 32, 1, 8, "fast", log2_tile_width=6)
    good = writer.packed_of([FLAT], 8)
    good.widths[0][0] = 3
    data = good.pack()
    yield Case("groups-short", small(fields, data[:-1]), "the last group is cut short", "groups")
    yield Case("groups-long", small(fields, data + b"\0"), "a byte after the last group", "too many")
    yield Case("packed-no-predictor", small(fields, data[:2]), "the tile ends before its predictors", "predictors")
    yield Case("packed-no-size", small(fields, data[:4]), "the tile ends within a size", "bytes of the widths")
    yield from unary_cases("widths", fields, good, [3, 6] + [0] * 126)


def unary_cases(
    name: str, fields: writer.Fields, tile: writer.Packed | writer.Coded, numbers: list[int]
) -> Iterator[Case]:
    """The ways in which a unary section of widths or classes can be wrong."""
    section = writer.pack_unary(numbers)
    sections = {
        "few": (writer.pack_unary(numbers[:-1]), "a number too few", f"{len(numbers) - 1} numbers"),
        "many": (writer.pack_unary([*numbers, 0]), "a number too many", f"{len(numbers) + 1} numbers"),
        "zero-end": (section + b"\0", "a zero byte at the end", "zero byte"),
        "missing": (b"", "no section at all", "0 numbers"),
    }
    for flaw, (changed, why, says) in sections.items():
        yield Case(f"{name}-{flaw}", small(fields, replace(tile, section=changed).pack()), f"{name}: {why}", says)
    data = tile.pack()
    lie = data[:3] + b"\xff\xff" + data[5:]
    yield Case(f"{name}-size-lies", small(fields, lie), f"{name}: more bytes than the tile has", name)


def coded() -> Iterator[Case]:
    for n in (8, 16):
        fields = writer.Fields(64, 32, 1, n, "dense", log2_tile_width=6)
        tile = writer.coded_of([FLAT], n)
        count = len(writer.class_table(n))
        over = replace(tile, classes=[[0] * 31 + [count]])
        yield Case(f"class-over-{n}", small(fields, over.pack()), "a class beyond the table", f"class {count}")
        section = writer.pack_unary([15] + [0] * 30 + [1])
        below = replace(tile, section=section)
        yield Case(f"class-below-0-{n}", small(fields, below.pack()), "class -1", "class 255")
    fields = writer.Fields(64, 32, 1, 8, "dense", log2_tile_width=6)
    empty = writer.coded_of([FLAT], 8)
    junk = replace(empty, numbers=[[0] * 8])
    yield Case("unary-needless", small(fields, junk.pack()), "a unary section of no numbers has bytes", "8 numbers")
    zero = empty.pack()
    zero = zero[:5] + b"\1\0" + zero[7:] + b"\0"
    yield Case("unary-needless-zero", small(fields, zero), "a unary section of no numbers has a zero byte", "zero byte")

    half = next(i for i, c in enumerate(writer.class_table(8)) if c == (1, "half"))
    good = writer.coded_of([FLAT], 8, choose=lambda _, block: half if block == 0 else 0)
    numbers = good.numbers[0]
    for name, changed, why in (
        ("few", numbers[:-1], "a number too few"),
        ("many", [*numbers, 0], "a number too many"),
    ):
        data = small(fields, replace(good, numbers=[changed]).pack())
        yield Case(f"unary-{name}", data, f"a plane's unary section: {why}", f"{len(changed)} numbers")
    packed_tile = good.pack()
    yield Case(
        "unary-size-lies",
        small(fields, packed_tile[:5] + b"\xff\xff" + packed_tile[7:]),
        "more bytes than left",
        "unary section",
    )
    yield Case("extra-short", small(fields, packed_tile[:-1]), "the extra bits are cut short", "extra bits end early")
    yield Case("extra-long", small(fields, packed_tile + b"\0"), "a byte after the extra bits", "too many")
    unused = replace(good, numbers=[[1, *numbers[1:]]], extra=[*good.extra[1:], (1, 1)])
    yield Case("extra-unused", small(fields, unused.pack()), "unused extra bits are not 0", "unused bits")
    raw = packed_tile[: 7 + len(writer.pack_unary([1] + [0] * 31)) + 3]
    yield Case("raw-bits-short", small(fields, raw), "the tile ends within the raw bits", "raw bits")
    yield Case("coded-no-sizes", small(fields, packed_tile[:6]), "the tile ends within a size", "bytes of the unary")
    yield from unary_cases("classes", fields, empty, [15] + [0] * 31)


def escapes() -> Iterator[Case]:
    """A tile whose first block has two escapes, and what can be wrong with them."""
    fields = writer.Fields(64, 32, 1, 16, "dense", log2_tile_width=6)
    middle = [[32768] * 64 for _ in range(32)]
    plain = writer.coded_of([middle], 16, choose=lambda _, block: 2 if block == 0 else 0)
    good = replace(plain, numbers=[[12, *[0] * 62, 13]], escapes=[500, 70])
    pairs = writer.coded_of([middle], 16, choose=lambda _, block: int(block == 0))
    flaws = {
        "few": (replace(good, n_escapes=1), "the number says one less than there are", "escapes: 2 bytes claimed"),
        "missing": (replace(good, escapes=[]), "escaped numbers without escapes", "escapes: 2 bytes claimed"),
        "many": (replace(good, escapes=[500, 70, 9]), "an escape too many", "escapes: 2 bytes too many"),
        "needless": (replace(plain, escapes=[9]), "an escape of no number", "escapes: 2 bytes too many"),
        "lies": (replace(good, n_escapes=65535), "more escapes than the tile has bytes", "escapes: 131070 bytes"),
        "of-11": (replace(good, numbers=[[12, *[0] * 62, 11]]), "an escape of the number 11", "too many"),
        "of-256": (replace(good, numbers=[[12, *[0] * 62, 256]]), "an escape of 256, which is 0", "too many"),
        "of-pairs": (
            replace(pairs, numbers=[[12] + [0] * 31], extra=[(0, 4)], escapes=[9]),
            "an escape of the number 12 of a pair",
            "too many",
        ),
    }
    for name, (tile, why, says) in flaws.items():
        yield Case(f"escapes-{name}", small(fields, tile.pack()), why, says)
    data = good.pack()
    yield Case("escapes-cut", small(fields, data[:-1]), "the escapes are cut short", "escapes: 4 bytes claimed")
    yield Case("escapes-no-number", small(fields, data[:8]), "the tile ends within their number", "number of escapes")


def palettes() -> Iterator[Case]:
    fields = writer.Fields(35, 11, 1, 8, "fast", log2_tile_width=6)
    spots = [[9 if (y, x) in ((0, 3), (9, 20), (10, 34)) else 5 for x in range(35)] for y in range(11)]
    good = writer.palette_of([spots], 8, [[200]])
    tile = good.pack()
    for count in (0, 1):
        changed = tile[:1] + bytes([count]) + tile[2:]
        yield Case(f"palette-{count}", small(fields, changed), "a palette of fewer than 2 colours", "a palette of")
    flaws: dict[str, tuple[writer.Palette, str, str]] = {
        "descends": (replace(good, colours=[[5], [200], [9]]), "colours are not ascending", "ascending"),
        "repeats": (replace(good, colours=[[5], [9], [9]]), "a colour comes twice", "ascending"),
        "unused-flags": (replace(good, blocks=[*good.blocks, 1]), "unused flags are not 0", "unused flags"),
        "empty-block": (replace(good, rows=[0, *good.rows[1:]]), "a flagged block without rows", "no row"),
        "empty-row": (replace(good, samples=[0, *good.samples[1:]]), "a flagged row without samples", "no exception"),
        "number-over": (replace(good, numbers=[3, *good.numbers[1:]]), "a colour number of 3 of 3", "below the count"),
        "outside-right": (replace(good, samples=[*good.samples[:-1], 8]), "an exception right of the tile", "outside"),
        "outside-below": (replace(good, rows=[*good.rows[:-1], 8]), "an exception below the tile", "outside"),
    }
    for name, (palette, why, says) in flaws.items():
        yield Case(f"palette-{name}", small(fields, palette.pack()), why, says)
    assert 2 * len(good.numbers) % 8 != 0, "no unused bits to set"
    yield Case(
        "palette-unused", small(fields, tile[:-1] + bytes([tile[-1] | 128])), "unused bits are not 0", "unused bits"
    )
    yield Case("palette-short", small(fields, tile[:-1]), "the colour numbers are cut short", "end early")
    yield Case("palette-long", small(fields, tile + b"\0"), "a byte after the colour numbers", "too many")
    yield Case("palette-no-colours", small(fields, tile[:4]), "the tile ends within its colours", "colours")
    yield Case(
        "palette-no-flags", small(fields, tile[:6]), "the tile ends within the flags of blocks", "flags of blocks"
    )
    yield Case("palette-no-rows", small(fields, tile[:8]), "the tile ends within the flags of rows", "flags of rows")
    rows = 7 + len(good.rows) + 1
    yield Case("palette-no-samples", small(fields, tile[:rows]), "the tile ends within flags of samples", "of samples")
    deep = replace(fields, depth=16)
    swapped = writer.Palette(16, [[256], [255], [300]], [0] * 10)
    why = "colours ascend as bytes but not as numbers"
    yield Case("palette-byte-order", small(deep, swapped.pack()), why, "ascending")
