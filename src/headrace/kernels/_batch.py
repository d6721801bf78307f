# SPDX-License-Identifier: Apache-2.0
"""A batch on its way to a device: all that kernels read, laid out in one buffer, so that one copy brings it there.

    +---------+--------+--------+-------+---------+--------------------------+
    | payload | tiles  | images | ranks | factors | lists of tiles, of chains|
    +---------+--------+--------+-------+---------+--------------------------+

The payload comes first: what the lists hold, and how long they are, shows only when the tiles are there. A *chain* is a
plane of a tile, which a wave decodes. Each kind of tile that has waves has a list of its tiles and one of its chains.
Scratch is laid out here too: all sizes follow from headers and kinds, so the device has to be asked nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from headrace import _core
from headrace.kernels._describe import Description, TileSource
from headrace.kernels._fields import ALIGNMENT, MAX_CHANNELS, Image, Kind, Tile

if TYPE_CHECKING:
    from collections.abc import Sequence

WAVE_KINDS = (Kind.PALETTE, Kind.PACKED, Kind.CODED)
GROUP, BLOCK = 4, 8  # sides of the squares of packed and coded tiles
BLOCK_SAMPLES = BLOCK * BLOCK
# What a coded tile keeps in its entries: some words of its own, some of each plane, some of each block.
CODED_TILE_WORDS, CODED_PLANE_WORDS, CODED_BLOCK_WORDS = 4, 12, 4


@dataclass(frozen=True)
class Part:
    """A piece of the buffer."""

    start: int  # in bytes
    shape: tuple[int, ...]
    dtype: Any

    @property
    def end(self) -> int:
        return self.start + math.prod(self.shape) * int(np.dtype(self.dtype).itemsize)

    def of_host(self, buffer: torch.Tensor) -> npt.NDArray[Any]:
        octets: npt.NDArray[np.uint8] = buffer.numpy()[self.start : self.end]
        part: npt.NDArray[Any] = octets.view(self.dtype).reshape(self.shape)
        return part

    def of_device(self, buffer: torch.Tensor) -> torch.Tensor:
        dtype = getattr(torch, np.dtype(self.dtype).name)
        return buffer[self.start : self.end].view(dtype).view(self.shape)


@dataclass(frozen=True)
class Scratch:
    """How much scratch a batch needs, in elements."""

    values: int  # uint8, or int16 in a wide batch
    entries: int  # int32
    numbers: int  # uint8


@dataclass(frozen=True)
class StagedBatch:
    """A batch in the host's memory. Copy `buffer` to the device in one piece and decode it there."""

    buffer: torch.Tensor  # uint8, pinned if it was asked for
    parts: dict[str, Part]
    scratch: Scratch
    n_images: int
    wide: bool
    """Whether any image has coded values of 16 bits."""
    max_width: int
    """Of a tile."""
    max_channels: int

    def has(self, kind: Kind) -> bool:
        return f"{kind.name.lower()}_tiles" in self.parts


@dataclass(frozen=True)
class DeviceBatch:
    """A batch in the device's memory, and the scratch to decode it with. All that a kernel sees."""

    staged: StagedBatch
    payload: torch.Tensor  # uint8
    tiles: torch.Tensor  # int64 [Tile, tiles]
    images: torch.Tensor  # int64 [Image, images]
    ranks: torch.Tensor  # int32
    factors: torch.Tensor  # float32 [scale and shift, Sample, MAX_CHANNELS]
    values: torch.Tensor
    entries: torch.Tensor
    numbers: torch.Tensor
    status: torch.Tensor  # int32 [images]
    out: torch.Tensor  # all images, in one piece of memory
    out_channels: int
    """How many come out of an image: 0 for its own; 3 of up to 2 repeats the first."""

    @property
    def wide(self) -> bool:
        return self.staged.wide

    def tiles_of(self, kind: Kind) -> torch.Tensor:
        """The numbers of the tiles of a kind, int32 [n]."""
        return self._part(f"{kind.name.lower()}_tiles")

    def chains_of(self, kind: Kind) -> torch.Tensor:
        """The tile and the plane of each chain of a kind, int32 [2, n]."""
        return self._part(f"{kind.name.lower()}_chains")

    def _part(self, name: str) -> torch.Tensor:
        return self.staged.parts[name].of_device(self.buffer)

    buffer: torch.Tensor


def stage(
    source: TileSource,
    description: Description,
    factors: npt.NDArray[np.float32],
    *,
    buffer: torch.Tensor | None = None,
    pin: bool = False,
) -> StagedBatch:
    """Fetch the tiles and lay the batch out in `buffer`, or a new one if that is none or too small."""
    tiles = description.tiles
    arrays: dict[str, npt.NDArray[Any]] = {
        "tiles": tiles,
        "images": description.images,
        "ranks": description.ranks,
        "factors": factors,
    }
    parts = {"payload": Part(0, (description.payload_bytes,), np.dtype(np.uint8))}
    most = description.payload_bytes + sum(each.nbytes for each in arrays.values()) + _most_list_bytes(tiles)
    most += ALIGNMENT * (1 + len(arrays) + 2 * len(WAVE_KINDS))
    if buffer is None or buffer.numel() < most:
        buffer = torch.empty(most, dtype=torch.uint8, pin_memory=pin)
    source.fetch(tiles, parts["payload"].of_host(buffer))
    sizes, lists = _core.lay_out_scratch(tiles)
    for kind, (own, chains) in zip(WAVE_KINDS, lists, strict=True):
        if len(own):
            arrays |= {f"{kind.name.lower()}_tiles": own, f"{kind.name.lower()}_chains": chains}
    end = parts["payload"].end
    for name, array in arrays.items():
        parts[name] = Part(-(-end // ALIGNMENT) * ALIGNMENT, array.shape, array.dtype)
        end = parts[name].end
        parts[name].of_host(buffer)[...] = array
    return StagedBatch(
        buffer=buffer[:end],
        parts=parts,
        scratch=Scratch(*sizes),
        n_images=description.images.shape[1],
        wide=bool((tiles[Tile.BITS] == 16).any()),
        max_width=int(tiles[Tile.WIDTH].max(initial=1)),
        max_channels=int(tiles[Tile.CHANNELS].max(initial=1)),
    )


def _most_list_bytes(tiles: npt.NDArray[np.int64]) -> int:
    """How long the lists of tiles and of chains are if every tile has a wave for each channel."""
    planes = int(tiles[Tile.CHANNELS].sum())
    return 4 * (int(tiles.shape[1]) + 2 * planes)


def place(
    staged: StagedBatch, buffer: torch.Tensor, out: torch.Tensor, status: torch.Tensor, out_channels: int
) -> DeviceBatch:
    """The batch whose `buffer` was copied to a device, with scratch of that device's memory."""
    scratch, parts = staged.scratch, staged.parts

    def empty(size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, device=buffer.device)

    return DeviceBatch(
        staged=staged,
        buffer=buffer,
        **{name: parts[name].of_device(buffer) for name in ("payload", "tiles", "images", "ranks", "factors")},
        values=empty(scratch.values, torch.int16 if staged.wide else torch.uint8),
        entries=empty(scratch.entries, torch.int32),
        numbers=empty(scratch.numbers, torch.uint8),
        status=status,
        out=out,
        out_channels=out_channels,
    )


def factors_of(mean: Sequence[float], std: Sequence[float]) -> npt.NDArray[np.float32]:
    """Scale and shift of each channel for each kind of sample, as the CPU's transforms have them."""
    return _factors(tuple(mean), tuple(std))


@lru_cache(maxsize=64)  # batch after batch has the same
def _factors(mean: tuple[float, ...], std: tuple[float, ...]) -> npt.NDArray[np.float32]:
    levels = np.array([255, 65535, 32768])[:, None]
    spread_mean, spread_std = (
        np.resize(np.asarray(values, np.float64), MAX_CHANNELS) if len(values) == 1 else _padded(values)
        for values in (mean, std)
    )
    scale = 1 / (levels * spread_std)
    shift = np.broadcast_to(-spread_mean / spread_std, scale.shape)
    factors: npt.NDArray[np.float32] = np.stack([scale, shift]).astype(np.float32)
    factors.flags.writeable = False
    return factors


def _padded(values: Sequence[float]) -> npt.NDArray[np.float64]:
    padded = np.ones(MAX_CHANNELS)
    padded[: len(values)] = values
    return padded


def out_places(images: npt.NDArray[np.int64], channels: npt.NDArray[np.int64]) -> int:
    """Lay the images out one behind the other, [C, H, W] each; fills the table's columns and gives the elements."""
    height, width = images[Image.HEIGHT], images[Image.WIDTH]
    sizes = channels * height * width
    ends = np.cumsum(sizes)
    images[Image.OUT] = ends - sizes
    images[Image.STRIDE_C], images[Image.STRIDE_Y], images[Image.STRIDE_X] = height * width, width, 1
    return int(ends[-1]) if len(ends) else 0
