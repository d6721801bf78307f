# SPDX-License-Identifier: Apache-2.0
"""How often the loops of each kernel are executed, and how many bytes it moves, for a batch of real images.

This follows from the tables of the host and the sizes of sections in the tiles. Nothing is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.kernels import stage_batch
from headrace.kernels.coded import triton as coded
from headrace.kernels.finish import triton as finish
from headrace.kernels.packed import triton as packed
from headrace.kernels.tables import SKEW, ImageField, TileField, TileKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LANES = 32
TABLE_BYTES = 8 * len(TileField)  # of a tile


@dataclass(frozen=True)
class Work:
    """What a launch of a kernel does: its programs, how often its loops are executed, and bytes."""

    kernel: str
    programs: int
    turns: tuple[int, ...]
    """For each loop, in the order of the code, how often a warp executes its body, summed over all programs."""
    n_bytes: int
    """Read and written, as if no cache kept any of it from one kernel to the next."""


@dataclass(frozen=True)
class Batch:
    """Encoded images and their tables."""

    datas: Sequence[bytes]
    tiles: NDArray[np.int64]
    payload: NDArray[np.uint8]
    pixels: int
    samples: int

    @property
    def n_bytes(self) -> int:
        """Bytes that cross the bus: the tiles, without headers, and the tables."""
        return int(self.tiles[TileField.LENGTH].sum()) + TABLE_BYTES * self.tiles.shape[1]

    def of(self, kind: TileKind) -> NDArray[np.int64]:
        """The columns of the tiles of a kind."""
        return self.tiles[:, self.tiles[TileField.KIND] == kind]

    def short(self, tiles: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Two bytes of each tile."""
        place = tiles[TileField.AT] + at
        return self.payload[place].astype(np.int64) | self.payload[place + 1].astype(np.int64) << 8


def read_batch(datas: Sequence[bytes]) -> Batch:
    """Stage a batch as a loader does, and read its tables."""
    staged = stage_batch(datas, max_pixels=2**31)
    tiles, images, payload = (staged.parts[name].of_host(staged.buffer) for name in ("tiles", "images", "payload"))
    pixels = images[ImageField.HEIGHT] * images[ImageField.WIDTH]
    samples = pixels * images[ImageField.CHANNELS]
    return Batch(datas, tiles, payload, int(pixels.sum()), int(samples.sum()))


def work_of(batch: Batch, mode: str, dtype: str) -> list[Work]:
    """The launches of a batch of one mode, in their order. Tiles of other kinds are only finished."""
    if mode == "fast":
        launches = [_packed_index(batch), _wave(batch, TileKind.PACKED)]
    else:
        launches = [_coded_index(batch), _coded_numbers(batch), _coded_expand(batch), _wave(batch, TileKind.CODED)]
    return [*launches, _finish(batch, dtype)]


def _packed_index(batch: Batch) -> Work:
    tiles = batch.of(TileKind.PACKED)
    channels = tiles[TileField.CHANNELS]
    groups = channels * _cells(tiles, 4)
    size_at = 1 + (channels + 3) // 4 + (channels + 1) // 2
    section = batch.short(tiles, size_at)
    chunks = _chunks(size_at + 2, section, packed.CHUNK)
    # Positions are written and read again, one byte per group; an entry is four bytes.
    n_bytes = section.sum() + (2 + 4) * groups.sum() + TABLE_BYTES * tiles.shape[1]
    return Work("packed index", tiles.shape[1], (int(chunks.sum()), int(channels.sum())), int(n_bytes))


def _coded_index(batch: Batch) -> Work:
    tiles = batch.of(TileKind.CODED)
    channels, blocks, layout = tiles[TileField.CHANNELS], _cells(tiles, 8), _Sections(batch, tiles)
    planes = _up(channels, coded.PLANES)
    steps = planes * (_up(tiles[TileField.WIDTH], 8) + 3)
    turns = _chunks(layout.begin, layout.classes, coded.INDEX_CHUNK).sum(), planes.sum(), steps.sum()
    # Per block a position, written and read, and three words; per plane twelve words.
    n_bytes = layout.classes.sum() + ((2 + 12) * channels * blocks + 48 * channels).sum() + TABLE_BYTES * tiles.shape[1]
    return Work("coded index", tiles.shape[1], tuple(map(int, turns)), int(n_bytes))


def _coded_numbers(batch: Batch) -> Work:
    tiles = batch.of(TileKind.CODED)
    channels, blocks, layout = tiles[TileField.CHANNELS], _cells(tiles, 8), _Sections(batch, tiles)
    # Sections start anywhere in a word: one more word than their bytes need is assumed.
    chunks = _chunks(np.full_like(layout.unary, 3), layout.unary, coded.CHUNK)
    groups = channels * _up(blocks, coded.BLOCKS)
    turns = int(chunks.sum()), int(groups.sum()), int(16 * groups.sum())  # a block has at most 16 words of numbers
    # At most 64 numbers per block are written and read again; three of its words are read and one is written.
    n_bytes = layout.unary.sum() + ((2 * 64 + 16) * channels * blocks + 48 * channels).sum()
    return Work("coded numbers, 8 bit", int(channels.sum()), turns, int(n_bytes))


def _coded_expand(batch: Batch) -> Work:
    tiles = batch.of(TileKind.CODED)
    channels, blocks = tiles[TileField.CHANNELS], _cells(tiles, 8)
    groups = channels * _up(blocks, coded.BLOCKS)
    rows = groups * np.minimum(tiles[TileField.HEIGHT], 8)
    programs = channels.sum() * _up(blocks, coded.BLOCKS).max(initial=1)  # as many for each plane as for the largest
    n_bytes = tiles[TileField.LENGTH] + (64 + 16) * channels * blocks + _slot_values(tiles, TileKind.CODED)
    return Work("coded expand, 8 bit", int(programs), (int(rows.sum()),), int(n_bytes.sum()))


def _wave(batch: Batch, kind: TileKind) -> Work:
    tiles = batch.of(kind)
    channels = tiles[TileField.CHANNELS]
    steps = channels * (tiles[TileField.WIDTH] + SKEW[kind] * (tiles[TileField.HEIGHT] - 1))
    written = steps.sum() * LANES
    read = tiles[TileField.LENGTH] + 4 * channels * _cells(tiles, 4) if kind == TileKind.PACKED else steps * LANES
    return Work(f"{kind.name.lower()} wave, 8 bit", int(channels.sum()), (int(steps.sum()),), int(written + read.sum()))


def _finish(batch: Batch, dtype: str) -> Work:
    tiles = batch.tiles
    kind, channels, own = tiles[TileField.KIND], tiles[TileField.CHANNELS], finish.STEPS * finish.TURNS
    waved = kind >= TileKind.PACKED
    steps = tiles[TileField.WIDTH] + np.where(kind == TileKind.CODED, 2, waved) * (LANES - 1)
    programs = tiles.shape[1] * -(-int(steps.max()) // own)  # as many for each tile as for the widest
    chunks = _up(steps, finish.STEPS)
    turns = chunks.sum(), (channels * chunks)[waved].sum(), (channels * chunks)[~waved].sum()
    read = np.where(waved, channels * steps * LANES, tiles[TileField.LENGTH]).sum() + TABLE_BYTES * programs
    written = (channels * tiles[TileField.HEIGHT] * tiles[TileField.WIDTH]).sum() * np.dtype(dtype).itemsize
    return Work(f"finish, 8 bit to {dtype}", programs, tuple(map(int, turns)), int(read + written))


class _Sections:
    """The bytes of the unary sections of coded tiles of 8-bit values: of classes, and of each plane."""

    def __init__(self, batch: Batch, tiles: NDArray[np.int64]) -> None:
        channels = tiles[TileField.CHANNELS]
        sizes_at = 1 + (channels + 3) // 4 + channels * ((_up(tiles[TileField.WIDTH], 32) + 1) // 2)
        self.classes = batch.short(tiles, sizes_at)
        self.begin = sizes_at + 2 + 2 * channels
        planes = range(int(channels.max(initial=1)))
        stated = [np.where(i < channels, batch.short(tiles, sizes_at + 2 + 2 * i), 0) for i in planes]
        self.unary = np.concatenate(stated)


def _cells(tiles: NDArray[np.int64], side: int) -> NDArray[np.int64]:
    return _up(tiles[TileField.HEIGHT], side) * _up(tiles[TileField.WIDTH], side)


def _slot_values(tiles: NDArray[np.int64], kind: TileKind) -> NDArray[np.int64]:
    return tiles[TileField.CHANNELS] * LANES * (tiles[TileField.WIDTH] + SKEW[kind] * (LANES - 1))


def _chunks(begin: NDArray[np.int64], size: NDArray[np.int64], words: int) -> NDArray[np.int64]:
    """How often a loop over a unary section turns that reads so many words at a time."""
    return _up(_up(begin + size, 4) - begin // 4, words)


def _up(count: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    return -(-count // size)
