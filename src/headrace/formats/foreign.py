# SPDX-License-Identifier: Apache-2.0
"""Formats that datasets arrive in and are not kept in: BMP, GIF, PNM and TIFF, read by Pillow, and those of `_deep`.

Pillow cuts 16-bit color and odd depths down to 8 bit and drops extra bands without a word: such TIFF files are decoded
by imagecodecs, and others are refused.
"""

from __future__ import annotations

import importlib
import io
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import CorruptImage, UnsupportedImage
from headrace.formats import deep
from headrace.formats._pixels import byte_view, check_color, check_pixels, decoder_errors, deliver
from headrace.formats._types import MAX_PIXELS, Color, Region
from headrace.formats.containers import _tiff

if TYPE_CHECKING:
    import numpy.typing as npt
    from PIL.ImageFile import ImageFile
    from typing_extensions import Buffer

_PLUGINS = {
    b"BM": ("BmpImagePlugin", "BmpImageFile"),
    b"GIF8": ("GifImagePlugin", "GifImageFile"),
    b"P1": ("PpmImagePlugin", "PpmImageFile"),
    b"P2": ("PpmImagePlugin", "PpmImageFile"),
    b"P3": ("PpmImagePlugin", "PpmImageFile"),
    b"P4": ("PpmImagePlugin", "PpmImageFile"),
    b"P5": ("PpmImagePlugin", "PpmImageFile"),
    b"P6": ("PpmImagePlugin", "PpmImageFile"),
    b"II*\0": ("TiffImagePlugin", "TiffImageFile"),
    b"MM\0*": ("TiffImagePlugin", "TiffImageFile"),
    b"II+\0": ("TiffImagePlugin", "TiffImageFile"),
    b"MM\0+": ("TiffImagePlugin", "TiffImageFile"),
}
_MODES = ("L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I;16B")


def decode(
    data: Buffer, *, color: Color = "keep", region: Region | None = None, max_pixels: int = MAX_PIXELS
) -> npt.NDArray[Any]:
    """Decode the first image of a file to `[H, W]` or `[H, W, C]`, uint8 or uint16, as `Format.decode` would."""
    check_color(color)
    view = byte_view(data)
    with decoder_errors("image"):
        array = _decode(view, color, max_pixels)
    return deliver(array, color=color, region=region, out=None)


def has_more_pages(data: Buffer) -> bool:
    """Whether a file holds more than the image that `decode` gives: pages of a TIFF, frames of a GIF."""
    view = byte_view(data)
    with decoder_errors("image"):
        if _tiff.is_tiff(view):
            return sum(1 for _ in islice(_tiff.pages(view), 2)) > 1
        return bytes(view[:4]) == b"GIF8" and bool(getattr(_open(view), "is_animated", False))


def _decode(view: memoryview, color: Color, max_pixels: int) -> npt.NDArray[Any]:
    codec = deep.sniff(view)
    if codec not in (None, "tiff"):
        return deep.decode(codec, view, max_pixels=max_pixels, purpose=f"to read {codec} files")
    try:
        image = _open(view)
        check_pixels(image.format or "foreign", image.height, image.width, max_pixels)
        _refuse_loss(image)
        return _array(image, color)
    except (SyntaxError, UnsupportedImage):  # a SyntaxError is how Pillow says that it has no mode for a TIFF
        if codec is None:
            raise
        return deep.decode(codec, view, max_pixels=max_pixels, purpose="to read this TIFF file with all its bits")


def mode(data: Buffer) -> str:
    """Pillow's name for the channels that `decode` gives."""
    with decoder_errors("image"):
        image = _open(byte_view(data))
        return "RGBA" if image.mode == "P" and "transparency" in image.info else image.mode


def _open(view: memoryview) -> ImageFile:
    head = bytes(view[:4])
    plugin = next((plugin for magic, plugin in _PLUGINS.items() if head.startswith(magic)), None)
    if plugin is None:
        raise CorruptImage(
            f"these bytes, which start with {head.hex(' ') or 'nothing'}, are of no known format; known are hri, jpeg, "
            "png, raw, webp, and for reading BMP, GIF, PNM, TIFF, AVIF, HEIF, JPEG 2000, JPEG XL, JPEG XR and NumPy's"
        )
    module, name = plugin
    # Not Image.open: its own bomb check, a process-wide setting, would come before max_pixels.
    opened: ImageFile = getattr(importlib.import_module(f"PIL.{module}"), name)(io.BytesIO(view))
    return opened


def _refuse_loss(image: ImageFile) -> None:
    """Refuse what Pillow would read with other values than the file has."""
    for codec, _, _, arguments in image.tile:
        raw_mode, *rest = arguments if isinstance(arguments, tuple) else (arguments,)
        if codec.startswith("ppm") and rest and rest[0] != 255 and (image.mode, rest[0]) != ("I", 65535):
            raise UnsupportedImage(f"this PNM file's largest value is {rest[0]}; convert it to PNG")
        if image.format == "TIFF" and ";16" in str(raw_mode) and not image.mode.startswith("I;16"):
            raise UnsupportedImage("Pillow cannot hold the 16-bit samples of this TIFF file")
        if image.format == "TIFF" and "X" in str(raw_mode):
            raise UnsupportedImage("Pillow would drop bands of this TIFF file")
        if image.mode == "I" and raw_mode != "I;16B" and image.format != "PPM":
            raise UnsupportedImage(f"this {image.format} file has samples of more than 16 bits")


def _array(image: ImageFile, color: Color) -> npt.NDArray[Any]:
    if image.mode == "1":
        return np.asarray(image) * np.uint8(255)
    if image.mode == "I":
        return np.asarray(image).astype(np.uint16)
    if image.mode == "P" and color != "index":
        return np.asarray(image.convert("RGBA" if "transparency" in image.info else "RGB"))
    if image.mode == "CMYK" and color == "RGB":
        return np.asarray(image.convert("RGB"))
    if image.mode not in _MODES:
        raise UnsupportedImage(
            f"Pillow opens this {image.format} file in mode {image.mode!r}, which has no array of ours"
        )
    array = np.asarray(image)
    return array.astype(array.dtype.newbyteorder("="), copy=False)
