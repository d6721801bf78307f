# SPDX-License-Identifier: Apache-2.0
"""The host's part of decoding on a device in plain NumPy, a step at a time: what the core's calls are held against."""

from __future__ import annotations

import struct

import numpy as np

from headrace import _core
from headrace.codec import inspect
from headrace.errors import CorruptImage, HeadraceError, ImageTooLarge, InvalidRegion, TransformError
from headrace.kernels._batch import BLOCK, BLOCK_SAMPLES, CODED_BLOCK_WORDS, CODED_PLANE_WORDS, CODED_TILE_WORDS, GROUP
from headrace.kernels.tables import ALIGNMENT, LANES, SKEW, ImageField, SampleType, TileField, TileKind

FIXED = struct.Struct("<16xII")  # the bytes of metadata and of ranks


def describe(datas, regions, max_pixels):
    """The tables of tiles and of images, the ranks, and the bytes of the payload."""
    tables, ranks = [np.zeros((len(TileField), 0), np.int64)], [np.zeros(0, np.int32)]
    images = np.zeros((len(ImageField), len(datas)), np.int64)
    for index, (data, asked) in enumerate(zip(datas, regions, strict=True)):
        try:
            file = np.frombuffer(data, np.uint8)
            head = inspect(data)
            region = checked_region(asked, head, max_pixels)
        except HeadraceError as error:
            raise indexed(error, index) from None
        own_ranks = ranks_of(file, head)
        bits = 8 if head.dtype.itemsize == 1 or 2 <= len(own_ranks) <= 256 else 16
        tables.append(touched_tiles(file, head, region, bits))
        tables[-1][TileField.IMAGE] = index
        images[ImageField.HEIGHT, index], images[ImageField.WIDTH, index] = region[2:]
        images[ImageField.CHANNELS, index] = head.channels
        images[ImageField.DTYPE, index] = SampleType[head.dtype.name.upper()]
        images[ImageField.RANKS, index] = sum(map(len, ranks))
        images[ImageField.RANK_COUNT, index] = len(own_ranks)
        ranks.append(own_ranks)
    tiles = np.concatenate(tables, axis=1)
    ends = np.cumsum(-(-tiles[TileField.LENGTH] // ALIGNMENT) * ALIGNMENT)
    tiles[TileField.AT, 1:] = ends[:-1]
    return tiles, images, np.concatenate(ranks), int(ends[-1]) if len(ends) else 0


def checked_region(region, head, max_pixels):
    top, left, height, width = (0, 0, head.height, head.width) if region is None else region
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


def ranks_of(file, head):
    metadata_bytes, rank_bytes = FIXED.unpack(file[:24].tobytes())
    section = file[24 + metadata_bytes :][:rank_bytes]
    if rank_bytes == 0:
        return np.zeros(0, np.int32)
    if section[0] == 0:
        return section[5:].view(f"<u{head.dtype.itemsize}").astype(np.int32)
    first = int(section[1]) + 256 * int(section[2])
    return (first + np.flatnonzero(np.unpackbits(section[3:], bitorder="little"))).astype(np.int32)


def touched_tiles(file, head, region, bits):
    top, left, height, width = region
    across, down = -(-head.width // head.tile_shape[1]), -(-head.height // LANES)
    start = 24 + sum(FIXED.unpack(file[:24].tobytes()))
    lengths, sums = (
        file[start + 4 * part * across * down :][: 4 * across * down].view("<u4").astype(np.int64) for part in (0, 1)
    )
    sources = start + 8 * across * down + 4 + np.cumsum(lengths) - lengths
    rows = np.arange(top // LANES, (top + height - 1) // LANES + 1)
    columns = np.arange(left // head.tile_shape[1], (left + width - 1) // head.tile_shape[1] + 1)
    y, x = (grid.ravel() for grid in np.meshgrid(rows, columns, indexing="ij"))
    number = y * across + x
    tiles = np.zeros((len(TileField), len(number)), np.int64)
    tiles[TileField.NUMBER] = number
    tiles[TileField.LENGTH], tiles[TileField.SOURCE], tiles[TileField.SUM] = (
        lengths[number],
        sources[number],
        sums[number],
    )
    tiles[TileField.BITS], tiles[TileField.CHANNELS] = bits, head.channels
    tiles[TileField.HEIGHT] = np.minimum(LANES, head.height - y * LANES)
    tiles[TileField.WIDTH] = np.minimum(head.tile_shape[1], head.width - x * head.tile_shape[1])
    tiles[TileField.TOP], tiles[TileField.LEFT] = y * LANES - top, x * head.tile_shape[1] - left
    return tiles


def fetch(datas, tiles, payload):
    """Copy the tiles, one by one; each is checked before the next."""
    for column in tiles.T:
        image, source, length = (int(column[row]) for row in (TileField.IMAGE, TileField.SOURCE, TileField.LENGTH))
        own = datas[image][source : source + length]
        flaw = None
        if _core.crc32c(own, 0) != column[TileField.SUM]:
            flaw = "the checksum of the tile does not match"
        else:
            flaw = kind_flaw(inspect(datas[image]).mode, own, column)
        if flaw is not None:
            error = CorruptImage(f"tile {column[TileField.NUMBER]} at byte {source}: {flaw}")
            error.tile, error.offset = int(column[TileField.NUMBER]), source
            raise indexed(error, image)
        payload[column[TileField.AT] :][:length] = np.frombuffer(own, np.uint8)
        column[TileField.KIND] = own[0]


def kind_flaw(mode, own, column):
    kind, pixel_bytes = own[0], int(column[TileField.CHANNELS] * column[TileField.BITS] // 8)
    if kind > TileKind.CODED or kind == (TileKind.CODED if mode == "fast" else TileKind.PACKED):
        return f"its kind is not one of mode {mode}"
    only = {
        TileKind.CONSTANT: 1 + pixel_bytes,
        TileKind.RAW: 1 + int(column[TileField.HEIGHT] * column[TileField.WIDTH]) * pixel_bytes,
    }
    return "it has another length than its kind" if len(own) != only.get(kind, len(own)) else None


def indexed(error, index):
    named = type(error)(f"image {index}: {error}")
    named.__dict__.update(error.__dict__)
    named.index = index
    return named


def lay_out_scratch(tiles):
    """Fill the rows of the scratch; its sizes."""
    waves = (TileKind.PALETTE, TileKind.PACKED, TileKind.CODED)
    kind, channels, height, width = (
        tiles[row] for row in (TileField.KIND, TileField.CHANNELS, TileField.HEIGHT, TileField.WIDTH)
    )
    skew = np.select([kind == each for each in waves], [SKEW[each] for each in waves], 0)
    planes = np.select([kind == TileKind.PALETTE, kind >= TileKind.PACKED], [np.ones_like(kind), channels], 0)
    values = planes * LANES * (width + skew * (LANES - 1))
    groups = channels * -(-height // GROUP) * -(-width // GROUP)
    blocks = channels * -(-height // BLOCK) * -(-width // BLOCK)
    coded_words = CODED_TILE_WORDS + CODED_PLANE_WORDS * channels + CODED_BLOCK_WORDS * blocks
    entries = np.select([kind == TileKind.PACKED, kind == TileKind.CODED], [groups, coded_words], 0)
    numbers = np.select([kind == TileKind.PACKED, kind == TileKind.CODED], [groups, blocks * (1 + BLOCK_SAMPLES)], 0)
    totals = []
    for row, sizes in ((TileField.VALUES, values), (TileField.ENTRIES, entries), (TileField.NUMBERS, numbers)):
        ends = np.cumsum(-(-sizes // ALIGNMENT) * ALIGNMENT)
        tiles[row, 1:] = ends[:-1]
        totals.append(int(ends[-1]))
    return tuple(totals)


def chains_of(tiles, kind):
    own = np.flatnonzero(tiles[TileField.KIND] == kind)
    pairs = [
        (tile, plane)
        for tile in own
        for plane in range(1 if kind == TileKind.PALETTE else tiles[TileField.CHANNELS, tile])
    ]
    return own, np.array(pairs).reshape(-1, 2).T


def taps(size, resized, begin, count, origin):
    """Of each wanted sample of an axis: first, count, position, step and unit; and the range of all samples."""
    scale = size / resized
    support = max(scale, 1.0)
    center = (np.arange(begin, begin + count) + 0.5) * scale
    first = np.minimum(np.maximum(center - support + 0.5, 0).astype(np.int64), size - 1)
    end = np.maximum(np.minimum((center + support + 0.5).astype(np.int64), size), first + 1)
    step = 1 / support
    position = (first - center + 0.5) * step
    sample = np.arange((end - first).max())
    weights = np.maximum(1 - np.abs(position[:, None] + sample * step), 0) * (sample < (end - first)[:, None])
    total = np.cumsum(weights, axis=1)[:, -1]  # one after the other, as Pillow adds them up
    made = first - origin, end - first, position, np.full(count, step), 1 / total
    return made, (int(first[0]), int(end[-1]))


def view(transform, height, width, *, mask, seed, epoch, sample, view):
    """What a device does of a view, as the core's rows have it; None if it cannot."""
    try:
        passes = transform.passes(height, width, seed=seed, epoch=epoch, sample=sample, view=view)
    except (TransformError, ValueError):
        return None
    axes = passes[0]["rows"], passes[0]["columns"]
    if len(passes) != 1 or passes[0]["colors"]:
        return None
    if any(axis["offset"] > 0 or axis["canvas"] - axis["offset"] > axis["resized"] for axis in axes):
        return None
    resizes = any(axis["size"] != axis["resized"] for axis in axes)
    if resizes and not mask and (passes[0]["filter"] != "bilinear" or not passes[0]["antialias"]):
        return None
    method = 0 if not resizes else 2 if mask else 1
    ranges = [_decoded(axis, method) for axis in axes]
    pairs = [
        [axis["start"] for axis in axes],
        [axis["size"] for axis in axes],
        [axis["resized"] for axis in axes],
        [-axis["offset"] for axis in axes],
        [axis["canvas"] for axis in axes],
        [int(axis["flipped"]) for axis in axes],
        [axis["start"] + begin for axis, (begin, _) in zip(axes, ranges, strict=True)],
        [end - begin for begin, end in ranges],
    ]
    return [method + 1, *(number for pair in pairs for number in pair)]


def _decoded(axis, method):
    begin, count = -axis["offset"], axis["canvas"]
    if method == 0:
        return begin, begin + count
    if method == 1:
        return taps(axis["size"], axis["resized"], begin, count, 0)[1]
    steps = np.full(begin + count, axis["size"] / axis["resized"])
    steps[0] *= 0.5
    sources = np.minimum(np.cumsum(steps)[begin:].astype(np.int64), axis["size"] - 1)
    return int(sources[0]), int(sources[-1]) + 1
