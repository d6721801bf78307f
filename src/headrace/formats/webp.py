# SPDX-License-Identifier: Apache-2.0
"""WebP: reads lossless and lossy files of 8 bit, writes lossless ones; gray by a mark of our own (see _riff.py)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.codec.images import as_image
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
from headrace.formats.containers import _riff

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from typing_extensions import Buffer

# libwebp clears the bit that says "alpha is used" if all of it is opaque, and the image would come back with three
# channels. It is a hint: the alpha values are in the stream either way. RIFF head 12, chunk head 8, signature 1, then
# 14 bits each of width and height, then this bit.
_ALPHA_BYTE = 12 + 8 + 1 + 3
_ALPHA_BIT = 0x10
_LARGEST_SIDE = 16383
_DEFAULT_METHOD = 4


class Webp:
    """WebP. The mode is libwebp's method, 0 (fast) to 6 (small); always lossless."""

    name = "webp"
    lossless = True
    suffix = ".webp"
    can_decode_region = False

    def probe(self, data: Buffer, *, color: Color = "keep") -> ImageShape:
        return _riff.read(byte_view(data)).shape.converted(color)

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

    def encode(
        self, image: npt.NDArray[Any], *, mode: str | None = None, metadata: Mapping[str, bytes] | None = None
    ) -> bytes:
        blocks = dict(metadata or {})
        image = as_image(image)
        if image.ndim == 3 and image.shape[2] == 1:
            image = image[..., 0]
        if image.dtype != np.uint8 or (image.ndim != 2 and (image.ndim != 3 or image.shape[2] not in (3, 4))):
            raise UnsupportedImage(
                f"WebP holds uint8 images of 1, 3 or 4 channels, not {image.dtype} {list(image.shape)}; hri and raw "
                "hold any, png 16 bit"
            )
        if 0 in image.shape or max(image.shape[:2]) > _LARGEST_SIDE:
            raise UnsupportedImage(f"WebP holds 1 to {_LARGEST_SIDE} rows and columns, not {list(image.shape[:2])}")
        if blocks.get("color") == b"CMYK":
            raise UnsupportedImage("WebP holds no CMYK; use hri or raw, or convert the image to RGB")
        return _riff.wrap(_encode(image, _parse_method(mode)), gray=image.ndim == 2, blocks=blocks)

    def metadata(self, data: Buffer) -> dict[str, bytes]:
        view = byte_view(data)
        return {name: bytes(view[start:end]) for name, (start, end) in _riff.read(view).blocks.items()}


def _decode(view: memoryview, shape: ImageShape, out: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    fast = imagecodecs()
    if fast is not None:
        decoded: npt.NDArray[Any] = fast.webp_decode(view, hasalpha=shape.channels == 4, out=out)
        return decoded
    from PIL.WebPImagePlugin import WebPImageFile  # noqa: PLC0415 - Pillow is imported where it is used

    # Not Image.open: its own bomb check, a process-wide setting, would come before max_pixels.
    return np.asarray(WebPImageFile(io.BytesIO(view)))


def _one_channel(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    gray = image[..., 1]
    if not (np.array_equal(image[..., 0], gray) and np.array_equal(image[..., 2], gray)):
        raise CorruptImage("webp: an image marked as gray has colors")
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


def _parse_method(mode: str | None) -> int:
    if mode is None:
        return _DEFAULT_METHOD
    if len(mode) != 1 or mode not in "0123456":
        raise UnsupportedImage(f"webp's mode is libwebp's method, as in webp:4, from 0 to 6, not {mode!r}")
    return int(mode)


FORMAT: Format = Webp()
