# SPDX-License-Identifier: Apache-2.0
"""The chunks of a PNG file: checked one by one, and rewritten as the plainest file with the same pixels.

Decoders differ in what they make of ancillary chunks, and Pillow does not look at the checksum of image data. So the
checksums are checked here, and a decoder is then given nothing but IHDR, IDAT and IEND.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NoReturn

from headrace.errors import CorruptImage
from headrace.formats._types import ImageShape

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LARGEST_SIDE = 2**31 - 1
_CRITICAL = {b"IHDR", b"PLTE", b"IDAT", b"IEND"}
_LARGEST_BLOCK = 2**26  # of metadata, inflated


class Kind(IntEnum):
    """The color types of IHDR."""

    GRAY = 0
    RGB = 2
    PALETTE = 3
    GRAY_ALPHA = 4
    RGBA = 6


CHANNELS = {Kind.GRAY: 1, Kind.RGB: 3, Kind.PALETTE: 1, Kind.GRAY_ALPHA: 2, Kind.RGBA: 4}
_DEPTHS = {
    Kind.GRAY: (1, 2, 4, 8, 16),
    Kind.RGB: (8, 16),
    Kind.PALETTE: (1, 2, 4, 8),
    Kind.GRAY_ALPHA: (8, 16),
    Kind.RGBA: (8, 16),
}


@dataclass(slots=True)
class Chunks:
    """What a PNG file holds, as offsets into it."""

    width: int
    height: int
    depth: int
    kind: Kind
    interlaced: bool
    palette: bytes = b""
    """RGB triples."""
    alphas: bytes = b""
    """Alpha of the palette's first entries. A color key of other kinds is ignored, as Pillow does."""
    body: tuple[int, int] = (0, 0)
    """Where the IDAT chunks, heads and checksums included, start and end."""
    ancillary: list[tuple[bytes, int, int]] = field(default_factory=list)
    """Chunks that change no pixel: name, start and end of the contents."""

    def shape(self, *, indices: bool = False) -> ImageShape:
        channels = CHANNELS[self.kind]
        if self.kind == Kind.PALETTE and not indices:
            channels = 4 if self.alphas else 3
        return ImageShape(self.height, self.width, channels, "uint16" if self.depth == 16 else "uint8")


def read(view: memoryview, *, whole: bool, check_data: bool = True) -> Chunks:
    """Walk the chunks up to the first IDAT, or of the whole file, and check each one's place, length and checksum.

    Without `check_data` the checksums of the image data, which make up nearly all of the work, are left to the decoder.
    """
    if bytes(view[:8]) != SIGNATURE:
        _fail(0, "this is no PNG file: it does not start with PNG's signature")
    chunks, position = _read_head(view)
    body_start, body_end = 0, 0
    while True:
        name, start, end = _next_chunk(view, position, check_data=check_data)
        if name == b"IDAT":
            if chunks.kind == Kind.PALETTE and not chunks.palette:
                _fail(position, "a palette image has no PLTE before its data")
            if not whole:
                return chunks
            if body_end not in (0, position):
                _fail(position, "the IDAT chunks are not consecutive")
            body_start, body_end = body_start or position, end + 4
        elif name == b"IEND":
            break
        else:
            _read_other(view, chunks, name, start, end)
        position = end + 4
    if not body_start:
        _fail(position, "there is no image data before IEND")
    chunks.body = (body_start, body_end)
    return chunks


def _next_chunk(view: memoryview, position: int, *, check_data: bool = True) -> tuple[bytes, int, int]:
    """The name of the chunk at `position` and where its contents start and end; its checksum is right, or left out."""
    if position + 12 > len(view):
        _fail(position, f"the file ends after {len(view)} bytes without IEND: it is truncated")
    length, name = struct.unpack_from(">I4s", view, position)
    start, end = position + 8, position + 8 + length
    if end + 4 > len(view):
        _fail(position, f"chunk {name!r} of {length} bytes reaches beyond the file's {len(view)}: it is truncated")
    if name == b"IDAT" and not check_data:
        return name, start, end
    (expected,) = struct.unpack_from(">I", view, end)
    if zlib.crc32(view[position + 4 : end]) != expected:
        _fail(position, f"the checksum of chunk {name!r} does not match its {length} bytes")
    return name, start, end


def _read_head(view: memoryview) -> tuple[Chunks, int]:
    """The first chunk, which is IHDR, and where the next one starts."""
    name, start, end = _next_chunk(view, len(SIGNATURE))
    if name != b"IHDR" or end - start != 13:
        _fail(start, f"the first chunk is {name!r} of {end - start} bytes, and not IHDR of 13")
    width, height, depth, kind, compression, filters, interlace = struct.unpack_from(">IIBBBBB", view, start)
    if not (1 <= width <= _LARGEST_SIDE and 1 <= height <= _LARGEST_SIDE):
        _fail(start, f"{width} x {height} pixels are not an image")
    if kind not in _DEPTHS.keys() or depth not in _DEPTHS[Kind(kind)]:  # noqa: SIM118 - an int is no Kind
        _fail(start, f"PNG has no color type {kind} with depth {depth}")
    if compression or filters or interlace > 1:
        _fail(start, f"PNG has no compression {compression}, filter {filters}, interlace {interlace}")
    return Chunks(width, height, depth, Kind(kind), bool(interlace)), end + 4


def _read_other(view: memoryview, chunks: Chunks, name: bytes, start: int, end: int) -> None:
    if name == b"PLTE":
        if chunks.kind != Kind.PALETTE:
            return  # a suggestion for displays of few colors
        if (end - start) % 3 or not 3 <= end - start <= 768 or chunks.palette:
            _fail(start, f"a palette of {end - start} bytes, or a second one, is not valid")
        chunks.palette = bytes(view[start:end])
    elif name == b"tRNS":
        if chunks.kind == Kind.PALETTE:
            if end - start > len(chunks.palette) // 3 or chunks.alphas:
                _fail(start, "tRNS holds more entries than the palette, or comes twice")
            chunks.alphas = bytes(view[start:end])
    elif name in _CRITICAL or not name.isalpha() or not name[0] & 0x20:
        _fail(start, f"chunk {name!r} is unknown, critical or out of place")
    else:
        chunks.ancillary.append((name, start, end))


def is_animated(view: memoryview) -> bool:
    """Whether the file is an APNG of more than one frame, as its chunk before the first pixels says."""
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


def plainest(view: memoryview, chunks: Chunks, kind: Kind, depth: int) -> bytes:
    """The same image data under a fresh IHDR with `kind` and `depth`, which must filter alike, and no other chunk."""
    contents = struct.pack(">IIBBBBB", chunks.width, chunks.height, depth, kind, 0, 0, chunks.interlaced)
    start, end = chunks.body
    return b"".join((SIGNATURE, chunk(b"IHDR", contents), view[start:end], chunk(b"IEND", b"")))


def chunk(name: bytes, contents: bytes) -> bytes:
    """A chunk as it stands in a file."""
    return (
        struct.pack(">I", len(contents)) + name + contents + struct.pack(">I", zlib.crc32(contents, zlib.crc32(name)))
    )


def metadata(view: memoryview, chunks: Chunks) -> dict[str, bytes]:
    """The ICC profile, EXIF and XMP blocks; damaged or oversized ones are left out."""
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
    """ICC profile, EXIF and XMP as chunks, to stand before the image data."""
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
        inflated = inflater.decompress(data, _LARGEST_BLOCK)
    except zlib.error:
        return b""
    return inflated if inflater.eof else b""


def _fail(offset: int, what: str) -> NoReturn:
    error = CorruptImage(f"png, at byte {offset}: {what}")
    error.offset = offset
    raise error
