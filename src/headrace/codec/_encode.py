# SPDX-License-Identifier: Apache-2.0
"""From pixels to bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from headrace import _core
from headrace.codec._metadata import pack_metadata
from headrace.codec.images import as_image

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt


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
    return _core.encode(as_image(image), mode, pack_metadata(metadata) if metadata else b"", threads)
