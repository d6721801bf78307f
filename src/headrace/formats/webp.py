# SPDX-License-Identifier: Apache-2.0
"""WebP: reads lossless and lossy files with 8 bits, writes lossless ones; gray is marked (see containers/_riff.py)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import CorruptImage, UnsupportedImage
from headrace.formats._pixels import check_decoded, check_pixels, decoder_errors, deliver, direct_out
from headrace.formats._types import Color, Format, ImageShape, Out, Region, byte_view, parse_mode, refuse_cmyk
from headrace.formats.containers import _riff
from headrace.formats.optional import fast_decoders

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Buffer

# libwebp clears the "alpha is used" bit if all alpha values are opaque, and the image would decode to three channels.
# The bit is only a hint: the alpha values are stored in any case. It follows the RIFF header (12 bytes), the chunk
# header (8), the signature (1) and 14 bits each of width and height.
_ALPHA_BYTE = 12 + 8 + 1 + 3
_ALPHA_BIT = 0x10
_MAX_SIDE = 16383


class Webp(Format):
    """WebP. The mode is libwebp's method, 0 (fast) to 6 (small); always lossless."""

    name = "webp"
    lossless = True
    suffix = ".webp"
    can_decode_region = False

    def probe(self, data: Buffer, *, color: Color = "keep") -> ImageShape:
        return _riff.read(byte_view(data)).shape.converted(color)

    def metadata(self, data: Buffer) -> dict[str, bytes]:
        view = byte_view(data)
        return {name: bytes(view[start:end]) for name, (start, end) in _riff.read(view).blocks.items()}

    def _decode(
        self, view: memoryview, color: Color, region: Region | None, out: Out, max_pixels: int
    ) -> npt.NDArray[Any]:
        head = _riff.read(view)
        check_pixels(self.name, head.height, head.width, max_pixels)
        stored = ImageShape(head.height, head.width, 4 if head.alpha else 3, "uint8")
        gray = head.gray and color != "RGB"
        with decoder_errors(self.name):
            image = _decode(view[: head.length], stored, None if gray else direct_out(stored, color, region, out))
        check_decoded(self.name, image, stored)
        if gray:
            image = _one_channel(image)
        return deliver(image, color=color, region=region, out=out)

    def _encode(self, image: npt.NDArray[Any], mode: str | None, metadata: dict[str, bytes]) -> bytes:
        if image.dtype != np.uint8 or (image.ndim == 3 and image.shape[2] not in (3, 4)):
            raise UnsupportedImage(
                f"WebP stores uint8 images with 1, 3 or 4 channels; got {image.dtype} {list(image.shape)}; use hri or "
                "raw for any image, or png for 16 bits"
            )
        if max(image.shape[:2]) > _MAX_SIDE:
            raise UnsupportedImage(f"WebP stores 1 to {_MAX_SIDE} rows and columns; got {list(image.shape[:2])}")
        refuse_cmyk("WebP", metadata)
        method = parse_mode("webp", mode, "libwebp's method", (0, 6), default=4)
        return _riff.wrap(_encode(image, method), gray=image.ndim == 2, blocks=metadata)


def _decode(view: memoryview, shape: ImageShape, out: Out) -> npt.NDArray[Any]:
    fast = fast_decoders()
    if fast is not None:
        decoded: npt.NDArray[Any] = fast.webp_decode(view, hasalpha=shape.channels == 4, out=out)
        return decoded
    from PIL.WebPImagePlugin import WebPImageFile  # noqa: PLC0415 - Pillow is imported where it is used

    # Not Image.open, which applies Pillow's process-wide pixel limit before ours.
    return np.asarray(WebPImageFile(io.BytesIO(view)))


def _one_channel(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    gray = image[..., 1]
    if not (np.array_equal(image[..., 0], gray) and np.array_equal(image[..., 2], gray)):
        raise CorruptImage("webp: an image marked as gray must have three equal channels")
    return gray


def _encode(image: npt.NDArray[Any], method: int) -> bytes:
    from PIL import Image  # noqa: PLC0415 - Pillow is imported where it is used

    pixels = np.repeat(image[..., None], 3, axis=2) if image.ndim == 2 else np.ascontiguousarray(image)
    stream = io.BytesIO()
    # `exact` keeps the colors of transparent pixels.
    Image.fromarray(pixels).save(stream, "WEBP", lossless=True, exact=True, method=method, quality=75)
    encoded = bytearray(stream.getvalue())
    if image.ndim == 3 and image.shape[2] == 4:
        encoded[_ALPHA_BYTE] |= _ALPHA_BIT
    return bytes(encoded)


FORMAT = Webp()
