# SPDX-License-Identifier: Apache-2.0
"""Read the formats that images arrive in but that datasets do not store, with every bit they have.

`decode` serves `headrace build`: BMP, GIF, PNM and TIFF through Pillow, others through imagecodecs. `read_picture`
serves `headrace encode`: every format that Pillow opens, including PNG and JPEG, with Pillow's meaning of palettes and
transparent colors. Pillow silently reduces some files to 8 bits or drops bands. `_lossless_codec` recognizes these
before a pixel is decoded; they go to our own PNG decoder or to imagecodecs, or are refused.
"""

from __future__ import annotations

import importlib
import io
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.errors import CorruptImage, UnsupportedImage
from headrace.formats import optional, png
from headrace.formats._pixels import check_pixels, decoder_errors, deliver
from headrace.formats._types import MAX_PIXELS, Color, Region, byte_view, check_color
from headrace.formats.containers import _tiff

if TYPE_CHECKING:
    import numpy.typing as npt
    from PIL.ImageFile import ImageFile
    from typing_extensions import Buffer

_PLUGINS = {
    b"BM": ("BmpImagePlugin", "BmpImageFile"),
    b"GIF8": ("GifImagePlugin", "GifImageFile"),
    **{b"P%d" % number: ("PpmImagePlugin", "PpmImageFile") for number in range(1, 7)},
    **dict.fromkeys((b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"), ("TiffImagePlugin", "TiffImageFile")),
}
_MODES = ("L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I;16B")
# Pillow decodes these to 8 bits whatever they contain, and does not say what they contain.
_REDUCED_BY_PILLOW = {"AVIF": "avif", "JPEG2000": "jpeg2k"}
# Formats that Pillow lists but that need other programs or are documents, and our own.
_NOT_PICTURES = {"BUFR", "EPS", "FPX", "GRIB", "HDF5", "HRI", "MPEG", "WMF"}


def decode(
    data: Buffer, *, color: Color = "keep", region: Region | None = None, max_pixels: int = MAX_PIXELS
) -> npt.NDArray[Any]:
    """Decode the first image of a file to `[H, W]` or `[H, W, C]`, uint8 or uint16, as `Format.decode` does."""
    check_color(color)
    view = byte_view(data)
    with decoder_errors("image"):
        array = _decode(view, color, max_pixels)
    return deliver(array, color=color, region=region, out=None)


def has_more_pages(data: Buffer) -> bool:
    """Return whether a file contains more than the image that `decode` returns: TIFF pages or GIF frames."""
    view = byte_view(data)
    with decoder_errors("image"):
        if _tiff.is_tiff(view):
            return sum(1 for _ in islice(_tiff.pages(view), 2)) > 1
        return bytes(view[:4]) == b"GIF8" and bool(getattr(_open(view), "is_animated", False))


def mode(data: Buffer) -> str:
    """Return Pillow's name for the channels that `decode` returns."""
    with decoder_errors("image"):
        image = _open(byte_view(data))
        return "RGBA" if image.mode == "P" and "transparency" in image.info else image.mode


def _decode(view: memoryview, color: Color, max_pixels: int) -> npt.NDArray[Any]:
    codec = optional.sniff(view)
    if codec not in (None, "tiff"):
        return optional.decode(codec, view, max_pixels=max_pixels, purpose=f"to read {codec} files")
    try:
        image = _open(view)
        check_pixels(image.format or "foreign", image.height, image.width, max_pixels)
        if _lossless_codec(image) is None:
            return _array(image, color)
    except (SyntaxError, UnsupportedImage):  # Pillow raises SyntaxError for a TIFF file without a mode
        if codec is None:
            raise
    return optional.decode("tiff", view, max_pixels=max_pixels, purpose="to read this TIFF file with all its bits")


def _open(view: memoryview) -> ImageFile:
    head = bytes(view[:4])
    plugin = next((plugin for magic, plugin in _PLUGINS.items() if head.startswith(magic)), None)
    if plugin is None:
        raise CorruptImage(
            f"not a known image format: the bytes start with {head.hex(' ') or 'nothing'}; known are hri, jpeg, png, "
            "raw, webp, and for reading BMP, GIF, PNM, TIFF, AVIF, HEIF, JPEG 2000, JPEG XL, JPEG XR and .npy"
        )
    module, name = plugin
    # Not Image.open, which applies Pillow's process-wide pixel limit before ours.
    opened: ImageFile = getattr(importlib.import_module(f"PIL.{module}"), name)(io.BytesIO(view))
    return opened


def _lossless_codec(image: ImageFile) -> str | None:
    """Return the codec of imagecodecs that keeps what Pillow would lose of an opened image; None if it loses nothing.

    Raises:
        UnsupportedImage: Pillow would change the values, and imagecodecs has no codec for the file.

    """
    if image.format in _REDUCED_BY_PILLOW:
        return _REDUCED_BY_PILLOW[image.format]
    for decoder, _, _, arguments in image.tile:
        raw_mode, *rest = arguments if isinstance(arguments, tuple) else (arguments,)
        raw_mode = str(raw_mode)
        if decoder.startswith("ppm") and rest and rest[-1] != 255 and (image.mode, rest[-1]) != ("I", 65535):
            raise UnsupportedImage(
                f"a PNM file must have the maximum value 255, or 65535 if it is gray; this one has {rest[-1]} in mode "
                f"{image.mode}: convert it to PNG"
            )
        if image.format == "TIFF" and "X" in raw_mode:
            return "tiff"  # Pillow would drop bands
        # `BGR;15` and `BGR;16` of BMP and TGA are bits per pixel, not per sample.
        has_many_bits = re.search(r";1[0-6]", raw_mode) is not None and not raw_mode.startswith("BGR")
        if has_many_bits and not image.mode.startswith("I;16") and (image.format, image.mode) != ("PPM", "I"):
            if image.format in ("PNG", "TIFF"):
                return image.format.lower()
            raise UnsupportedImage(
                f"Pillow would reduce this {image.format} file ({raw_mode}) to 8 bits; convert it to PNG or TIFF"
            )
        if image.mode == "I" and raw_mode != "I;16B" and image.format != "PPM":
            raise UnsupportedImage(f"this {image.format} file has samples of more than 16 bits")
    return None


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
        raise UnsupportedImage(f"Pillow opens this {image.format} file in mode {image.mode!r}, which is not supported")
    array = np.asarray(image)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


class Picture(NamedTuple):
    """Pixels and the metadata blocks of their file."""

    array: npt.NDArray[Any]
    metadata: dict[str, bytes]


def readable_suffixes() -> frozenset[str]:
    """Return the file suffixes that `read_picture` reads."""
    from PIL import Image  # noqa: PLC0415 - slow to import

    known = Image.registered_extensions().items()
    pillow = {suffix for suffix, name in known if name in Image.OPEN and name not in _NOT_PICTURES}
    return frozenset(pillow | optional.SUFFIXES.keys() | {".npy"})


def read_picture(data: bytes, suffix: str, *, max_pixels: int) -> Picture:
    """Decode an image file of any format but `.hri`; `suffix` decides only if the bytes do not."""
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - slow to import

    from headrace.codec import pillow  # noqa: PLC0415 - imports Pillow

    view = memoryview(data)
    if optional.sniff(view) == "npy":
        return Picture(optional.load_npy(data, max_pixels=max_pixels), {})
    try:
        Image.MAX_IMAGE_PIXELS = None  # Pillow's limit is process-wide and only warns; `max_pixels` is checked below
        image = Image.open(io.BytesIO(data))
    except UnidentifiedImageError:
        codec = optional.sniff(view) or optional.SUFFIXES.get(suffix.lower())
        if codec is None:
            raise UnsupportedImage("neither Pillow nor imagecodecs can read this file, or it is damaged") from None
        _refuse_pages(data)
        purpose = f"to read {suffix} files"
        return Picture(optional.decode(codec, view, max_pixels=max_pixels, purpose=purpose), {})
    with image:
        _check_picture(image, data, max_pixels)
        codec = _lossless_codec(image)
        if codec is not None:
            if image.mode == "CMYK":
                raise UnsupportedImage("an .hri file cannot hold CMYK with 16 bits; convert the file to RGB")
            _refuse_pages(data)
            if codec == "png":
                array = _deep_png(view, image, max_pixels)
            else:
                purpose = f"to read this {image.format} file with all its bits"
                array = optional.decode(codec, view, max_pixels=max_pixels, purpose=purpose)
        else:
            array = _array(image, "keep") if image.mode == "I" else pillow.to_array(image)
        return Picture(array, pillow.metadata_of(image))


def _deep_png(view: memoryview, image: ImageFile, max_pixels: int) -> npt.NDArray[Any]:
    """Return the pixels of a PNG with color of 16 bits. A transparent color becomes an alpha channel, as in Pillow."""
    array = png.FORMAT.decode(view, max_pixels=max_pixels)
    image.load()  # metadata may follow the pixels
    key = image.info.get("transparency")
    if key is None:
        return array
    opaque = (array != key).any(axis=2, keepdims=True)
    return np.concatenate((array, opaque * np.uint16(65535)), axis=2)


def _check_picture(image: ImageFile, data: bytes, max_pixels: int) -> None:
    if image.format == "HRI":
        raise UnsupportedImage("this is already an .hri image; use headrace decode to read it")
    check_pixels(str(image.format), image.height, image.width, max_pixels)
    # An MPO is a photograph followed by previews or a second view. A TIFF file may have smaller copies of its page.
    is_animated = getattr(image, "is_animated", False) and image.format != "MPO"
    if is_animated and (image.format != "TIFF" or has_more_pages(data)):
        raise UnsupportedImage(
            f"an .hri file holds one image; this file has {getattr(image, 'n_frames', 'several')} frames: save each as "
            "a file of its own"
        )


def _refuse_pages(data: bytes) -> None:
    if _tiff.is_tiff(memoryview(data)) and has_more_pages(data):
        raise UnsupportedImage("an .hri file holds one image; this file has several pages: save each as its own file")
