# SPDX-License-Identifier: Apache-2.0
"""The one thing of EXIF that matters to pixels: the orientation, which is recorded and never applied."""

from __future__ import annotations

import struct

UPRIGHT = 1
_ORIENTATION = 0x0112
_SHORT = 3


def orientation(exif: bytes) -> int:
    """The orientation, 1 to 8, of an EXIF block that starts at its TIFF header; 1 if it says nothing valid."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None or len(exif) < 8:
        return UPRIGHT
    (directory,) = struct.unpack_from(f"{order}I", exif, 4)
    if directory + 2 > len(exif):
        return UPRIGHT
    (entries,) = struct.unpack_from(f"{order}H", exif, directory)
    for start in range(directory + 2, min(directory + 2 + 12 * entries, len(exif) - 11), 12):
        tag, kind, count, value = struct.unpack_from(f"{order}HHIH", exif, start)
        if tag == _ORIENTATION:
            return value if kind == _SHORT and count == 1 and 1 <= value <= 8 else UPRIGHT
    return UPRIGHT
