# SPDX-License-Identifier: Apache-2.0
"""Headrace's own format, decoded and encoded by `headrace.codec`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from headrace import codec
from headrace.errors import UnsupportedImage
from headrace.formats._pixels import cmyk_to_rgb, deliver
from headrace.formats._types import Color, Format, ImageShape, Out, Region, byte_view

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Buffer

_MODES = ("dense", "fast")


class Hri(Format):
    """`.hri`, in mode `dense` (the default) or `fast`. The metadata entry `color` may be `CMYK`."""

    name = "hri"
    lossless = True
    suffix = ".hri"
    can_decode_region = True

    def probe(self, data: Buffer, *, color: Color = "keep") -> ImageShape:
        head = codec.inspect(byte_view(data))
        return ImageShape(head.height, head.width, head.channels, head.dtype.name).converted(color)

    def metadata(self, data: Buffer) -> dict[str, bytes]:
        return dict(codec.inspect(byte_view(data)).metadata)

    def _decode(
        self, view: memoryview, color: Color, region: Region | None, out: Out, max_pixels: int
    ) -> npt.NDArray[Any]:
        head = codec.inspect(view) if color == "RGB" else None
        if head is None or head.channels == 3:
            return codec.decode(view, region=region, out=out, max_pixels=max_pixels)
        image = codec.decode(view, region=region, max_pixels=max_pixels)
        if head.channels == 4 and head.metadata.get("color") == b"CMYK":
            image = cmyk_to_rgb(image)
        return deliver(image, color=color, region=None, out=out)

    def _encode(self, image: npt.NDArray[Any], mode: str | None, metadata: dict[str, bytes]) -> bytes:
        if mode not in (None, *_MODES):
            raise UnsupportedImage(f"hri has the modes {' and '.join(_MODES)}, as in hri:fast; got {mode!r}")
        return codec.encode(image, mode=cast('Literal["fast", "dense"]', mode or "dense"), metadata=metadata)


FORMAT = Hri()
