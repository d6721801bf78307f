# SPDX-License-Identifier: Apache-2.0
"""PNG: gray and RGB, with or without alpha, 8 and 16 bits, decoded by the core; palettes are looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import _core
from headrace.formats._pixels import check_pixels, check_region, deliver, direct_out
from headrace.formats._types import Color, Format, ImageShape, Out, Region, byte_view, check_color
from headrace.formats.containers import _png_chunks as png_chunks
from headrace.formats.containers import _png_writer

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Buffer

# What the core makes of a palette: its colors with alpha if it has any, its colors without, or its indices.
_PALETTE = {"keep": "all", "RGB": "opaque", "index": "indices"}


class Png(Format):
    """Portable Network Graphics. The mode is zlib's level, 0 to 9."""

    name = "png"
    lossless = True
    suffix = ".png"
    can_decode_region = False

    def probe(self, data: Buffer, *, color: Color = "keep") -> ImageShape:
        check_color(color)
        return ImageShape(*_core.png_shape(byte_view(data), _PALETTE[color])).converted(color)

    def metadata(self, data: Buffer) -> dict[str, bytes]:
        return png_chunks.metadata(byte_view(data))

    def _decode(
        self, view: memoryview, color: Color, region: Region | None, out: Out, max_pixels: int
    ) -> npt.NDArray[Any]:
        height, width, channels, dtype = _core.png_shape(view, _PALETTE[color])
        check_pixels(self.name, height, width, max_pixels)
        if region is not None:
            region = check_region(region, height, width)
            height, width = region[2:]
        direct = direct_out(ImageShape(height, width, channels, dtype), color, None, out)
        image = _core.decode_png(view, _PALETTE[color], region, direct)
        return deliver(image, color=color, region=None, out=out)

    def _encode(self, image: npt.NDArray[Any], mode: str | None, metadata: dict[str, bytes]) -> bytes:
        return _png_writer.encode(image, mode, metadata)


FORMAT = Png()
