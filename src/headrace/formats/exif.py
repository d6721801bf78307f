# SPDX-License-Identifier: Apache-2.0
"""The one thing of EXIF that matters to pixels: the orientation, which is recorded, and applied only on request."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

UPRIGHT = 1
_ORIENTATION = 0x0112
_SHORT = 3


def orientation(exif: bytes) -> int:
    """The orientation, 1 to 8, of an EXIF block that starts at its TIFF header; 1 if it says nothing valid."""
    place = _find(exif)
    return struct.unpack_from(f"{place[0]}H", exif, place[1])[0] if place is not None else UPRIGHT


def upright(exif: bytes) -> bytes:
    """The same block with the orientation 1, for pixels that have been turned."""
    place = _find(exif)
    if place is None:
        return exif
    order, at = place
    return exif[:at] + struct.pack(f"{order}H", UPRIGHT) + exif[at + 2 :]


def turned(image: npt.NDArray[Any], orientation: int) -> npt.NDArray[Any]:
    """The pixels `[H, W]` or `[H, W, C]` as an image of that orientation is to be shown; every pixel stays as it is."""
    if orientation >= 5:
        image = image.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    return np.ascontiguousarray(image)


def _find(exif: bytes) -> tuple[str, int] | None:
    """The byte order of a block and where its orientation is; None if it says nothing valid."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None or len(exif) < 8:
        return None
    (directory,) = struct.unpack_from(f"{order}I", exif, 4)
    if directory + 2 > len(exif):
        return None
    (entries,) = struct.unpack_from(f"{order}H", exif, directory)
    for start in range(directory + 2, min(directory + 2 + 12 * entries, len(exif) - 11), 12):
        tag, kind, count, value = struct.unpack_from(f"{order}HHIH", exif, start)
        if tag == _ORIENTATION:
            return (order, start + 8) if kind == _SHORT and count == 1 and 1 <= value <= 8 else None
    return None
