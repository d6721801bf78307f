# SPDX-License-Identifier: Apache-2.0
"""From bytes to pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headrace import _core

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer

    Region: TypeAlias = tuple[int, int, int, int]


def decode(
    data: Buffer,
    *,
    region: Region | None = None,
    out: npt.NDArray[Any] | None = None,
    threads: int = 1,
    max_pixels: int = 2**30,
) -> npt.NDArray[Any]:
    """Decode an image, or a region of it, to an array `[H, W]` or `[H, W, C]` of uint8, uint16 or int16.

    Args:
        data: The encoded image: bytes, a memoryview, an mmap, a contiguous array of bytes.
        region: `(top, left, height, width)`; only the tiles that it touches are read.
        out: Decode into this array and return it. Its rows must be contiguous; they may be any distance apart, so a
            slice of a batch or a crop of a larger image will do. After an error its contents are unspecified.
        threads: Over how many threads to spread the tiles; 0 takes every core.
        max_pixels: Refuse to produce more pixels than this.

    Raises:
        CorruptImage: The bytes are damaged, truncated or no `.hri` image at all.
        ImageTooLarge: More than `max_pixels` would be produced.

    The GIL is released while decoding; any number of threads may decode at once.

    """
    return _core.decode(data, region, out, threads, max_pixels)


def decode_many(
    datas: Iterable[Buffer],
    *,
    regions: Sequence[Region | None] | None = None,
    out: npt.NDArray[Any] | None = None,
    threads: int = 0,
    max_pixels: int = 2**30,
) -> list[np.ndarray[Any, np.dtype[Any]]] | npt.NDArray[Any]:
    """Decode many images at once, each on one of `threads` threads (0: one a core).

    Without `out` the result is a list of arrays, whether their shapes agree or not. With `out`, an array
    `[N, H, W]` or `[N, H, W, C]` that every image must fit, the images are decoded into it and it is returned.

    Args:
        datas: The encoded images.
        regions: For each image a region, as for `decode`, or None for the whole of it.
        out: Rows must be contiguous; images and rows may be any distance apart.
        threads: How many threads share the images.
        max_pixels: Refuse to produce more pixels than this for any one image.

    An error is raised for the first image that is at fault: the message begins with its position in `datas`, which is
    also the error's `index`.

    """
    if isinstance(datas, (bytes, bytearray, memoryview)):
        raise TypeError("decode_many takes several encoded images; for one, use decode")
    images = datas if type(datas) is list else list(datas)
    many = _core.decode_many(images, regions, out, threads, max_pixels)
    return cast("list[np.ndarray[Any, np.dtype[Any]]] | npt.NDArray[Any]", many)


def matches(data: Buffer, image: npt.NDArray[Any]) -> bool:
    """Whether a file decodes to the very pixels, depth and channels of a contiguous image, strip by strip in cache."""
    return _core.matches(data, image)
