# SPDX-License-Identifier: Apache-2.0
"""What the host knows of a batch before anything is copied: validated headers, the tiles that regions touch, ranks.

Headers and indices pass the core's own validator. All that is left for a device to doubt is what is inside of tiles.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.codec import inspect
from headrace.errors import CorruptImage, HeadraceError, ImageTooLarge, InvalidRegion
from headrace.kernels._fields import ALIGNMENT, LANES, Image, Kind, Sample, Tile

if TYPE_CHECKING:
    from headrace.codec import ImageInfo

Ints: TypeAlias = npt.NDArray[np.int64]
Region: TypeAlias = tuple[int, int, int, int]

_FIXED = struct.Struct("<16xII")  # the bytes of metadata and of ranks


@dataclass(frozen=True)
class Description:
    """A batch as the host sees it. Columns of the tables that hang on the output or on scratch are still 0."""

    tiles: Ints  # [Tile, tiles]
    images: Ints  # [Image, images]
    ranks: npt.NDArray[np.int32]
    payload_bytes: int


def describe(datas: Sequence[Any], regions: Sequence[Region | None] | None, max_pixels: int) -> Description:
    """Validate headers and regions, list the tiles that are needed and give each its place in the payload."""
    if regions is not None and len(regions) != len(datas):
        raise ValueError(f"there are {len(datas)} images but {len(regions)} regions; give one, or None, for each")
    tables: list[Ints] = []
    images = np.zeros((len(Image), len(datas)), np.int64)
    ranks: list[npt.NDArray[np.int32]] = []
    for index, data in enumerate(datas):
        try:
            file = np.frombuffer(data, np.uint8)
            head = inspect(memoryview(data))
            region = _checked_region(None if regions is None else regions[index], head, max_pixels)
            own_ranks = _ranks(file, head)
            bits = 8 if head.dtype.itemsize == 1 or 2 <= len(own_ranks) <= 256 else 16
            tables.append(_touched_tiles(file, head, region, bits))
        except HeadraceError as error:
            raise _indexed(error, index) from None
        tables[-1][Tile.IMAGE] = index
        images[Image.HEIGHT, index], images[Image.WIDTH, index] = region[2:]
        images[Image.CHANNELS, index] = head.channels
        images[Image.DTYPE, index] = Sample[head.dtype.name.upper()]
        images[Image.RANKS, index] = sum(map(len, ranks))
        images[Image.RANK_COUNT, index] = len(own_ranks)
        ranks.append(own_ranks)
    tiles = np.concatenate(tables, axis=1) if tables else np.zeros((len(Tile), 0), np.int64)
    ends = np.cumsum(-(-tiles[Tile.LENGTH] // ALIGNMENT) * ALIGNMENT)
    tiles[Tile.AT, 1:] = ends[:-1]
    every_rank = np.concatenate(ranks) if ranks else np.zeros(0, np.int32)
    return Description(tiles, images, every_rank, int(ends[-1]) if len(ends) else 0)


def copy_tiles(datas: Sequence[Any], tiles: Ints, payload: npt.NDArray[np.uint8]) -> None:
    """Check the sums of the tiles and copy them to their places. What lies between tiles is left as it is."""
    columns = (Tile.IMAGE, Tile.NUMBER, Tile.SOURCE, Tile.LENGTH, Tile.SUM, Tile.AT)
    for image, number, source, length, checksum, at in zip(*(tiles[row].tolist() for row in columns), strict=True):
        own = memoryview(datas[image]).cast("B")[source : source + length]
        if _core.crc32c(own, 0) != checksum:
            raise _indexed(_corrupt("the checksum of the tile does not match", number, source), image)
        payload[at : at + length] = np.frombuffer(own, np.uint8)


def _checked_region(region: Region | None, head: ImageInfo, max_pixels: int) -> Region:
    top, left, height, width = (0, 0, head.height, head.width) if region is None else map(int, region)
    if min(top, left) < 0 or min(height, width) < 1 or top + height > head.height or left + width > head.width:
        raise InvalidRegion(
            f"region {region}, as (top, left, height, width), is not within the {head.height} rows and {head.width} "
            "columns of the image, or is empty"
        )
    if height * width > max_pixels:
        raise ImageTooLarge(
            f"{height} x {width} are {height * width} pixels, more than max_pixels={max_pixels}; decode a region, or "
            "raise max_pixels if you trust the file"
        )
    return top, left, height, width


def _ranks(file: npt.NDArray[np.uint8], head: ImageInfo) -> npt.NDArray[np.int32]:
    """The values in use of a file with a valid header, in ascending order; none if all are (spec §4)."""
    metadata_bytes, rank_bytes = _FIXED.unpack(file[:24].tobytes())
    section = file[24 + metadata_bytes :][:rank_bytes]
    if rank_bytes == 0:
        return np.zeros(0, np.int32)
    if section[0] == 0:
        return section[5:].view(f"<u{head.dtype.itemsize}").astype(np.int32)
    first = int(section[1]) + 256 * int(section[2])
    return (first + np.flatnonzero(np.unpackbits(section[3:], bitorder="little"))).astype(np.int32)


def _touched_tiles(file: npt.NDArray[np.uint8], head: ImageInfo, region: Region, bits: int) -> Ints:
    """The columns of the table for the tiles that a region touches."""
    top, left, height, width = region
    across, down = -(-head.width // head.tile_shape[1]), -(-head.height // LANES)
    start = 24 + sum(_FIXED.unpack(file[:24].tobytes()))
    lengths, sums = (
        file[start + 4 * part * across * down :][: 4 * across * down].view("<u4").astype(np.int64) for part in (0, 1)
    )
    sources = start + 8 * across * down + 4 + np.cumsum(lengths) - lengths
    rows = np.arange(top // LANES, (top + height - 1) // LANES + 1)
    columns = np.arange(left // head.tile_shape[1], (left + width - 1) // head.tile_shape[1] + 1)
    y, x = (grid.ravel() for grid in np.meshgrid(rows, columns, indexing="ij"))
    number = y * across + x

    tiles = np.zeros((len(Tile), len(number)), np.int64)
    tiles[Tile.NUMBER] = number
    tiles[Tile.LENGTH], tiles[Tile.SOURCE], tiles[Tile.SUM] = lengths[number], sources[number], sums[number]
    tiles[Tile.KIND] = file[sources[number]]
    tiles[Tile.BITS], tiles[Tile.CHANNELS] = bits, head.channels
    tiles[Tile.HEIGHT] = np.minimum(LANES, head.height - y * LANES)
    tiles[Tile.WIDTH] = np.minimum(head.tile_shape[1], head.width - x * head.tile_shape[1])
    tiles[Tile.TOP], tiles[Tile.LEFT] = y * LANES - top, x * head.tile_shape[1] - left
    _check_kinds(tiles, head.mode)
    return tiles


def _check_kinds(tiles: Ints, mode: str) -> None:
    """Kinds that the mode does not have, and the lengths of those that have just one."""
    pixel_bytes = tiles[Tile.CHANNELS] * tiles[Tile.BITS] // 8
    raw_bytes = tiles[Tile.HEIGHT] * tiles[Tile.WIDTH] * pixel_bytes
    kind, length = tiles[Tile.KIND], tiles[Tile.LENGTH]
    unknown = (kind > Kind.CODED) | (kind == (Kind.CODED if mode == "fast" else Kind.PACKED))
    uneven = ((kind == Kind.CONSTANT) & (length != 1 + pixel_bytes)) | ((kind == Kind.RAW) & (length != 1 + raw_bytes))
    for flaw, what in (
        (unknown, f"its kind is not one of mode {mode}"),
        (uneven, "it has another length than its kind"),
    ):
        if flaw.any():
            first = int(flaw.argmax())
            raise _corrupt(what, int(tiles[Tile.NUMBER, first]), int(tiles[Tile.SOURCE, first]))


def _corrupt(what: str, tile: int, offset: int) -> CorruptImage:
    error = CorruptImage(f"tile {tile} at byte {offset}: {what}")
    error.tile, error.offset = tile, offset
    return error


def _indexed(error: HeadraceError, index: int) -> HeadraceError:
    """The same error, naming the image."""
    named = type(error)(f"image {index}: {error}")
    named.__dict__.update(error.__dict__)
    named.index = index
    return named
