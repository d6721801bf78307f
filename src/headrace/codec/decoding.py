# SPDX-License-Identifier: Apache-2.0
"""Inspect, decode and verify `.hri` images."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np

from headrace import _core
from headrace.errors import ImageTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt
    from typing_extensions import Buffer

    Region: TypeAlias = tuple[int, int, int, int]

_PIECE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """The header of an encoded image."""

    width: int
    height: int
    channels: int
    dtype: np.dtype[Any]
    mode: Literal["fast", "dense"]
    tile_shape: tuple[int, int]
    """Rows and columns of a tile. Tiles at the right and bottom edges may be smaller."""
    metadata: Mapping[str, bytes]
    n_bytes: int
    """Size of the encoded image."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the decoded array: `(H, W)` for one channel, otherwise `(H, W, C)`."""
        if self.channels == 1:
            return (self.height, self.width)
        return (self.height, self.width, self.channels)


def inspect(data: Buffer) -> ImageInfo:
    """Read the header of an encoded image. Its checksum and tile index are verified, its tiles are not read."""
    header = _core.inspect(data)
    return ImageInfo(
        width=header.width,
        height=header.height,
        channels=header.channels,
        dtype=np.dtype(header.dtype),
        mode=cast('Literal["fast", "dense"]', header.mode),
        tile_shape=(_core.TILE_HEIGHT, header.tile_width),
        metadata=MappingProxyType(header.metadata),
        n_bytes=header.n_bytes,
    )


def decode(
    data: Buffer,
    *,
    region: Region | None = None,
    out: npt.NDArray[Any] | None = None,
    threads: int = 1,
    max_pixels: int = 2**30,
) -> npt.NDArray[Any]:
    """Decode an image or a region of it to an array `[H, W]` or `[H, W, C]` of uint8, uint16 or int16.

    Releases the GIL; any number of threads may decode at once.

    Args:
        data: The encoded image: bytes, a memoryview, an mmap, a contiguous array of bytes.
        region: `(top, left, height, width)`; only the tiles that it touches are read.
        out: Decode into this array and return it. Each row must be contiguous, but rows need not be adjacent: a slice
            of a batch or a crop of a larger array is allowed. Its contents are unspecified after an error.
        threads: Number of threads that decode tiles; 0 means one per core.
        max_pixels: Raise if more pixels than this would be decoded.

    Raises:
        CorruptImage: The bytes are damaged, truncated or not an `.hri` image.
        ImageTooLarge: More than `max_pixels` would be decoded.

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
    """Decode many images in parallel, one thread per image.

    Return a list of arrays; with `out`, an array `[N, H, W]` or `[N, H, W, C]`, decode into it and return it.

    Args:
        datas: The encoded images.
        regions: For each image a region, as for `decode`, or None for the complete image.
        out: Each row must be contiguous; images and rows need not be adjacent. Every image must have this shape.
        threads: Number of threads; 0 means one per core.
        max_pixels: Raise if more pixels than this would be decoded for one image.

    An error is raised for the first image that fails. Its message starts with the position in `datas`, which is also
    the error's `index`.

    """
    if isinstance(datas, (bytes, bytearray, memoryview)):
        raise TypeError("decode_many takes a list of encoded images; use decode for one")
    images = datas if type(datas) is list else list(datas)
    many = _core.decode_many(images, regions, out, threads, max_pixels)
    return cast("list[np.ndarray[Any, np.dtype[Any]]] | npt.NDArray[Any]", many)


def verify(data: Buffer, *, threads: int = 0, max_pixels: int = 2**30) -> None:
    """Check every tile of an image by decoding it, in pieces of at most 16 MiB or one tile.

    Raises:
        CorruptImage: The bytes are damaged, truncated or not an `.hri` image.
        ImageTooLarge: The image has more than `max_pixels`, a limit on time: memory is bounded in any case.

    """
    head = _core.inspect(data)
    if head.height * head.width > max_pixels:
        raise ImageTooLarge(
            f"the image has {head.width} x {head.height} = {head.width * head.height} pixels, more than "
            f"max_pixels={max_pixels}; raise max_pixels to verify it"
        )
    dtype = np.dtype(head.dtype)
    n_pixels = _PIECE_BYTES // (head.channels * dtype.itemsize)
    # Pieces consist of complete tiles, so that no tile is decoded twice: first as many columns as fit, then rows.
    tile_height, tile_width = _core.TILE_HEIGHT, head.tile_width
    width = min(head.width, max(1, n_pixels // (tile_height * tile_width)) * tile_width)
    height = min(head.height, max(1, n_pixels // (tile_height * width)) * tile_height)
    memory = np.empty((height, width) if head.channels == 1 else (height, width, head.channels), dtype)
    for top in range(0, head.height, height):
        for left in range(0, head.width, width):
            rows, columns = min(height, head.height - top), min(width, head.width - left)
            _core.decode(data, (top, left, rows, columns), memory[:rows, :columns], threads, rows * columns)


def matches(data: Buffer, image: npt.NDArray[Any]) -> bool:
    """Return whether a file decodes exactly to a contiguous image. Compares strip by strip, in the CPU's cache."""
    return _core.matches(data, image)
