# SPDX-License-Identifier: Apache-2.0
"""The chunks of a PNG file beside its pixels: metadata, and whether there are more frames."""

from __future__ import annotations

import struct
import zlib

from headrace import _core

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MAX_BLOCK_BYTES = 2**26  # decompressed bytes of a metadata block


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


def chunk(name: bytes, contents: bytes) -> bytes:
    """Return a chunk with its length and checksum."""
    return (
        struct.pack(">I", len(contents)) + name + contents + struct.pack(">I", zlib.crc32(contents, zlib.crc32(name)))
    )


def metadata(view: memoryview) -> dict[str, bytes]:
    """Return the ICC profile, EXIF and XMP blocks, without damaged or oversized ones. All chunks must be valid."""
    blocks: dict[str, bytes] = {}
    for name, start, end in _core.png_chunks(view):
        if name not in (b"eXIf", b"iCCP", b"iTXt"):
            continue
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
        inflated = inflater.decompress(data, _MAX_BLOCK_BYTES)
    except zlib.error:
        return b""
    return inflated if inflater.eof else b""
