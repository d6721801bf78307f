# SPDX-License-Identifier: Apache-2.0
"""PNG: gray, RGB, with or without alpha, 8 and 16 bit, decoded by the C++ core; palettes are looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import _core
from headrace.errors import UnsupportedImage
from headrace.formats._pixels import byte_view, check_color, check_pixels, check_region, deliver, direct_out
from headrace.formats._types import MAX_PIXELS, Color, Format, ImageShape, Region
from headrace.formats.containers import _png_chunks as png_chunks
from headrace.formats.containers import _png_writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from typing_extensions import Buffer

# What the core makes of a palette: its colors with alpha if it has any, its colors without, or its indices.
_PALETTE = {"keep": "all", "RGB": "opaque", "index": "indices"}


class Png:
    """Portable Network Graphics. The mode is zlib's level, 0 to 9."""

    name = "png"
    lossless = True
    suffix = ".png"
    can_decode_region = False

    def probe(self, data: Buffer, *, color: Color = "keep") -> ImageShape:
        check_color(color)
        return ImageShape(*_core.png_shape(byte_view(data), _PALETTE[color])).converted(color)

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
        height, width, channels, dtype = _core.png_shape(view, _PALETTE[color])
        check_pixels(self.name, height, width, max_pixels)
        if region is not None:
            region = check_region(region, height, width)
            height, width = region[2:]
        direct = direct_out(ImageShape(height, width, channels, dtype), color, None, out)
        image = _core.decode_png(view, _PALETTE[color], region, direct)
        return deliver(image, color=color, region=None, out=out)

    def encode(
        self, image: npt.NDArray[Any], *, mode: str | None = None, metadata: Mapping[str, bytes] | None = None
    ) -> bytes:
        blocks = dict(metadata or {})
        if blocks.get("color") == b"CMYK":
            raise UnsupportedImage("PNG cannot hold CMYK; use hri or raw, or convert the image to RGB")
        return _png_writer.encode(image, _png_writer.parse_level(mode), blocks)

    def metadata(self, data: Buffer) -> dict[str, bytes]:
        return png_chunks.metadata(byte_view(data))


FORMAT: Format = Png()
