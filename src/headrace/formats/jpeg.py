# SPDX-License-Identifier: Apache-2.0
"""JPEG: gray, RGB and CMYK of 8 bit, decoded by simplejpeg (libjpeg-turbo) with the exact DCT and smooth upsampling.

The pixels are those of Pillow. What libjpeg only warns of, such as a file that ends early, is an error here: a picture
that is half gray is worse than none.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import simplejpeg

from headrace.codec.images import as_image
from headrace.errors import CorruptImage, UnsupportedImage
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
from headrace.formats.containers import _jpeg_segments as jpeg_segments

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from typing_extensions import Buffer

    from headrace.formats.containers._jpeg_segments import Segments

# Each scan of a progressive file may cost a pass over all pixels for a few bytes. Encoders write about ten.
_MOST_SCANS = 500


class Jpeg:
    """JPEG File Interchange Format. The mode is the quality, 1 to 100, and must be given: it loses."""

    name = "jpeg"
    lossless = False
    suffix = ".jpg"
    can_decode_region = False

    def probe(self, data: Buffer, *, color: Color = "keep") -> ImageShape:
        head = jpeg_segments.read(byte_view(data))
        return ImageShape(head.height, head.width, head.components, "uint8").converted(color)

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
        head = jpeg_segments.read(view)
        check_pixels(self.name, head.height, head.width, max_pixels)
        if head.progressive and bytes(view).count(b"\xff\xda") > _MOST_SCANS:
            raise CorruptImage(f"jpeg: more than {_MOST_SCANS} scans, which is an attack and not a picture")
        channels = 3 if color == "RGB" and head.components == 1 else head.components
        shape = ImageShape(head.height, head.width, channels, "uint8")
        image = _decode(view, head, shape, direct_out(shape, color, region, out))
        check_decoded(self.name, image, shape)
        if channels == 4 and color == "RGB":
            from headrace.formats._cmyk import to_rgb  # noqa: PLC0415 - rarely needed, and brings Pillow

            image = to_rgb(image)
        return deliver(image, color=color, region=region, out=out)

    def encode(
        self, image: npt.NDArray[Any], *, mode: str | None = None, metadata: Mapping[str, bytes] | None = None
    ) -> bytes:
        quality, image = _parse_quality(mode), as_image(image)
        pixels = image[..., None] if image.ndim == 2 else image
        if pixels.ndim != 3 or pixels.shape[2] not in (1, 3) or pixels.dtype != np.uint8 or 0 in pixels.shape:
            raise UnsupportedImage(f"JPEG holds uint8 images of 1 or 3 channels, not {image.dtype} {list(image.shape)}")
        if max(pixels.shape) > 65500:
            raise UnsupportedImage(f"JPEG holds at most 65500 rows and columns, and this array is {list(image.shape)}")
        colors, subsampling = ("GRAY", "gray") if pixels.shape[2] == 1 else ("RGB", "420")
        data: bytes = simplejpeg.encode_jpeg(
            np.ascontiguousarray(pixels), quality=quality, colorspace=colors, colorsubsampling=subsampling
        )
        return jpeg_segments.insert_metadata(data, dict(metadata)) if metadata else data

    def metadata(self, data: Buffer) -> dict[str, bytes]:
        return jpeg_segments.read(byte_view(data)).metadata()


def _decode(view: memoryview, head: Segments, shape: ImageShape, out: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
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
    """Decode by Pillow what simplejpeg does not: rare ratios of chroma to luma, and all but full ratios in CMYK.

    The pixels come from the same library. Pillow passes over libjpeg's warnings; that the file ends as it should is
    then all that is checked beyond its errors.
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
            "JPEG loses: say how much, as in jpeg:95, or choose a lossless format (hri, png, webp, raw); to take JPEG "
            "files over as they are, keep them"
        )
    if not mode.isdigit() or not mode.isascii() or not 1 <= int(mode) <= 100:
        raise UnsupportedImage(f"jpeg's mode is a quality from 1 to 100, as in jpeg:95, not {mode!r}")
    return int(mode)


FORMAT: Format = Jpeg()
