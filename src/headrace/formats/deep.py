# SPDX-License-Identifier: Apache-2.0
"""Image files that Pillow does not read, or reads with fewer bits or bands than they have: decoded by imagecodecs.

imagecodecs is an optional package; NumPy's own files need none.
"""

from __future__ import annotations

import importlib
import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

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
    ".png": "png",
    ".tif": "tiff",
    ".tiff": "tiff",
}
"""What files are called, and the codec of imagecodecs that decodes them."""

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


def sniff(view: memoryview) -> str | None:
    """The codec that the first bytes belong to; `npy` for NumPy's."""
    head = bytes(view[:12])
    if head.startswith(_NPY):
        return "npy"
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12])
    if _tiff.is_tiff(view):
        return "tiff"
    return next((codec for magic, codec in _MAGIC.items() if head.startswith(magic)), None)


def decode(codec: str, view: memoryview, *, max_pixels: int, purpose: str) -> npt.NDArray[Any]:
    """Decode the first image of a file to `[H, W]` or `[H, W, C]` with all its bits and bands."""
    if codec == "npy":
        array = load_npy(view, max_pixels=max_pixels)
    elif codec == "tiff":
        array = _decode_tiff(view, max_pixels, purpose)
    else:
        array = run_codec(codec, view, purpose)
    if array.dtype == np.bool_:
        array = array.view(np.uint8) * np.uint8(255)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or array.dtype.name not in _DTYPES or 0 in array.shape:
        raise UnsupportedImage(
            f"an image must be [H, W] or [H, W, C] of {', '.join(_DTYPES)}; this {codec} file holds {array.dtype} "
            f"{list(array.shape)}: scale and round it to one of these yourself"
        )
    check_pixels(codec, array.shape[0], array.shape[1], max_pixels)
    return array


def run_codec(codec: str, data: bytes | memoryview, purpose: str, **options: Any) -> npt.NDArray[Any]:
    """Call a codec of imagecodecs; its absence is an error that says why it is needed and how to get it."""
    imagecodecs = require_imagecodecs(purpose)
    try:
        array = getattr(imagecodecs, f"{codec}_decode")(data, **options)
    except ImportError:
        raise MissingExtra(f"this build of imagecodecs has no {codec}, which is needed {purpose}") from None
    except Exception as error:  # noqa: BLE001 - each codec has errors of its own
        raise CorruptImage(f"imagecodecs cannot decode it as {codec}: {error}") from None
    return np.asarray(array)


def require_imagecodecs(purpose: str) -> Any:
    """The imagecodecs package, or an error that says why and how to get it."""
    try:
        return importlib.import_module("imagecodecs")
    except ImportError:
        raise MissingExtra(
            f"imagecodecs is needed {purpose}; install it with pip install 'headrace[imagecodecs]'"
        ) from None


def load_npy(data: bytes | memoryview, *, max_pixels: int) -> npt.NDArray[Any]:
    """View the array of an `.npy` file. Not np.load, which makes room for whatever shape the head claims.

    One that holds Python objects, which could be code, is refused.
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
        raise CorruptImage(f"NumPy cannot read it: its head says {dtype} {list(shape)}, and {follow} bytes follow")
    if len(shape) > 1:
        check_pixels("npy", shape[0], shape[1], max_pixels)
    array = np.frombuffer(data, dtype, offset=stream.tell()) if follow else np.empty(0, dtype)
    return array.reshape(shape, order="F" if by_columns else "C")


def _decode_tiff(view: memoryview, max_pixels: int, purpose: str) -> npt.NDArray[Any]:
    page = next(_tiff.pages(view), None)
    if page is None:
        raise CorruptImage("this TIFF file has no page")
    check_pixels("tiff", page.height, page.width, max_pixels)
    array = run_codec("tiff", view, purpose)
    if page.is_planar and array.ndim == 3 and array.shape == (page.samples, page.height, page.width):
        array = np.ascontiguousarray(np.moveaxis(array, 0, 2))
    return array
