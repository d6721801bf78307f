# SPDX-License-Identifier: Apache-2.0
"""The EXIF orientation: read it, reset it, and rotate pixels accordingly."""

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
    """Return the orientation, 1 to 8, of an EXIF block that starts at its TIFF header; 1 if it has no valid one."""
    place = _find(exif)
    return struct.unpack_from(f"{place[0]}H", exif, place[1])[0] if place is not None else UPRIGHT


def upright(exif: bytes) -> bytes:
    """Return the same block with orientation 1, for pixels that have been rotated."""
    place = _find(exif)
    if place is None:
        return exif
    order, at = place
    return exif[:at] + struct.pack(f"{order}H", UPRIGHT) + exif[at + 2 :]


def turned(image: npt.NDArray[Any], orientation: int) -> npt.NDArray[Any]:
    """Rotate and flip `[H, W]` or `[H, W, C]` as its orientation demands. Pixel values do not change."""
    if orientation >= 5:
        image = image.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    return np.ascontiguousarray(image)


def _find(exif: bytes) -> tuple[str, int] | None:
    """Return the byte order of a block and the offset of its orientation; None if it has no valid one."""
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
