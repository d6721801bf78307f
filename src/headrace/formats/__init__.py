# SPDX-License-Identifier: Apache-2.0
"""The ways to store one image as bytes, behind one small protocol: hri, jpeg, png, raw, webp.

    shape = formats.get("png").probe(data)
    image = formats.get("png").decode(data, color="RGB", region=(0, 0, 224, 224))
    data = formats.get("hri").encode(image, mode="fast")

A format's module, and with it Pillow, is imported when the format is first asked for.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, cast

from headrace.errors import HeadraceError, UnsupportedImage
from headrace.formats import exif
from headrace.formats._backends import backends, use_backend
from headrace.formats._pixels import byte_view
from headrace.formats._types import MAX_PIXELS, Color, Format, ImageShape, Region

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Buffer

__all__ = [
    "IMAGE_SUFFIXES",
    "MAX_PIXELS",
    "NAMES",
    "Color",
    "Format",
    "ImageShape",
    "Region",
    "backends",
    "decode",
    "get",
    "has_more_pages",
    "orientation",
    "parse",
    "sniff",
    "use_backend",
]

NAMES = ("hri", "jpeg", "png", "raw", "webp")

# What files are called whose images `decode` reads, in lower case: those of our formats, then the others'.
IMAGE_SUFFIXES = (
    *(".hri", ".jpg", ".jpeg", ".png", ".hrr", ".webp"),
    *(".bmp", ".gif", ".pbm", ".pgm", ".pnm", ".ppm", ".tif", ".tiff"),
    *(".apng", ".jfif", ".jpe", ".avif", ".heic", ".heif", ".j2k", ".jp2", ".jxl", ".jxr", ".npy"),
)


@functools.cache
def get(name: str) -> Format:
    """The format of that name."""
    if name not in NAMES:
        raise UnsupportedImage(f"there is no format {name!r}; the formats are {', '.join(NAMES)}")
    return cast("Format", importlib.import_module(f"headrace.formats.{name}").FORMAT)


def parse(text: str) -> tuple[Format, str | None]:
    """Read `"hri:dense"`, `"jpeg:90"` or `"png"`: the format, and its mode if one is named."""
    name, colon, mode = text.partition(":")
    if colon and not mode:
        raise UnsupportedImage(f"format {text!r} ends in a colon; write {name!r} or name a mode after it")
    return get(name), mode or None


def sniff(data: Buffer) -> str | None:
    """The name of the format that the first bytes belong to; None if it is none of ours."""
    head = bytes(byte_view(data)[:12])
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if head.startswith(b"RIFF") and head.endswith(b"WEBP"):
        return "webp"
    return {b"\x89HRI": "hri", b"\x89HRR": "raw"}.get(head[:4])


def decode(
    data: Buffer, *, color: Color = "keep", region: Region | None = None, max_pixels: int = MAX_PIXELS
) -> npt.NDArray[Any]:
    """Decode an image of whatever format its first bytes show: one of ours, or one that `foreign` reads."""
    name = sniff(data)
    if name is None:
        from headrace.formats import foreign  # noqa: PLC0415 - rarely needed, and brings Pillow

        return foreign.decode(data, color=color, region=region, max_pixels=max_pixels)
    return get(name).decode(data, color=color, region=region, max_pixels=max_pixels)


def has_more_pages(data: Buffer) -> bool:
    """Whether a file holds more than the image that `decode` gives: pages of a TIFF, frames of a GIF or APNG."""
    name = sniff(data)
    if name == "png":
        from headrace.formats.containers import _png_chunks  # noqa: PLC0415

        return _png_chunks.is_animated(byte_view(data))
    if name is not None:
        return False  # an animated WebP is refused by its decoder
    from headrace.formats import foreign  # noqa: PLC0415 - rarely needed, and brings Pillow

    return foreign.has_more_pages(data)


def orientation(data: Buffer) -> int:
    """The EXIF orientation of a file, 1 to 8: 1 for upright, for none, and for what cannot be read.

    It is recorded, never applied: pixels come as they are stored.
    """
    name = sniff(data)
    if name is None:
        return exif.UPRIGHT
    try:
        block = get(name).metadata(data).get("exif", b"")
    except HeadraceError:
        return exif.UPRIGHT
    return exif.orientation(block)
