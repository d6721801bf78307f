# SPDX-License-Identifier: Apache-2.0
"""The segments of a JPEG file before its first scan: the frame header and the metadata, read and written."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NoReturn

from headrace.errors import UnsupportedImage
from headrace.formats._types import corrupt

_START_OF_SCAN = 0xDA
_NOT_FRAMES = (0xC4, 0xC8, 0xCC)  # tables whose markers lie among those of frame headers
_FRAMES = (0xC0, 0xC1, 0xC2, 0xC9, 0xCA)  # baseline, extended, progressive; arithmetic coding of the last two
_EXIF = b"Exif\0\0"
_ICC = b"ICC_PROFILE\0"
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_MAX_SEGMENT = 65533


@dataclass(slots=True)
class Segments:
    """What a file contains before its first scan."""

    height: int = 0
    width: int = 0
    components: int = 0
    exif: bytes = b""
    xmp: bytes = b""
    profile: dict[int, bytes] = field(default_factory=dict)
    """Parts of the ICC profile by number."""
    profile_parts: int = 0

    def metadata(self) -> dict[str, bytes]:
        blocks = {"exif": self.exif, "xmp": self.xmp}
        if sorted(self.profile) == list(range(1, self.profile_parts + 1)):
            blocks["icc"] = b"".join(self.profile[number] for number in sorted(self.profile))
        if self.components == 4:
            blocks["color"] = b"CMYK"
        return {name: block for name, block in blocks.items() if block}


def read(view: memoryview) -> Segments:
    """Read the segments up to the first scan and check their order and lengths."""
    if bytes(view[:2]) != b"\xff\xd8":
        raise corrupt("jpeg", 0, "not a JPEG file: it must start with FF D8")
    segments = Segments()
    position = 2
    while True:
        marker, start = _next_marker(view, position)
        if marker == _START_OF_SCAN:
            break
        if start + 2 > len(view):
            raise corrupt("jpeg", position, "the file is truncated: it ends within a segment")
        (length,) = struct.unpack_from(">H", view, start)
        if length < 2 or start + length > len(view):
            raise corrupt("jpeg", position, f"segment FF {marker:02X} of {length} bytes must end within the file")
        _read_segment(segments, marker, view[start + 2 : start + length], position)
        position = start + length
    if not segments.components:
        raise corrupt("jpeg", position, "a frame header must precede the first scan")
    return segments


def _next_marker(view: memoryview, position: int) -> tuple[int, int]:
    """Return the marker at `position` and the position after it."""
    if position >= len(view) or view[position] != 0xFF:
        raise corrupt("jpeg", position, "expected a marker: the file is damaged or truncated")
    while position < len(view) and view[position] == 0xFF:
        position += 1
    if position == len(view):
        raise corrupt("jpeg", position, "the file is truncated: it ends within a marker")
    marker = view[position]
    if not 0xC0 <= marker <= 0xFE or 0xD0 <= marker <= 0xD9:
        raise corrupt("jpeg", position, f"marker FF {marker:02X} must not occur before the first scan")
    return marker, position + 1


def _read_segment(segments: Segments, marker: int, contents: memoryview, position: int) -> None:
    if 0xC0 <= marker <= 0xCF and marker not in _NOT_FRAMES:
        _read_frame(segments, marker, contents, position)
    elif marker == 0xE1:
        if bytes(contents[:6]) == _EXIF:
            segments.exif = segments.exif or bytes(contents[6:])
        elif bytes(contents[:29]) == _XMP:
            segments.xmp = segments.xmp or bytes(contents[29:])
    elif marker == 0xE2 and bytes(contents[:12]) == _ICC and len(contents) > 14:
        segments.profile_parts = contents[13]
        segments.profile.setdefault(contents[12], bytes(contents[14:]))


def _read_frame(segments: Segments, marker: int, contents: memoryview, position: int) -> None:
    if segments.components:
        raise corrupt("jpeg", position, "a file must have one frame header; this is the second")
    if len(contents) < 6:
        raise corrupt("jpeg", position, f"a frame header of {len(contents)} bytes is too short")
    depth, height, width, components = struct.unpack_from(">BHHB", contents)
    if len(contents) != 6 + 3 * components or not width:
        what = f"a frame header of {len(contents)} bytes with {components} components and width {width} is not valid"
        raise corrupt("jpeg", position, what)
    if marker not in _FRAMES:
        _refuse(position, f"frames of type FF {marker:02X} (lossless or hierarchical) are not supported")
    if depth != 8:
        _refuse(position, f"only 8 bits per sample are supported; the file has {depth}")
    if not height:
        _refuse(position, "a height that is given after the first scan is not supported")
    if components not in (1, 3, 4):
        _refuse(position, f"only 1, 3 or 4 components are supported; the file has {components}")
    segments.height, segments.width, segments.components = height, width, components


def insert_metadata(data: bytes, blocks: dict[str, bytes]) -> bytes:
    """Return the file with EXIF, XMP and ICC segments after its first segment (JFIF must stay first)."""
    payloads = []
    if "exif" in blocks:
        payloads.append(b"\xe1" + _EXIF + blocks["exif"])
    if "xmp" in blocks:
        payloads.append(b"\xe1" + _XMP + blocks["xmp"])
    profile = blocks.get("icc", b"")
    parts = [profile[start : start + 65519] for start in range(0, len(profile), 65519)]
    if len(parts) <= 255:
        payloads += [b"\xe2" + _ICC + bytes((number + 1, len(parts))) + part for number, part in enumerate(parts)]
    # The length of a segment has 16 bits and includes itself; larger EXIF or XMP blocks cannot be stored.
    written = [
        b"\xff" + payload[:1] + struct.pack(">H", len(payload) + 1) + payload[1:]
        for payload in payloads
        if len(payload) - 1 <= _MAX_SEGMENT
    ]
    (length,) = struct.unpack_from(">H", data, 4)
    return data[: 4 + length] + b"".join(written) + data[4 + length :]


def _refuse(offset: int, what: str) -> NoReturn:
    raise UnsupportedImage(f"jpeg, at byte {offset}: {what}; convert the file")
