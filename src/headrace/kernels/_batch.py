# SPDX-License-Identifier: Apache-2.0
"""A batch on its way to a device: all that kernels read, laid out in one buffer, so that one copy brings it there.

    +--------+--------+-------+---------+--------------------------+---------+
    | tiles  | images | ranks | factors | lists of tiles, of chains| payload |
    +--------+--------+-------+---------+--------------------------+---------+

A *chain* is a plane of a tile, which a wave decodes. Each kind of tile that has waves has a list of its tiles and one
of its chains. Scratch is laid out here too: all sizes follow from the headers, so the device has to be asked nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from headrace.kernels._describe import Description, copy_tiles
from headrace.kernels._fields import ALIGNMENT, LANES, MAX_CHANNELS, SKEW, Image, Kind, Tile

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


def lay_out_scratch(tiles: npt.NDArray[np.int64]) -> Scratch:
    """Give each tile its places in the scratch; fills the table's columns."""
    kind, channels, height, width = (tiles[row] for row in (Tile.KIND, Tile.CHANNELS, Tile.HEIGHT, Tile.WIDTH))
    zero = np.zeros_like(kind)
    skew = np.select([kind == each for each in WAVE_KINDS], [SKEW[each] for each in WAVE_KINDS], 0)
    planes = np.select([kind == Kind.PALETTE, kind >= Kind.PACKED], [zero + 1, channels], 0)
    values = planes * LANES * (width + skew * (LANES - 1))
    groups = channels * -(-height // GROUP) * -(-width // GROUP)
    blocks = channels * -(-height // BLOCK) * -(-width // BLOCK)
    coded_words = CODED_TILE_WORDS + CODED_PLANE_WORDS * channels + CODED_BLOCK_WORDS * blocks
    entries = np.select([kind == Kind.PACKED, kind == Kind.CODED], [groups, coded_words], 0)
    numbers = np.select([kind == Kind.PACKED, kind == Kind.CODED], [groups, blocks * (1 + BLOCK_SAMPLES)], 0)
    totals = []
    for row, sizes in ((Tile.VALUES, values), (Tile.ENTRIES, entries), (Tile.NUMBERS, numbers)):
        ends = np.cumsum(-(-sizes // ALIGNMENT) * ALIGNMENT)
        tiles[row, 1:] = ends[:-1]
        totals.append(int(ends[-1]) if len(ends) else 0)
    return Scratch(*totals)


def stage(
    datas: Sequence[Any],
    description: Description,
    factors: npt.NDArray[np.float32],
    *,
    buffer: torch.Tensor | None = None,
    pin: bool = False,
) -> StagedBatch:
    """Check the tiles' sums and lay the batch out in `buffer`, or a new one if that is none or too small."""
    tiles = description.tiles
    scratch = lay_out_scratch(tiles)
    arrays: dict[str, npt.NDArray[Any]] = {
        "tiles": tiles,
        "images": description.images,
        "ranks": description.ranks,
        "factors": factors,
    }
    for kind in WAVE_KINDS:
        own = np.flatnonzero(tiles[Tile.KIND] == kind).astype(np.int32)
        if len(own):
            planes = np.ones_like(own) if kind == Kind.PALETTE else tiles[Tile.CHANNELS, own].astype(np.int32)
            first = np.cumsum(planes) - planes
            chains = np.repeat(own, planes), np.arange(planes.sum(), dtype=np.int32) - np.repeat(first, planes)
            arrays[f"{kind.name.lower()}_tiles"] = own
            arrays[f"{kind.name.lower()}_chains"] = np.stack(chains).astype(np.int32)
    parts: dict[str, Part] = {}
    end = 0
    for name, array in arrays.items():
        parts[name] = Part(-(-end // ALIGNMENT) * ALIGNMENT, array.shape, array.dtype)
        end = parts[name].end
    parts["payload"] = Part(-(-end // ALIGNMENT) * ALIGNMENT, (description.payload_bytes,), np.dtype(np.uint8))
    end = parts["payload"].end
    if buffer is None or buffer.numel() < end:
        buffer = torch.empty(end, dtype=torch.uint8, pin_memory=pin)
    for name, array in arrays.items():
        parts[name].of_host(buffer)[...] = array
    copy_tiles(datas, tiles, parts["payload"].of_host(buffer))
    return StagedBatch(
        buffer=buffer[:end],
        parts=parts,
        scratch=scratch,
        n_images=description.images.shape[1],
        wide=bool((tiles[Tile.BITS] == 16).any()),
        max_width=int(tiles[Tile.WIDTH].max(initial=1)),
        max_channels=int(tiles[Tile.CHANNELS].max(initial=1)),
    )


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
    levels = np.array([255, 65535, 32768])[:, None]
    spread_mean, spread_std = (
        np.resize(np.asarray(values, np.float64), MAX_CHANNELS) if len(values) == 1 else _padded(values)
        for values in (mean, std)
    )
    scale = 1 / (levels * spread_std)
    shift = np.broadcast_to(-spread_mean / spread_std, scale.shape)
    return np.stack([scale, shift]).astype(np.float32)


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
