# SPDX-License-Identifier: Apache-2.0
"""The RIFF chunks of a WebP file: read and checked, and written around an encoded image.

WebP has no gray images. A gray image is stored as three equal channels with our own chunk `HRGY` after it; other
readers ignore the chunk, as the specification of the container requires, and read RGB.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from headrace.errors import UnsupportedImage
from headrace.formats._types import ImageShape, corrupt

GRAY = b"HRGY"
_METADATA = {b"ICCP": "icc", b"EXIF": "exif", b"XMP ": "xmp"}
_FLAGS = {"icc": 0x20, "alpha": 0x10, "exif": 0x08, "xmp": 0x04}
_ANIMATION = 0x02


@dataclass(frozen=True, slots=True)
class Riff:
    """The header of a WebP file, and the ranges of its metadata."""

    height: int
    width: int
    alpha: bool
    gray: bool
    length: int
    """Length of the file according to its header; more bytes may follow."""
    blocks: dict[str, tuple[int, int]]

    @property
    def shape(self) -> ImageShape:
        return ImageShape(self.height, self.width, 1 if self.gray else 4 if self.alpha else 3, "uint8")


def read(view: memoryview) -> Riff:
    """Read the chunks and the header of the image, and check their order and lengths."""
    if len(view) < 12 or bytes(view[:4]) != b"RIFF" or bytes(view[8:12]) != b"WEBP":
        raise corrupt("webp", 0, "not a WebP file: it must start with RIFF and WEBP")
    length = 8 + struct.unpack_from("<I", view, 4)[0]
    if length > len(view):
        raise corrupt("webp", 4, f"the file is truncated: it has {len(view)} bytes, its header announces {length}")
    chunks = _chunks(view[:length])
    first, start, end = chunks[0]
    image = next((chunk for chunk in chunks if chunk[0] in (b"VP8 ", b"VP8L")), None)
    if first == b"VP8X":
        if end - start != 10:
            raise corrupt("webp", start, f"VP8X must have 10 bytes; it has {end - start}")
        flags = view[start]
        if flags & _ANIMATION:
            raise UnsupportedImage("webp: animations are not supported; extract one frame")
        height, width = (1 + int.from_bytes(view[start + at : start + at + 3], "little") for at in (7, 4))
        alpha = bool(flags & _FLAGS["alpha"])
    if image is None:
        raise corrupt("webp", start, "a file must have an image chunk")
    frame_height, frame_width, frame_alpha = _read_frame(view, *image)
    if first != b"VP8X":
        height, width, alpha = frame_height, frame_width, frame_alpha
    if (frame_height, frame_width) != (height, width):
        raise corrupt(
            "webp", start, f"the image is {frame_width} x {frame_height}, but the header announces {width} x {height}"
        )
    names = {name for name, _, _ in chunks}
    blocks = {_METADATA[name]: (start, end) for name, start, end in chunks if name in _METADATA}
    return Riff(height, width, alpha, gray=GRAY in names and not alpha, length=length, blocks=blocks)


def _chunks(view: memoryview) -> list[tuple[bytes, int, int]]:
    chunks = []
    position = 12
    while position + 8 <= len(view):
        name, length = struct.unpack_from("<4sI", view, position)
        if position + 8 + length > len(view):
            raise corrupt("webp", position, f"chunk {name!r} of {length} bytes must end within the file")
        chunks.append((name, position + 8, position + 8 + length))
        position += 8 + length + length % 2
    if not chunks:
        raise corrupt("webp", 12, "a file must have at least one chunk")
    return chunks


def _read_frame(view: memoryview, name: bytes, start: int, end: int) -> tuple[int, int, bool]:
    if name == b"VP8L":
        if end - start < 5 or view[start] != 0x2F:
            raise corrupt("webp", start, "the header of the lossless image is not valid")
        (bits,) = struct.unpack_from("<I", view, start + 1)
        return 1 + (bits >> 14 & 0x3FFF), 1 + (bits & 0x3FFF), bool(bits >> 28 & 1)
    if end - start < 10 or bytes(view[start + 3 : start + 6]) != b"\x9d\x01\x2a":
        raise corrupt("webp", start, "the header of the lossy image is not valid")
    width, height = struct.unpack_from("<HH", view, start + 6)
    if not (width & 0x3FFF and height & 0x3FFF):
        raise corrupt("webp", start, "an image must have at least one pixel")
    return height & 0x3FFF, width & 0x3FFF, False


def wrap(data: bytes, *, gray: bool, blocks: dict[str, bytes]) -> bytes:
    """Add metadata and the gray mark to a file with one lossless image, as the encoder wrote it."""
    known = {name: _chunk(code, blocks[name]) for code, name in _METADATA.items() if blocks.get(name)}
    if not gray and not known:
        return data
    head = read(memoryview(data))
    flags = sum(_FLAGS[name] for name in known) | (_FLAGS["alpha"] if head.alpha else 0)
    sides = (head.width - 1).to_bytes(3, "little") + (head.height - 1).to_bytes(3, "little")
    before = _chunk(b"VP8X", bytes((flags, 0, 0, 0)) + sides) + known.pop("icc", b"")
    after = b"".join(known.values()) + (_chunk(GRAY, b"") if gray else b"")
    body = b"WEBP" + before + data[12:] + after
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _chunk(name: bytes, contents: bytes) -> bytes:
    return name + struct.pack("<I", len(contents)) + contents + b"\0" * (len(contents) % 2)
