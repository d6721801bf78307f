# SPDX-License-Identifier: Apache-2.0
r"""Raw: the pixels as they are in memory, after a header with their shape and checksums.

    +--------+----------------+------------+----------------+--------------------------------------+
    | fixed  | band sums      | header sum | zeros up to a  | pixels: rows of interleaved samples, |
    | 16 B   | 4 B x bands    | 4 B        | multiple of 64 | little-endian, back to back          |
    +--------+----------------+------------+----------------+--------------------------------------+

| offset | bytes | field | allowed |
|---|---|---|---|
| 0 | 4 | magic | `89 48 52 52` (`\x89HRR`) |
| 4 | 1 | version | 0 |
| 5 | 1 | dtype: 0 uint8, 1 uint16, 2 int16 | |
| 6 | 1 | channels | 1 to 64 |
| 7 | 1 | reserved | 0 |
| 8 | 4 | height | 1 to 65535 |
| 12 | 4 | width | 1 to 65535 |

A band is 32 rows; the last one may be smaller. A band sum covers the bytes of its pixels, the header sum everything
before it. Sums are CRC-32C and integers are little-endian, as in `.hri`. The file ends with the last pixel. Decoding a
region checks only the bands that it touches. At an aligned offset of a shard the pixels are aligned too. There is no
metadata.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace._core import crc32c
from headrace.errors import UnsupportedImage
from headrace.formats._pixels import check_pixels, check_region, deliver
from headrace.formats._types import Color, Format, ImageShape, Out, Region, byte_view, corrupt, refuse_cmyk

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Buffer

_MAGIC = b"\x89HRR"
_FIXED = struct.Struct("<4sBBBBII")
_DTYPES = ("uint8", "uint16", "int16")
_BAND = 32
_ALIGNMENT = 64
_MAX_SIDE = 65535
_MAX_CHANNELS = 64


class Raw(Format):
    """Uncompressed pixels: the fastest to decode and the most to read."""

    name = "raw"
    lossless = True
    suffix = ".hrr"
    can_decode_region = True

    def probe(self, data: Buffer, *, color: Color = "keep") -> ImageShape:
        return _read_head(byte_view(data))[0].converted(color)

    def metadata(self, data: Buffer) -> dict[str, bytes]:
        _read_head(byte_view(data))
        return {}

    def _decode(
        self, view: memoryview, color: Color, region: Region | None, out: Out, max_pixels: int
    ) -> npt.NDArray[Any]:
        shape, start = _read_head(view)
        whole = (0, 0, shape.height, shape.width)
        top, left, rows, columns = check_region(region or whole, shape.height, shape.width)
        check_pixels(self.name, rows, columns, max_pixels)
        _check_bands(view, start, shape.height, range(top // _BAND, -(-(top + rows) // _BAND)))
        stored = np.dtype(shape.dtype).newbyteorder("<")
        pixels = np.frombuffer(view, stored, offset=start).reshape(shape.array)
        image = pixels[top : top + rows, left : left + columns].astype(stored.newbyteorder("="), copy=False)
        return deliver(image, color=color, region=None, out=out)

    def _encode(self, image: npt.NDArray[Any], mode: str | None, metadata: dict[str, bytes]) -> bytes:
        if mode is not None:
            raise UnsupportedImage(f"raw has no modes; got {mode!r}")
        refuse_cmyk("raw", metadata)
        height, width, *rest = image.shape
        pixels = np.ascontiguousarray(image, dtype=image.dtype.newbyteorder("<"))
        rows = pixels.view(np.uint8).reshape(height, -1)
        sums = [crc32c(rows[top : top + _BAND], 0) for top in range(0, height, _BAND)]
        fixed = (_MAGIC, 0, _DTYPES.index(image.dtype.name), rest[0] if rest else 1, 0, height, width)
        head = _FIXED.pack(*fixed) + struct.pack(f"<{len(sums)}I", *sums)
        head += struct.pack("<I", crc32c(head, 0))
        return b"".join((head, b"\0" * (-len(head) % _ALIGNMENT), rows.data))


def _read_head(view: memoryview) -> tuple[ImageShape, int]:
    """Return the shape of the image and the offset of its pixels, which fill the rest of the file."""
    if len(view) < _FIXED.size:
        raise corrupt("raw", len(view), f"the file is truncated: {len(view)} bytes are too few for a header")
    magic, version, dtype, channels, reserved, height, width = _FIXED.unpack_from(view)
    if magic != _MAGIC:
        raise corrupt("raw", 0, "not a raw file: it must start with 89 48 52 52")
    if not (1 <= height <= _MAX_SIDE and 1 <= width <= _MAX_SIDE):
        raise corrupt("raw", 8, f"height and width must be 1 to {_MAX_SIDE}; got {height} and {width}")
    sum_start = _FIXED.size + 4 * -(-height // _BAND)
    if sum_start + 4 > len(view):
        raise corrupt("raw", len(view), "the file is truncated: it ends within its header")
    if struct.unpack_from("<I", view, sum_start)[0] != crc32c(view[:sum_start], 0):
        raise corrupt("raw", sum_start, "the header's checksum does not match")
    if version != 0:
        raise UnsupportedImage(f"this raw file has version {version}; this version of Headrace reads version 0")
    if dtype >= len(_DTYPES) or not 1 <= channels <= _MAX_CHANNELS or reserved:
        raise corrupt("raw", 4, f"dtype {dtype}, {channels} channels or reserved byte {reserved} is not valid")
    shape = ImageShape(height, width, channels, _DTYPES[dtype])
    pixels_start = -(-(sum_start + 4) // _ALIGNMENT) * _ALIGNMENT
    end = pixels_start + height * width * channels * np.dtype(shape.dtype).itemsize
    if len(view) != end:
        raise corrupt("raw", len(view), f"the file has {len(view)} bytes; its header announces {end}")
    if any(view[sum_start + 4 : pixels_start]):
        raise corrupt("raw", sum_start + 4, "the padding must be zero")
    return shape, pixels_start


def _check_bands(view: memoryview, pixels_start: int, height: int, bands: range) -> None:
    band_bytes = (len(view) - pixels_start) // height * _BAND
    for band in bands:
        start = pixels_start + band * band_bytes
        if struct.unpack_from("<I", view, _FIXED.size + 4 * band)[0] != crc32c(view[start : start + band_bytes], 0):
            raise corrupt("raw", start, f"the checksum of the rows from {band * _BAND} does not match")


FORMAT = Raw()
