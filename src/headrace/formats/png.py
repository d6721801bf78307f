# SPDX-License-Identifier: Apache-2.0
"""PNG: gray and RGB, with or without alpha, 8 and 16 bits; palettes are looked up.

A palette image is decoded as if it were gray, which gives its indices with any decoder; they are checked against the
palette and then looked up. Pillow has no 16-bit color, so it decodes twice: the high bytes and the low bytes.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import CorruptImage
from headrace.formats._pixels import check_decoded, check_pixels, decoder_errors, deliver, direct_out
from headrace.formats._types import Color, Format, ImageShape, Out, Region, byte_view, refuse_cmyk
from headrace.formats.containers import _png_chunks as png_chunks
from headrace.formats.containers import _png_writer
from headrace.formats.containers._png_chunks import Chunks, ColorType
from headrace.formats.optional import fast_decoders

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Buffer

# What imagecodecs decodes with libspng. Its libpng decodes everything, but each error loses references to Python
# objects until the interpreter crashes: it must not see untrusted bytes.
_FAST = {(ColorType.GRAY, 8), (ColorType.RGB, 8), (ColorType.RGBA, 8), (ColorType.RGBA, 16)}


class Png(Format):
    """Portable Network Graphics. The mode is zlib's level, 0 to 9."""

    name = "png"
    lossless = True
    suffix = ".png"
    can_decode_region = False

    def probe(self, data: Buffer, *, color: Color = "keep") -> ImageShape:
        chunks = png_chunks.read(byte_view(data), whole=False, check_data=False)
        return chunks.shape(indices=color == "index").converted(color)

    def metadata(self, data: Buffer) -> dict[str, bytes]:
        view = byte_view(data)
        return png_chunks.metadata(view, png_chunks.read(view, whole=True, check_data=False))

    def _decode(
        self, view: memoryview, color: Color, region: Region | None, out: Out, max_pixels: int
    ) -> npt.NDArray[Any]:
        chunks = png_chunks.read(view, whole=True)
        check_pixels(self.name, chunks.height, chunks.width, max_pixels)
        stored = chunks.shape(indices=True)
        looked_up = chunks.color_type == ColorType.PALETTE and color != "index"
        image = _decode_stored(view, chunks, None if looked_up else direct_out(stored, color, region, out))
        check_decoded(self.name, image, stored)
        if chunks.color_type == ColorType.PALETTE:
            image = _check_indices(image, chunks)
        if looked_up:
            image = _look_up(image, chunks)
        return deliver(image, color=color, region=region, out=out)

    def _encode(self, image: npt.NDArray[Any], mode: str | None, metadata: dict[str, bytes]) -> bytes:
        refuse_cmyk("PNG", metadata)
        return _png_writer.encode(image, _png_writer.parse_level(mode), metadata)


def _decode_stored(view: memoryview, chunks: Chunks, out: Out) -> npt.NDArray[Any]:
    """Return the samples as stored; samples of less than 8 bits are scaled to 0 … 255."""
    color_type = ColorType.GRAY if chunks.color_type == ColorType.PALETTE else chunks.color_type
    fast = fast_decoders()
    with decoder_errors("png"):
        if fast is not None and (color_type, chunks.depth) in _FAST:
            decoded: npt.NDArray[Any] = fast.spng_decode(
                png_chunks.minimal_file(view, chunks, color_type, chunks.depth), out=out
            )
            return decoded
        if chunks.depth < 16 or color_type == ColorType.GRAY:
            return _pillow(png_chunks.minimal_file(view, chunks, color_type, chunks.depth))
        if color_type == ColorType.GRAY_ALPHA:
            # Four bytes a pixel, filtered alike: to a decoder this is RGBA of 8 bit.
            pixels = _pillow(png_chunks.minimal_file(view, chunks, ColorType.RGBA, 8))
            swapped: npt.NDArray[Any] = pixels.view(">u2")
            return swapped.astype(np.uint16)
        data = png_chunks.minimal_file(view, chunks, color_type, 16)
        mode = "RGB" if color_type == ColorType.RGB else "RGBA"
        high: npt.NDArray[np.uint16] = _pillow(data, f"{mode};16B").astype(np.uint16)
        low: npt.NDArray[np.uint8] = _pillow(data, f"{mode};16L")
        return (high << 8) | low


def _pillow(data: bytes, raw_mode: str | None = None) -> npt.NDArray[Any]:
    from PIL.PngImagePlugin import PngImageFile  # noqa: PLC0415 - Pillow is imported where it is used

    # Not Image.open, which applies Pillow's process-wide pixel limit before ours.
    image = PngImageFile(io.BytesIO(data))
    if raw_mode is not None:
        image.tile = [image.tile[0]._replace(args=raw_mode)]
    array = np.asarray(image)
    return array * np.uint8(255) if array.dtype == np.bool_ else array


def _check_indices(image: npt.NDArray[Any], chunks: Chunks) -> npt.NDArray[Any]:
    """Return the indices of a palette image after checking that each has an entry."""
    if chunks.depth < 8:
        image = image // np.uint8(255 // (2**chunks.depth - 1))
    entries = len(chunks.palette) // 3
    largest = int(image.max())
    if largest >= entries:
        raise CorruptImage(f"png: a pixel has index {largest}, but the palette has {entries} entries")
    return image


def _look_up(indices: npt.NDArray[Any], chunks: Chunks) -> npt.NDArray[Any]:
    colors = np.full((len(chunks.palette) // 3, 4), 255, np.uint8)
    colors[:, :3] = np.frombuffer(chunks.palette, np.uint8).reshape(-1, 3)
    colors[: len(chunks.alphas), 3] = np.frombuffer(chunks.alphas, np.uint8)
    # Looking up four bytes at a time is several times as fast as looking up rows of three.
    pixels = colors.view(np.uint32)[:, 0].take(indices).view(np.uint8).reshape(*indices.shape, 4)
    return pixels if chunks.alphas else pixels[..., :3]


FORMAT = Png()
