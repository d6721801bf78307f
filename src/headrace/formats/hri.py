# SPDX-License-Identifier: Apache-2.0
"""Headrace's own format, by the codec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from headrace import codec
from headrace.errors import UnsupportedImage
from headrace.formats._pixels import byte_view, check_color, deliver
from headrace.formats._types import MAX_PIXELS, Color, Format, ImageShape, Region

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from typing_extensions import Buffer

_MODES = ("dense", "fast")


class Hri:
    """`.hri`, in mode `dense` (the default) or `fast`. The key `color` of its metadata may say `CMYK`."""

    name = "hri"
    lossless = True
    suffix = ".hri"
    can_decode_region = True

    def probe(self, data: Buffer, *, color: Color = "keep") -> ImageShape:
        head = codec.inspect(byte_view(data))
        return ImageShape(head.height, head.width, head.channels, head.dtype.name).converted(color)

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
        if color != "RGB":
            return codec.decode(view, region=region, out=out, max_pixels=max_pixels)
        head = codec.inspect(view)
        if head.channels == 3:
            return codec.decode(view, region=region, out=out, max_pixels=max_pixels)
        image = codec.decode(view, region=region, max_pixels=max_pixels)
        if head.channels == 4 and head.metadata.get("color") == b"CMYK":
            image = _cmyk_to_rgb(image)
        return deliver(image, color=color, region=None, out=out)

    def encode(
        self, image: npt.NDArray[Any], *, mode: str | None = None, metadata: Mapping[str, bytes] | None = None
    ) -> bytes:
        if mode not in (None, *_MODES):
            raise UnsupportedImage(f"hri's modes are {' and '.join(_MODES)}, as in hri:fast, not {mode!r}")
        chosen = cast('Literal["fast", "dense"]', mode or "dense")
        return codec.encode(image, mode=chosen, metadata=metadata)

    def metadata(self, data: Buffer) -> dict[str, bytes]:
        return dict(codec.inspect(byte_view(data)).metadata)


def _cmyk_to_rgb(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if image.dtype != np.uint8:
        raise UnsupportedImage(f"CMYK of {image.dtype} has no RGB that others agree on; decode it with color='keep'")
    from headrace.formats._cmyk import to_rgb  # noqa: PLC0415 - rarely needed, and brings Pillow

    return to_rgb(image)


FORMAT: Format = Hri()
