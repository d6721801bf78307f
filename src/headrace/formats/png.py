# SPDX-License-Identifier: Apache-2.0
"""PNG: gray, RGB, with or without alpha, 8 and 16 bit; palettes are looked up.

Two twists. A palette image is decoded as if it were gray, which yields its indices from any decoder; they are checked
against the palette and then looked up. And Pillow, which holds no 16-bit color, is asked twice, for the high bytes and
for the low ones.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import CorruptImage, UnsupportedImage
from headrace.formats._backends import imagecodecs
from headrace.formats._pixels import (
    byte_view,
    check_color,
    check_decoded,
    check_pixels,
    decoder_errors,
    deliver,
    direct_out,
)
from headrace.formats._types import MAX_PIXELS, Color, Format, ImageShape, Region
from headrace.formats.containers import _png_chunks as png_chunks
from headrace.formats.containers import _png_writer
from headrace.formats.containers._png_chunks import Chunks, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from typing_extensions import Buffer

# What imagecodecs can decode with libspng. Its libpng would do all, and loses references to Python objects whenever it
# meets an error, until the interpreter dies: not for bytes that nobody vouches for.
_FAST = {(Kind.GRAY, 8), (Kind.RGB, 8), (Kind.RGBA, 8), (Kind.RGBA, 16)}


class Png:
    """Portable Network Graphics. The mode is zlib's level, 0 to 9."""

    name = "png"
    lossless = True
    suffix = ".png"
    can_decode_region = False

    def probe(self, data: Buffer, *, color: Color = "keep") -> ImageShape:
        chunks = png_chunks.read(byte_view(data), whole=False, check_data=False)
        return chunks.shape(indices=color == "index").converted(color)

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
        chunks = png_chunks.read(view, whole=True)
        check_pixels(self.name, chunks.height, chunks.width, max_pixels)
        stored = chunks.shape(indices=True)
        looked_up = chunks.kind == Kind.PALETTE and color != "index"
        image = _decode_stored(view, chunks, None if looked_up else direct_out(stored, color, region, out))
        check_decoded(self.name, image, stored)
        if chunks.kind == Kind.PALETTE:
            image = _check_indices(image, chunks)
        if looked_up:
            image = _look_up(image, chunks)
        return deliver(image, color=color, region=region, out=out)

    def encode(
        self, image: npt.NDArray[Any], *, mode: str | None = None, metadata: Mapping[str, bytes] | None = None
    ) -> bytes:
        blocks = dict(metadata or {})
        if blocks.get("color") == b"CMYK":
            raise UnsupportedImage("PNG holds no CMYK; use hri or raw, or convert the image to RGB")
        return _png_writer.encode(image, _png_writer.parse_level(mode), blocks)

    def metadata(self, data: Buffer) -> dict[str, bytes]:
        view = byte_view(data)
        return png_chunks.metadata(view, png_chunks.read(view, whole=True, check_data=False))


def _decode_stored(view: memoryview, chunks: Chunks, out: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    """The samples as the file has them; those of less than 8 bits stretched to 0 … 255."""
    kind = Kind.GRAY if chunks.kind == Kind.PALETTE else chunks.kind
    fast = imagecodecs()
    with decoder_errors("png"):
        if fast is not None and (kind, chunks.depth) in _FAST:
            decoded: npt.NDArray[Any] = fast.spng_decode(png_chunks.plainest(view, chunks, kind, chunks.depth), out=out)
            return decoded
        if chunks.depth < 16 or kind == Kind.GRAY:
            return _pillow(png_chunks.plainest(view, chunks, kind, chunks.depth))
        if kind == Kind.GRAY_ALPHA:
            # Four bytes a pixel, filtered alike: to a decoder this is RGBA of 8 bit.
            pixels = _pillow(png_chunks.plainest(view, chunks, Kind.RGBA, 8))
            swapped: npt.NDArray[Any] = pixels.view(">u2")
            return swapped.astype(np.uint16)
        data = png_chunks.plainest(view, chunks, kind, 16)
        mode = "RGB" if kind == Kind.RGB else "RGBA"
        high: npt.NDArray[np.uint16] = _pillow(data, f"{mode};16B").astype(np.uint16)
        low: npt.NDArray[np.uint8] = _pillow(data, f"{mode};16L")
        return (high << 8) | low


def _pillow(data: bytes, raw_mode: str | None = None) -> npt.NDArray[Any]:
    from PIL.PngImagePlugin import PngImageFile  # noqa: PLC0415 - Pillow is imported where it is used

    # Not Image.open: its own bomb check, a process-wide setting, would come before max_pixels.
    image = PngImageFile(io.BytesIO(data))
    if raw_mode is not None:
        image.tile = [image.tile[0]._replace(args=raw_mode)]
    array = np.asarray(image)
    return array * np.uint8(255) if array.dtype == np.bool_ else array


def _check_indices(image: npt.NDArray[Any], chunks: Chunks) -> npt.NDArray[Any]:
    """The indices of a palette image, each of which has an entry."""
    if chunks.depth < 8:
        image = image // np.uint8(255 // (2**chunks.depth - 1))
    entries = len(chunks.palette) // 3
    largest = int(image.max())
    if largest >= entries:
        raise CorruptImage(f"png: a pixel has index {largest}, and the palette ends at {entries - 1}")
    return image


def _look_up(indices: npt.NDArray[Any], chunks: Chunks) -> npt.NDArray[Any]:
    colors = np.full((len(chunks.palette) // 3, 4), 255, np.uint8)
    colors[:, :3] = np.frombuffer(chunks.palette, np.uint8).reshape(-1, 3)
    colors[: len(chunks.alphas), 3] = np.frombuffer(chunks.alphas, np.uint8)
    # Four bytes at a time are looked up several times as fast as rows of three.
    pixels = colors.view(np.uint32)[:, 0].take(indices).view(np.uint8).reshape(*indices.shape, 4)
    return pixels if chunks.alphas else pixels[..., :3]


FORMAT: Format = Png()
