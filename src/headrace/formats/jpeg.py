# SPDX-License-Identifier: Apache-2.0
"""JPEG: gray, RGB and CMYK with 8 bits, decoded by simplejpeg (libjpeg-turbo) with the exact DCT and smooth upsampling.

The pixels equal Pillow's. What libjpeg only warns about, such as a truncated file, is an error: an image that is half
gray must not be trained on.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import simplejpeg

from headrace.errors import CorruptImage, UnsupportedImage
from headrace.formats._pixels import check_decoded, check_pixels, cmyk_to_rgb, decoder_errors, deliver, direct_out
from headrace.formats._types import Color, Format, ImageShape, Out, Region, byte_view
from headrace.formats.containers import _jpeg_segments as jpeg_segments

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Buffer

    from headrace.formats.containers._jpeg_segments import Segments

# A scan of a progressive file may cost a pass over all pixels for a few bytes. Encoders write about ten.
_MAX_SCANS = 500


class Jpeg(Format):
    """JPEG File Interchange Format. The mode is the quality, 1 to 100, and must be given: JPEG is lossy."""

    name = "jpeg"
    lossless = False
    suffix = ".jpg"
    can_decode_region = False

    def probe(self, data: Buffer, *, color: Color = "keep") -> ImageShape:
        head = jpeg_segments.read(byte_view(data))
        return ImageShape(head.height, head.width, head.components, "uint8").converted(color)

    def metadata(self, data: Buffer) -> dict[str, bytes]:
        return jpeg_segments.read(byte_view(data)).metadata()

    def _decode(
        self, view: memoryview, color: Color, region: Region | None, out: Out, max_pixels: int
    ) -> npt.NDArray[Any]:
        head = jpeg_segments.read(view)
        check_pixels(self.name, head.height, head.width, max_pixels)
        if head.progressive and bytes(view).count(b"\xff\xda") > _MAX_SCANS:
            raise CorruptImage(f"jpeg: a file must have at most {_MAX_SCANS} scans; more are an attack")
        channels = 3 if color == "RGB" and head.components == 1 else head.components
        shape = ImageShape(head.height, head.width, channels, "uint8")
        image = _decode(view, head, shape, direct_out(shape, color, region, out))
        check_decoded(self.name, image, shape)
        if channels == 4 and color == "RGB":
            image = cmyk_to_rgb(image)
        return deliver(image, color=color, region=region, out=out)

    def _encode(self, image: npt.NDArray[Any], mode: str | None, metadata: dict[str, bytes]) -> bytes:
        quality = _parse_quality(mode)
        pixels = image[..., None] if image.ndim == 2 else image
        if pixels.shape[2] not in (1, 3) or pixels.dtype != np.uint8:
            raise UnsupportedImage(
                f"JPEG stores uint8 images with 1 or 3 channels; got {image.dtype} {list(image.shape)}"
            )
        if max(pixels.shape) > 65500:
            raise UnsupportedImage(f"JPEG stores at most 65500 rows and columns; got {list(image.shape)}")
        colors, subsampling = ("GRAY", "gray") if pixels.shape[2] == 1 else ("RGB", "420")
        data: bytes = simplejpeg.encode_jpeg(
            np.ascontiguousarray(pixels), quality=quality, colorspace=colors, colorsubsampling=subsampling
        )
        return jpeg_segments.insert_metadata(data, metadata) if metadata else data


def _decode(view: memoryview, head: Segments, shape: ImageShape, out: Out) -> npt.NDArray[Any]:
    colors = {1: "GRAY", 3: "RGB", 4: "CMYK"}[shape.channels]
    try:
        image: npt.NDArray[Any] = simplejpeg.decode_jpeg(view, colorspace=colors, buffer=out, strict=True)
    except ValueError as error:
        if "subsampling" in str(error):
            return _decode_odd(view, colors)
        raise CorruptImage(f"the jpeg decoder refuses these bytes: {error}") from error
    if shape.channels == 4 and head.adobe:
        inverted: npt.NDArray[Any] = np.invert(image, out=out)
        return inverted
    if out is not None and image.shape == out.shape:
        return out
    return image[..., 0] if shape.channels == 1 else image


def _decode_odd(view: memoryview, colors: str) -> npt.NDArray[Any]:
    """Decode with Pillow what simplejpeg cannot: rare chroma subsampling, and any subsampling in CMYK.

    Pillow uses the same library but ignores libjpeg's warnings, so only the end marker is checked in addition.
    """
    from PIL.JpegImagePlugin import JpegImageFile  # noqa: PLC0415 - Pillow is imported where it is used

    with decoder_errors("jpeg"):
        image = JpegImageFile(io.BytesIO(view))
        decoded = np.asarray(image if colors != "RGB" else image.convert("RGB"))
    if b"\xff\xd9" not in bytes(view[-64:]):
        raise CorruptImage("jpeg: the end marker is missing: the file is truncated")
    return decoded


def _parse_quality(mode: str | None) -> int:
    if mode is None:
        raise UnsupportedImage(
            "JPEG is lossy and needs a quality, as in jpeg:95; or choose a lossless format (hri, png, webp, raw), or "
            "'keep' to store JPEG files unchanged"
        )
    if not mode.isdigit() or not mode.isascii() or not 1 <= int(mode) <= 100:
        raise UnsupportedImage(f"the mode of jpeg must be a quality from 1 to 100, as in jpeg:95; got {mode!r}")
    return int(mode)


FORMAT = Jpeg()
