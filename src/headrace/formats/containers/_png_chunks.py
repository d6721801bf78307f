# SPDX-License-Identifier: Apache-2.0
"""The chunks of a PNG file: checked one by one, and rewritten as a minimal file with the same pixels.

Decoders treat ancillary chunks differently, and Pillow does not check the checksum of image data. So all checksums are
checked here, and a decoder gets only IHDR, IDAT and IEND.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from enum import IntEnum

from headrace.formats._types import ImageShape, corrupt

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MAX_SIDE = 2**31 - 1
_CRITICAL = {b"IHDR", b"PLTE", b"IDAT", b"IEND"}
_MAX_BLOCK = 2**26  # decompressed bytes of a metadata block


class ColorType(IntEnum):
    """The color types of IHDR."""

    GRAY = 0
    RGB = 2
    PALETTE = 3
    GRAY_ALPHA = 4
    RGBA = 6


CHANNELS = {ColorType.GRAY: 1, ColorType.RGB: 3, ColorType.PALETTE: 1, ColorType.GRAY_ALPHA: 2, ColorType.RGBA: 4}
_DEPTHS = {
    ColorType.GRAY: (1, 2, 4, 8, 16),
    ColorType.RGB: (8, 16),
    ColorType.PALETTE: (1, 2, 4, 8),
    ColorType.GRAY_ALPHA: (8, 16),
    ColorType.RGBA: (8, 16),
}


@dataclass(slots=True)
class Chunks:
    """The contents of a PNG file, as offsets into it."""

    width: int
    height: int
    depth: int
    color_type: ColorType
    interlaced: bool
    palette: bytes = b""
    """RGB triples."""
    alphas: bytes = b""
    """Alpha of the first palette entries. The transparent color of other color types is ignored, as Pillow does."""
    body: tuple[int, int] = (0, 0)
    """Start and end of the IDAT chunks, with their headers and checksums."""
    ancillary: list[tuple[bytes, int, int]] = field(default_factory=list)
    """Chunks that do not affect pixels: name, start and end of the contents."""

    def shape(self, *, indices: bool = False) -> ImageShape:
        channels = CHANNELS[self.color_type]
        if self.color_type == ColorType.PALETTE and not indices:
            channels = 4 if self.alphas else 3
        return ImageShape(self.height, self.width, channels, "uint16" if self.depth == 16 else "uint8")


def read(view: memoryview, *, whole: bool, check_data: bool = True) -> Chunks:
    """Read the chunks up to the first IDAT, or all of them, and check the order, length and checksum of each.

    Without `check_data` the checksums of the image data, nearly all of the work, are not checked.
    """
    if bytes(view[:8]) != SIGNATURE:
        raise corrupt("png", 0, "not a PNG file: it must start with the PNG signature")
    chunks, position = _read_head(view)
    body_start, body_end = 0, 0
    while True:
        name, start, end = _next_chunk(view, position, check_data=check_data)
        if name == b"IDAT":
            if chunks.color_type == ColorType.PALETTE and not chunks.palette:
                raise corrupt("png", position, "a palette image must have PLTE before its data")
            if not whole:
                return chunks
            if body_end not in (0, position):
                raise corrupt("png", position, "IDAT chunks must be consecutive")
            body_start, body_end = body_start or position, end + 4
        elif name == b"IEND":
            break
        else:
            _read_other(view, chunks, name, start, end)
        position = end + 4
    if not body_start:
        raise corrupt("png", position, "a file must have image data before IEND")
    chunks.body = (body_start, body_end)
    return chunks


def _next_chunk(view: memoryview, position: int, *, check_data: bool = True) -> tuple[bytes, int, int]:
    """Return the name of the chunk at `position` and where its contents start and end, after checking its checksum."""
    if position + 12 > len(view):
        raise corrupt("png", position, f"the file is truncated: it ends after {len(view)} bytes without IEND")
    length, name = struct.unpack_from(">I4s", view, position)
    start, end = position + 8, position + 8 + length
    if end + 4 > len(view):
        raise corrupt(
            "png",
            position,
            f"chunk {name!r} of {length} bytes must end within the file of {len(view)} bytes: it is truncated",
        )
    if name == b"IDAT" and not check_data:
        return name, start, end
    (expected,) = struct.unpack_from(">I", view, end)
    if zlib.crc32(view[position + 4 : end]) != expected:
        raise corrupt("png", position, f"the checksum of chunk {name!r} does not match its {length} bytes")
    return name, start, end


def _read_head(view: memoryview) -> tuple[Chunks, int]:
    """Read the first chunk, which must be IHDR; also return where the next one starts."""
    name, start, end = _next_chunk(view, len(SIGNATURE))
    if name != b"IHDR" or end - start != 13:
        raise corrupt("png", start, f"the first chunk must be IHDR of 13 bytes; it is {name!r} of {end - start}")
    width, height, depth, color_type, compression, filters, interlace = struct.unpack_from(">IIBBBBB", view, start)
    if not (1 <= width <= _MAX_SIDE and 1 <= height <= _MAX_SIDE):
        raise corrupt("png", start, f"height and width must be 1 to {_MAX_SIDE}; got {height} and {width}")
    if color_type not in _DEPTHS.keys() or depth not in _DEPTHS[ColorType(color_type)]:  # noqa: SIM118 - an int is not a ColorType
        raise corrupt("png", start, f"PNG has no color type {color_type} with depth {depth}")
    if compression or filters or interlace > 1:
        raise corrupt("png", start, f"PNG has no compression {compression}, filter {filters}, interlace {interlace}")
    return Chunks(width, height, depth, ColorType(color_type), bool(interlace)), end + 4


def _read_other(view: memoryview, chunks: Chunks, name: bytes, start: int, end: int) -> None:
    if name == b"PLTE":
        if chunks.color_type != ColorType.PALETTE:
            return  # only a suggestion for displays with few colors
        if (end - start) % 3 or not 3 <= end - start <= 768 or chunks.palette:
            raise corrupt(
                "png",
                start,
                f"a file must have one palette of 3 to 768 bytes; got one of {end - start}, or a second one",
            )
        chunks.palette = bytes(view[start:end])
    elif name == b"tRNS":
        if chunks.color_type == ColorType.PALETTE:
            if end - start > len(chunks.palette) // 3 or chunks.alphas:
                raise corrupt("png", start, "tRNS must occur once and have at most as many entries as the palette")
            chunks.alphas = bytes(view[start:end])
    elif name in _CRITICAL or not name.isalpha() or not name[0] & 0x20:
        raise corrupt("png", start, f"chunk {name!r} is unknown, critical or out of place")
    else:
        chunks.ancillary.append((name, start, end))


def is_animated(view: memoryview) -> bool:
    """Return whether the file is an APNG with more than one frame, according to its acTL chunk."""
    position = len(SIGNATURE)
    while position + 12 <= len(view):
        n_bytes = int.from_bytes(view[position : position + 4], "big")
        name = bytes(view[position + 4 : position + 8])
        if name == b"acTL":
            return int.from_bytes(view[position + 8 : position + 12], "big") > 1
        if name == b"IDAT":
            return False
        position += 12 + n_bytes
    return False


def minimal_file(view: memoryview, chunks: Chunks, color_type: ColorType, depth: int) -> bytes:
    """Return a file with the same image data, an IHDR with this color type and depth, and no other chunks.

    The color type and depth must have as many bits per pixel as the stored ones.
    """
    contents = struct.pack(">IIBBBBB", chunks.width, chunks.height, depth, color_type, 0, 0, chunks.interlaced)
    start, end = chunks.body
    return b"".join((SIGNATURE, chunk(b"IHDR", contents), view[start:end], chunk(b"IEND", b"")))


def chunk(name: bytes, contents: bytes) -> bytes:
    """Return a chunk with its length and checksum."""
    return (
        struct.pack(">I", len(contents)) + name + contents + struct.pack(">I", zlib.crc32(contents, zlib.crc32(name)))
    )


def metadata(view: memoryview, chunks: Chunks) -> dict[str, bytes]:
    """Return the ICC profile, EXIF and XMP blocks, without damaged or oversized ones."""
    blocks: dict[str, bytes] = {}
    for name, start, end in chunks.ancillary:
        contents = bytes(view[start:end])
        if name == b"eXIf":
            blocks.setdefault("exif", contents)
        elif name == b"iCCP":
            profile = _inflate(contents.partition(b"\0")[2][1:])
            if profile:
                blocks.setdefault("icc", profile)
        elif name == b"iTXt" and contents.startswith(b"XML:com.adobe.xmp\0"):
            compressed, _, rest = contents[18:19], contents[19:20], contents[20:]
            text = rest.partition(b"\0")[2].partition(b"\0")[2]
            text = _inflate(text) if compressed == b"\1" else text
            if text:
                blocks.setdefault("xmp", text)
    return blocks


def metadata_chunks(blocks: dict[str, bytes]) -> bytes:
    """Return the chunks of an ICC profile, EXIF and XMP, which go before the image data."""
    parts = []
    if "icc" in blocks:
        parts.append(chunk(b"iCCP", b"ICC Profile\0\0" + zlib.compress(blocks["icc"], 9)))
    if "exif" in blocks:
        parts.append(chunk(b"eXIf", blocks["exif"]))
    if "xmp" in blocks:
        parts.append(chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + blocks["xmp"]))
    return b"".join(parts)


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, _MAX_BLOCK)
    except zlib.error:
        return b""
    return inflated if inflater.eof else b""
