# SPDX-License-Identifier: Apache-2.0
"""Write PNG files with Pillow, and with NumPy and zlib where Pillow has no mode (16-bit color).

The decoding backend is not used here, so that the bytes of a dataset do not depend on what is installed.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import UnsupportedImage
from headrace.formats._types import parse_mode, refuse_cmyk
from headrace.formats.containers._png_chunks import SIGNATURE, chunk, metadata_chunks

if TYPE_CHECKING:
    import numpy.typing as npt

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # by channels: gray, gray and alpha, RGB, RGBA
_ROWS_AT_ONCE = 64  # the filters need five copies of these rows


def encode(image: npt.NDArray[Any], mode: str | None, blocks: dict[str, bytes]) -> bytes:
    """Return a PNG file; `mode` is zlib's level."""
    refuse_cmyk("PNG", blocks)
    level = parse_mode("png", mode, "zlib's level", (0, 9), default=6)
    channels = 1 if image.ndim == 2 else image.shape[2]
    if channels not in _COLOR_TYPES or image.dtype.name not in ("uint8", "uint16"):
        raise UnsupportedImage(
            f"PNG stores uint8 and uint16 images with 1 to 4 channels; got {image.dtype} {list(image.shape)}; use hri "
            "or raw"
        )
    if image.dtype == np.uint16 and channels > 1:
        return _encode_plain(image, level, blocks)
    from PIL import Image  # noqa: PLC0415 - Pillow is imported where it is used

    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(stream, "PNG", compress_level=level)
    data = stream.getvalue()
    return data[:33] + metadata_chunks(blocks) + data[33:]  # after IHDR


def _encode_plain(image: npt.NDArray[Any], level: int, blocks: dict[str, bytes]) -> bytes:
    height, width, channels = image.shape
    head = struct.pack(">IIBBBBB", width, height, 16, _COLOR_TYPES[channels], 0, 0, 0)
    compressor = zlib.compressobj(level, zlib.DEFLATED, 15, 9, zlib.Z_FILTERED)
    body = []
    previous = np.zeros((1, width * channels * 2), np.uint8)
    for top in range(0, height, _ROWS_AT_ONCE):
        rows = image[top : top + _ROWS_AT_ONCE].astype(">u2").reshape(-1, width * channels).view(np.uint8)
        body.append(compressor.compress(_filter(rows, previous, channels * 2).tobytes()))
        previous = rows[-1:]
    body.append(compressor.flush())
    parts = (SIGNATURE, chunk(b"IHDR", head), metadata_chunks(blocks), chunk(b"IDAT", b"".join(body)))
    return b"".join((*parts, chunk(b"IEND", b"")))


def _filter(rows: npt.NDArray[np.uint8], previous: npt.NDArray[np.uint8], step: int) -> npt.NDArray[np.uint8]:
    """Return the filter number and the filtered bytes of each row, with the filter that has the smallest residuals.

    `previous` is the row above the first; `step` is the bytes per pixel. Arithmetic is modulo 256, as in PNG.
    """
    above = np.concatenate((previous, rows[:-1]))
    left, corner = np.zeros_like(rows), np.zeros_like(rows)
    left[:, step:] = rows[:, :-step]
    corner[:, step:] = above[:, :-step]
    average = ((left.astype(np.uint16) + above) >> 1).astype(np.uint8)
    candidates = np.stack([rows, rows - left, rows - above, rows - average, rows - _paeth(left, above, corner)])
    sizes = np.abs(candidates.view(np.int8).astype(np.int16)).sum(axis=2, dtype=np.int64)  # [5, rows]
    best = sizes.argmin(axis=0)
    filtered = np.empty((rows.shape[0], rows.shape[1] + 1), np.uint8)
    filtered[:, 0] = best
    filtered[:, 1:] = candidates[best, np.arange(rows.shape[0])]
    return filtered


def _paeth(
    left: npt.NDArray[np.uint8], above: npt.NDArray[np.uint8], corner: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Return the neighbor closest to left + above − corner; ties go to left, then above."""
    toward_above = above.astype(np.int16) - corner
    toward_left = left.astype(np.int16) - corner
    from_left, from_above, from_corner = abs(toward_above), abs(toward_left), abs(toward_above + toward_left)
    nearest = np.where(from_above <= from_corner, above, corner)
    return np.where((from_left <= from_above) & (from_left <= from_corner), left, nearest)
