# SPDX-License-Identifier: Apache-2.0
"""JPEG: gray, RGB and CMYK with 8 bits, decoded and encoded in the core by libjpeg-turbo.

The DCT is exact and upsampling is smooth, so the pixels equal Pillow's. What libjpeg only warns about, such as a
truncated file, is an error: an image that is half gray must not be trained on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import _core
from headrace.errors import UnsupportedImage
from headrace.formats._pixels import check_pixels, check_region, deliver, direct_out
from headrace.formats._types import Color, Format, ImageShape, Out, Region, byte_view, parse_mode
from headrace.formats.containers import _jpeg_segments as jpeg_segments

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Buffer

# The limit of libjpeg, below the 65535 of the format.
_MAX_SIDE = 65500


class Jpeg(Format):
    """JPEG File Interchange Format. The mode is the quality, 1 to 100, and must be given: JPEG is lossy."""

    name = "jpeg"
    lossless = False
    suffix = ".jpg"
    can_decode_region = True

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
        window = (0, 0, head.height, head.width) if region is None else check_region(region, head.height, head.width)
        channels = 3 if head.components == 4 and color == "RGB" else head.components
        direct = direct_out(ImageShape(*window[2:], channels, "uint8"), color, None, out)
        image = _core.decode_jpeg(view, color == "RGB", window, direct, max_pixels)
        return deliver(image, color=color, region=None, out=out)

    def _encode(self, image: npt.NDArray[Any], mode: str | None, metadata: dict[str, bytes]) -> bytes:
        if mode is None:
            raise UnsupportedImage(
                "JPEG is lossy and needs a quality, as in jpeg:95; or choose a lossless format (hri, png, webp, raw), "
                "or 'keep' to store JPEG files unchanged"
            )
        quality = parse_mode("jpeg", mode, "a quality", (1, 100), default=95)
        pixels = image[..., None] if image.ndim == 2 else image
        if pixels.shape[2] not in (1, 3) or pixels.dtype != np.uint8:
            raise UnsupportedImage(
                f"JPEG stores uint8 images with 1 or 3 channels; got {image.dtype} {list(image.shape)}"
            )
        if max(pixels.shape) > _MAX_SIDE:
            raise UnsupportedImage(f"JPEG stores at most {_MAX_SIDE} rows and columns; got {list(image.shape)}")
        data = _core.encode_jpeg(np.ascontiguousarray(pixels), quality)
        return jpeg_segments.insert_metadata(data, metadata) if metadata else data


FORMAT = Jpeg()
