# SPDX-License-Identifier: Apache-2.0
"""JPEG: 8-bit gray, RGB and CMYK, decoded and encoded in the core by libjpeg-turbo.

The pixels are Pillow's: exact DCT, smooth upsampling. What libjpeg only warns about, such as a file that ends early, is
an error here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import _core
from headrace.codec.images import as_image
from headrace.errors import UnsupportedImage
from headrace.formats._pixels import (
    byte_view,
    check_color,
    check_pixels,
    check_region,
    deliver,
    direct_out,
)
from headrace.formats._types import MAX_PIXELS, Color, Format, ImageShape, Region
from headrace.formats.containers import _jpeg_segments as jpeg_segments

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from typing_extensions import Buffer

# libjpeg's own limit, below the 65535 of the format.
_MAX_SIDE = 65500


class Jpeg:
    """JPEG File Interchange Format. The mode is the quality, 1 to 100, and must be given: it loses."""

    name = "jpeg"
    lossless = False
    suffix = ".jpg"
    can_decode_region = True

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
        window = (0, 0, head.height, head.width) if region is None else check_region(region, head.height, head.width)
        shape = ImageShape(
            head.height, head.width, 3 if head.components == 4 and color == "RGB" else head.components, "uint8"
        )
        image = _core.decode_jpeg(view, color == "RGB", window, direct_out(shape, color, region, out), max_pixels)
        return deliver(image, color=color, region=None, out=out)

    def encode(
        self, image: npt.NDArray[Any], *, mode: str | None = None, metadata: Mapping[str, bytes] | None = None
    ) -> bytes:
        quality, image = _parse_quality(mode), as_image(image)
        pixels = image[..., None] if image.ndim == 2 else image
        if pixels.ndim != 3 or pixels.shape[2] not in (1, 3) or pixels.dtype != np.uint8 or 0 in pixels.shape:
            raise UnsupportedImage(f"JPEG holds uint8 images of 1 or 3 channels, not {image.dtype} {list(image.shape)}")
        if max(pixels.shape) > _MAX_SIDE:
            raise UnsupportedImage(
                f"JPEG holds at most {_MAX_SIDE} rows and columns, and this array is {list(image.shape)}"
            )
        data = _core.encode_jpeg(np.ascontiguousarray(pixels), quality)
        return jpeg_segments.insert_metadata(data, dict(metadata)) if metadata else data

    def metadata(self, data: Buffer) -> dict[str, bytes]:
        return jpeg_segments.read(byte_view(data)).metadata()


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
