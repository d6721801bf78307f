# SPDX-License-Identifier: Apache-2.0
"""The optional package imagecodecs: a faster backend for WebP, and the only decoder of many other formats.

The core decodes hri, png, raw and, with libjpeg-turbo, jpeg. WebP is decoded by imagecodecs if it is installed and by
Pillow otherwise: the pixels are the same. Encoding never depends on it, so that the bytes of a dataset do not.
"""

from __future__ import annotations

import functools
import importlib
import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import _core
from headrace.errors import CorruptImage, MissingExtra, UnsupportedImage
from headrace.formats._pixels import check_pixels
from headrace.formats.containers import _tiff

if TYPE_CHECKING:
    import numpy.typing as npt

SUFFIXES = {
    ".avif": "avif",
    ".heic": "heif",
    ".heif": "heif",
    ".j2k": "jpeg2k",
    ".jls": "jpegls",
    ".jp2": "jpeg2k",
    ".jxl": "jpegxl",
    ".jxr": "jpegxr",
    ".tif": "tiff",
    ".tiff": "tiff",
}
"""File suffixes and the codec of imagecodecs that decodes them."""

_BRANDS = {b"avif": "avif", b"avis": "avif", b"heic": "heif", b"heix": "heif", b"mif1": "heif", b"msf1": "heif"}
_MAGIC = {
    b"\x00\x00\x00\x0cjP  ": "jpeg2k",
    b"\xff\x4f\xff\x51": "jpeg2k",
    b"\xff\x0a": "jpegxl",
    b"\x00\x00\x00\x0cJXL ": "jpegxl",
    b"II\xbc": "jpegxr",
}
_NPY = b"\x93NUMPY"
_DTYPES = ("uint8", "uint16", "int16")


def backends() -> dict[str, str]:
    """Return the library that decodes each format in this process."""
    fast = "imagecodecs" if fast_decoders() is not None else "pillow"
    return {"hri": "headrace", "jpeg": _core.jpeg_library(), "png": "headrace", "raw": "numpy", "webp": fast}


@functools.cache
def fast_decoders() -> Any | None:
    """Return the imagecodecs module if it can decode WebP, otherwise None."""
    try:
        module = importlib.import_module("imagecodecs")
        # A build from source may lack it; accessing the attribute loads it.
        usable = module.WEBP.available
    except (ImportError, AttributeError):
        return None
    return module if usable else None


def sniff(view: memoryview) -> str | None:
    """Return the codec that the first bytes belong to; `npy` for NumPy's format."""
    head = bytes(view[:12])
    if head.startswith(_NPY):
        return "npy"
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12])
    if _tiff.is_tiff(view):
        return "tiff"
    return next((codec for magic, codec in _MAGIC.items() if head.startswith(magic)), None)


def decode(codec: str, view: memoryview, *, max_pixels: int, purpose: str) -> npt.NDArray[Any]:
    """Decode the first image of a file to `[H, W]` or `[H, W, C]` with all its bits and bands.

    `purpose` completes the sentence "imagecodecs is needed …" in the error if it is not installed.
    """
    if codec == "npy":
        array = load_npy(view, max_pixels=max_pixels)
    elif codec == "tiff":
        array = _decode_tiff(view, max_pixels, purpose)
    else:
        array = _run_codec(codec, view, purpose)
    if array.dtype == np.bool_:
        array = array.view(np.uint8) * np.uint8(255)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or array.dtype.name not in _DTYPES or 0 in array.shape:
        raise UnsupportedImage(
            f"an image must be [H, W] or [H, W, C] of {', '.join(_DTYPES)}; this {codec} file contains {array.dtype} "
            f"{list(array.shape)}: scale and round it to one of these yourself"
        )
    check_pixels(codec, array.shape[0], array.shape[1], max_pixels)
    return array


def _run_codec(codec: str, data: bytes | memoryview, purpose: str) -> npt.NDArray[Any]:
    imagecodecs = require_imagecodecs(purpose)
    try:
        array = getattr(imagecodecs, f"{codec}_decode")(data)
    except ImportError:
        raise MissingExtra(f"this build of imagecodecs has no {codec}, which is needed {purpose}") from None
    except Exception as error:  # noqa: BLE001 - each codec has its own errors
        raise CorruptImage(f"imagecodecs cannot decode it as {codec}: {error}") from None
    return np.asarray(array)


def require_imagecodecs(purpose: str) -> Any:
    """Return the imagecodecs module. If it is not installed, the error says what it is needed for."""
    try:
        return importlib.import_module("imagecodecs")
    except ImportError:
        raise MissingExtra(
            f"imagecodecs is needed {purpose}; install it with pip install 'headrace[imagecodecs]'"
        ) from None


def load_npy(data: bytes | memoryview, *, max_pixels: int) -> npt.NDArray[Any]:
    """Return a view of the array of an `.npy` file.

    `np.load` would allocate memory for any shape that the header claims. Arrays of Python objects, which could execute
    code, are refused.
    """
    stream = io.BytesIO(data)
    try:
        is_first = np.lib.format.read_magic(stream) == (1, 0)
        read_head = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read_head(stream)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise CorruptImage(f"NumPy cannot read it: {error}") from None
    follow = len(data) - stream.tell()
    if dtype.hasobject or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != follow:
        raise CorruptImage(
            f"NumPy cannot read it: its header announces {dtype} {list(shape)}, but {follow} bytes follow"
        )
    if len(shape) > 1:
        check_pixels("npy", shape[0], shape[1], max_pixels)
    array = np.frombuffer(data, dtype, offset=stream.tell()) if follow else np.empty(0, dtype)
    return array.reshape(shape, order="F" if by_columns else "C")


def _decode_tiff(view: memoryview, max_pixels: int, purpose: str) -> npt.NDArray[Any]:
    page = next(_tiff.pages(view), None)
    if page is None:
        raise CorruptImage("this TIFF file has no page")
    check_pixels("tiff", page.height, page.width, max_pixels)
    array = _run_codec("tiff", view, purpose)
    if page.is_planar and array.ndim == 3 and array.shape == (page.samples, page.height, page.width):
        array = np.ascontiguousarray(np.moveaxis(array, 0, 2))
    return array
