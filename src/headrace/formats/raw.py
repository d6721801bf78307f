# SPDX-License-Identifier: Apache-2.0
r"""Raw: the pixels as they are in memory, behind a head that describes and guards them.

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

A band is 32 rows, the last one may be less; its sum is over its pixels' bytes. The header sum is over all before it.
Sums are CRC-32C and integers little-endian, as in `.hri`. The file ends with the last pixel. A region needs the bands
that it touches and no others: no pixel comes out that was not checked. At an aligned offset of a shard the pixels are
aligned too. There is no metadata.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from headrace._core import crc32c
from headrace.codec.images import as_image
from headrace.errors import CorruptImage, UnsupportedImage
from headrace.formats._pixels import byte_view, check_color, check_pixels, check_region, deliver
from headrace.formats._types import MAX_PIXELS, Color, Format, ImageShape, Region

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from typing_extensions import Buffer

_MAGIC = b"\x89HRR"
_FIXED = struct.Struct("<4sBBBBII")
_DTYPES = ("uint8", "uint16", "int16")
_BAND = 32
_ALIGNMENT = 64
_LARGEST_SIDE = 65535
_MOST_CHANNELS = 64


class Raw:
    """Uncompressed pixels: nothing to decode, all to read."""

    name = "raw"
    lossless = True
    suffix = ".hrr"
    can_decode_region = True

    def probe(self, data: Buffer, *, color: Color = "keep") -> ImageShape:
        return _read_head(byte_view(data)).shape.converted(color)

    def decode(
        self,
        data: Buffer,
        *,
        color: Color = "keep",
        region: Region | None = None,
        out: npt.NDArray[Any] | None = None,
        max_pixels: int = MAX_PIXELS,
    ) -> npt.NDArray[Any]:
        check_color(color)
        view = byte_view(data)
        head = _read_head(view)
        height, width = head.shape.height, head.shape.width
        top, left, rows, columns = check_region(region or (0, 0, height, width), height, width)
        check_pixels(self.name, rows, columns, max_pixels)
        _check_bands(view, head, top, top + rows)
        stored = np.dtype(head.shape.dtype).newbyteorder("<")
        pixels = np.frombuffer(view, stored, offset=head.pixels_start).reshape(head.shape.array)
        image = pixels[top : top + rows, left : left + columns].astype(stored.newbyteorder("="), copy=False)
        return deliver(image, color=color, region=None, out=out)

    def encode(
        self, image: npt.NDArray[Any], *, mode: str | None = None, metadata: Mapping[str, bytes] | None = None
    ) -> bytes:
        if mode is not None:
            raise UnsupportedImage(f"raw has no modes, and {mode!r} was asked for")
        if (metadata or {}).get("color") == b"CMYK":
            raise UnsupportedImage("raw does not say that its four channels are CMYK; use hri, or convert to RGB")
        image = as_image(image)
        if image.ndim == 3 and image.shape[2] == 1:
            image = image[..., 0]
        shape = _shape_of(image)
        pixels = np.ascontiguousarray(image, dtype=image.dtype.newbyteorder("<"))
        rows = pixels.view(np.uint8).reshape(shape.height, -1)
        sums = [crc32c(rows[top : top + _BAND], 0) for top in range(0, shape.height, _BAND)]
        head = _FIXED.pack(
            _MAGIC, 0, _DTYPES.index(shape.dtype), shape.channels, 0, shape.height, shape.width
        ) + struct.pack(f"<{len(sums)}I", *sums)
        head += struct.pack("<I", crc32c(head, 0))
        return b"".join((head, b"\0" * (-len(head) % _ALIGNMENT), rows.data))

    def metadata(self, data: Buffer) -> dict[str, bytes]:
        _read_head(byte_view(data))
        return {}


@dataclass(frozen=True, slots=True)
class _Head:
    shape: ImageShape
    row_bytes: int
    pixels_start: int


def _read_head(view: memoryview) -> _Head:
    if len(view) < _FIXED.size:
        _fail(len(view), f"{len(view)} bytes are too few for a head: the file is truncated")
    magic, version, dtype, channels, reserved, height, width = _FIXED.unpack_from(view)
    if magic != _MAGIC:
        _fail(0, "this is no raw file: it does not start with its magic number")
    if not (1 <= height <= _LARGEST_SIDE and 1 <= width <= _LARGEST_SIDE):
        _fail(8, f"{width} x {height} pixels are not an image that raw holds")
    sum_start = _FIXED.size + 4 * -(-height // _BAND)
    if sum_start + 4 > len(view):
        _fail(len(view), f"the file ends after {len(view)} bytes, within its head: it is truncated")
    if struct.unpack_from("<I", view, sum_start)[0] != crc32c(view[:sum_start], 0):
        _fail(sum_start, "the header's checksum does not match")
    if version != 0:
        raise UnsupportedImage(f"this raw file is of version {version}; this Headrace reads version 0")
    if dtype >= len(_DTYPES) or not 1 <= channels <= _MOST_CHANNELS or reserved:
        _fail(4, f"raw has no dtype {dtype} with {channels} channels and reserved byte {reserved}")
    shape = ImageShape(height, width, channels, _DTYPES[dtype])
    row_bytes = width * channels * np.dtype(shape.dtype).itemsize
    pixels_start = -(-(sum_start + 4) // _ALIGNMENT) * _ALIGNMENT
    if len(view) != pixels_start + height * row_bytes:
        _fail(len(view), f"the file has {len(view)} bytes and its head asks for {pixels_start + height * row_bytes}")
    if any(view[sum_start + 4 : pixels_start]):
        _fail(sum_start + 4, "the padding is not zero")
    return _Head(shape, row_bytes, pixels_start)


def _check_bands(view: memoryview, head: _Head, top: int, bottom: int) -> None:
    for band in range(top // _BAND, -(-bottom // _BAND)):
        start = head.pixels_start + band * _BAND * head.row_bytes
        end = head.pixels_start + min((band + 1) * _BAND, head.shape.height) * head.row_bytes
        if struct.unpack_from("<I", view, _FIXED.size + 4 * band)[0] != crc32c(view[start:end], 0):
            _fail(start, f"the checksum of rows {band * _BAND} and following does not match")


def _shape_of(image: npt.NDArray[Any]) -> ImageShape:
    channels = 1 if image.ndim == 2 else image.shape[-1]
    sides = image.shape[:2]
    if image.ndim not in (2, 3) or not 1 <= channels <= _MOST_CHANNELS or image.dtype.name not in _DTYPES:
        raise UnsupportedImage(
            f"raw holds uint8, uint16 and int16 images of 1 to 64 channels, not {image.dtype} {list(image.shape)}"
        )
    if 0 in sides or max(sides) > _LARGEST_SIDE:
        raise UnsupportedImage(f"raw holds 1 to {_LARGEST_SIDE} rows and columns, not {list(sides)}")
    return ImageShape(image.shape[0], image.shape[1], channels, image.dtype.name)


def _fail(offset: int, what: str) -> NoReturn:
    error = CorruptImage(f"raw, at byte {offset}: {what}")
    error.offset = offset
    raise error


FORMAT: Format = Raw()
