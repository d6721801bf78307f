# SPDX-License-Identifier: Apache-2.0
"""From bytes to pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from headrace import _core
from headrace.errors import ImageTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt
    from typing_extensions import Buffer

    Region: TypeAlias = tuple[int, int, int, int]

_PIECE_BYTES = 16 << 20


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


def verify(data: Buffer, *, threads: int = 0, max_pixels: int = 2**30) -> None:
    """Decode every tile of an image and keep none, in pieces of at most 16 MiB or one tile.

    Raises:
        CorruptImage: The bytes are damaged, truncated or no `.hri` image at all.
        ImageTooLarge: The image has more than `max_pixels`; the limit bounds the time, for memory is bounded anyway.

    """
    head = _core.inspect(data)
    if head.height * head.width > max_pixels:
        raise ImageTooLarge(
            f"the image has {head.width} x {head.height} = {head.width * head.height} pixels, more than "
            f"max_pixels={max_pixels}; raise max_pixels to verify it all the same"
        )
    dtype = np.dtype(head.dtype)
    n_pixels = _PIECE_BYTES // (head.channels * dtype.itemsize)
    # Whole tiles, so that none is decoded twice: as many side by side as fit, then as many rows of them.
    tile_height, tile_width = _core.TILE_HEIGHT, head.tile_width
    width = min(head.width, max(1, n_pixels // (tile_height * tile_width)) * tile_width)
    height = min(head.height, max(1, n_pixels // (tile_height * width)) * tile_height)
    memory = np.empty((height, width) if head.channels == 1 else (height, width, head.channels), dtype)
    for top in range(0, head.height, height):
        for left in range(0, head.width, width):
            rows, columns = min(height, head.height - top), min(width, head.width - left)
            _core.decode(data, (top, left, rows, columns), memory[:rows, :columns], threads, rows * columns)


def matches(data: Buffer, image: npt.NDArray[Any]) -> bool:
    """Whether a file decodes to the very pixels, depth and channels of a contiguous image, strip by strip in cache."""
    return _core.matches(data, image)
