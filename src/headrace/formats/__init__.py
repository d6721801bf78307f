# SPDX-License-Identifier: Apache-2.0
"""The formats that store one image as bytes, behind one interface: hri, jpeg, png, raw, webp.

    shape = formats.get("png").probe(data)
    image = formats.get("png").decode(data, color="RGB", region=(0, 0, 224, 224))
    data = formats.get("hri").encode(image, mode="fast")

The module of a format, and with it Pillow, is imported on first use.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, cast

from headrace import _core
from headrace.errors import HeadraceError, UnsupportedImage
from headrace.formats import exif
from headrace.formats._types import MAX_PIXELS, Color, Format, ImageShape, Region, byte_view
from headrace.formats.optional import backends

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
]

NAMES = ("hri", "jpeg", "png", "raw", "webp")

# Suffixes of the files that `decode` reads, in lower case: our formats, then others.
IMAGE_SUFFIXES = (
    *(".hri", ".jpg", ".jpeg", ".png", ".hrr", ".webp"),
    *(".bmp", ".gif", ".pbm", ".pgm", ".pnm", ".ppm", ".tif", ".tiff"),
    *(".apng", ".jfif", ".jpe", ".avif", ".heic", ".heif", ".j2k", ".jp2", ".jxl", ".jxr", ".npy"),
)


@functools.cache
def get(name: str) -> Format:
    """Return the format with this name."""
    if name not in NAMES:
        raise UnsupportedImage(f"format must be one of {', '.join(NAMES)}; got {name!r}")
    return cast("Format", importlib.import_module(f"headrace.formats.{name}").FORMAT)


def parse(text: str) -> tuple[Format, str | None]:
    """Parse `"hri:dense"`, `"jpeg:90"` or `"png"` into the format and its mode, if any."""
    name, colon, mode = text.partition(":")
    if colon and not mode:
        raise UnsupportedImage(f"format {text!r} must have a mode after the colon; or write {name!r}")
    return get(name), mode or None


def sniff(data: Buffer) -> str | None:
    """Return the name of the format that the first bytes belong to; None if it is not one of ours."""
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
    """Decode an image of any format, recognized by its first bytes: one of ours, or one that `foreign` reads."""
    name = sniff(data)
    if name is None:
        from headrace.formats import foreign  # noqa: PLC0415 - rarely needed, and brings Pillow

        return foreign.decode(data, color=color, region=region, max_pixels=max_pixels)
    return get(name).decode(data, color=color, region=region, max_pixels=max_pixels)


def has_more_pages(data: Buffer) -> bool:
    """Return whether a file contains more than the image that `decode` returns: TIFF pages, GIF or APNG frames."""
    name = sniff(data)
    if name == "png":
        return _core.is_animated_png(byte_view(data))
    if name is not None:
        return False  # the decoder refuses an animated WebP
    from headrace.formats import foreign  # noqa: PLC0415 - rarely needed, and brings Pillow

    return foreign.has_more_pages(data)


def orientation(data: Buffer) -> int:
    """Return the EXIF orientation of a file, 1 to 8. It is 1 (upright) if the file has none or cannot be read.

    `decode` does not apply it.
    """
    name = sniff(data)
    if name is None:
        return exif.UPRIGHT
    try:
        block = get(name).metadata(data).get("exif", b"")
    except HeadraceError:
        return exif.UPRIGHT
    return exif.orientation(block)
