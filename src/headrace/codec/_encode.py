# SPDX-License-Identifier: Apache-2.0
"""From pixels to bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headrace import _core
from headrace.codec._metadata import pack_metadata
from headrace.errors import UnsupportedImage

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

_DTYPES = frozenset(map(np.dtype, ("uint8", "uint16", "int16")))

_REMEDIES = {
    "b": "mask.astype(np.uint8) keeps it",
    "f": "scale and round it to uint8 or uint16 yourself: the format is lossless and does not round",
    "i": "if the values fit, .astype(np.uint8), np.uint16 or np.int16",
    "u": "if the values fit, .astype(np.uint8) or np.uint16",
}


def encode(
    image: npt.ArrayLike,
    *,
    mode: Literal["fast", "dense"] = "dense",
    metadata: Mapping[str, bytes | str] | None = None,
    threads: int = 1,
) -> bytes:
    """Encode an image losslessly.

    Args:
        image: An array `[H, W]` or `[H, W, C]` of uint8, uint16 or int16 with any strides, or what NumPy can view as
            one; up to 65535 rows and columns and 64 channels. `[H, W, 1]` is the same image as `[H, W]`.
        mode: "dense" for fewer bytes, "fast" for faster decoding.
        metadata: Carried along and given back by `inspect`. "icc", "exif" and "xmp" hold those blocks; other keys are
            free. Text is stored as UTF-8.
        threads: Over how many threads to spread the tiles; 0 takes every core. The bytes do not depend on it.

    Raises:
        UnsupportedImage: Another dtype or shape; the message says how to convert.

    The GIL is released while encoding.

    """
    return _core.encode(_as_image(image), mode, pack_metadata(metadata) if metadata else b"", threads)


def _as_image(image: npt.ArrayLike) -> npt.NDArray[Any]:
    """The array itself if the core can read it; a converted one if nothing is lost by that; otherwise an error."""
    if getattr(image, "mode", None) in {"P", "PA"} and hasattr(image, "getpalette"):
        raise UnsupportedImage(
            "this Pillow image holds indices into a palette; encode image.convert('RGB'), or import "
            "headrace.codec.pillow and save it as .hri"
        )
    array = image if type(image) is np.ndarray else np.asarray(image)
    if array.dtype not in _DTYPES:
        native = array.dtype.newbyteorder("=")
        if native not in _DTYPES:
            remedy = _REMEDIES.get(array.dtype.kind, "an image is an array of numbers")
            raise UnsupportedImage(f"an image is uint8, uint16 or int16, and this array is {array.dtype}: {remedy}")
        array = array.astype(native)
    _check_shape(array.shape)
    return array


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) not in (2, 3):
        remedy = "; encode the images of a batch one by one" if len(shape) == 4 else ""
        raise UnsupportedImage(f"an image is [H, W] or [H, W, C], and this array is {list(shape)}{remedy}")
    if 0 in shape:
        raise UnsupportedImage(f"an image has at least one pixel, and this array is {list(shape)}")
    if max(shape[:2]) > 65535:
        raise UnsupportedImage(f"an image has at most 65535 rows and columns, and this array is {list(shape)}; cut it")
    if len(shape) == 3 and shape[2] > 64:
        raise UnsupportedImage(
            f"an image is [H, W, C] with at most 64 channels, and this array is {list(shape)}; "
            "if it is [C, H, W], encode image.transpose(1, 2, 0), which costs no copy"
        )
