# SPDX-License-Identifier: Apache-2.0
"""A batch on its way to a device: everything that kernels read, in one buffer, so that one copy transfers it.

    +---------+-------+--------+-------+---------+-------------------------+
    | payload | tiles | images | ranks | factors | lists of tiles and chains |
    +---------+-------+--------+-------+---------+-------------------------+

The payload comes first, because the sizes of the lists are known only after the tiles were fetched. A *chain* is one
plane of one tile, which one wave decodes. Each kind of tile that has waves has a list of its tiles and one of its
chains. Sizes of scratch memory follow from headers and kinds, so the host never waits for the device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headrace import _core
from headrace.kernels._describe import Description, TileSource
from headrace.kernels.tables import ALIGNMENT, TileField, TileKind

WAVE_KINDS = (TileKind.PALETTE, TileKind.PACKED, TileKind.CODED)
GROUP, BLOCK = 4, 8  # sides of the squares of packed and coded tiles
BLOCK_SAMPLES = BLOCK * BLOCK
# Words of the `entries` scratch that a coded tile has: per tile, per plane and per block.
CODED_TILE_WORDS, CODED_PLANE_WORDS, CODED_BLOCK_WORDS = 4, 12, 4


@dataclass(frozen=True)
class BufferPart:
    """An array within a buffer of bytes."""

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


def append_parts(parts: dict[str, BufferPart], arrays: dict[str, npt.NDArray[Any]]) -> int:
    """Add a part for each array behind the existing ones; return where the last one ends."""
    end = max((part.end for part in parts.values()), default=0)
    for name, array in arrays.items():
        parts[name] = BufferPart(-(-end // ALIGNMENT) * ALIGNMENT, array.shape, array.dtype)
        end = parts[name].end
    return end


@dataclass(frozen=True)
class StagedBatch:
    """A verified batch in host memory: copy `buffer` to the device in one piece and pass it to `decode_staged`."""

    buffer: torch.Tensor  # uint8; pinned if requested
    parts: dict[str, BufferPart]
    scratch: tuple[int, int, int]
    """Elements of the scratch memory: values (uint8, or int16 in a wide batch), entries (int32), numbers (uint8)."""
    wide: bool
    """Whether any image has coded values of 16 bits."""
    max_width: int
    """Width of the widest tile."""
    shapes: list[tuple[int, int, int]]
    """Shapes of the decoded images, [C, H, W] each."""
    dtype: torch.dtype
    out_channels: int
    """Channels of every decoded image; 0 if each keeps its own. 3 of up to 2 channels repeats the first."""

    def has(self, kind: TileKind) -> bool:
        return f"{kind.name.lower()}_tiles" in self.parts

    @property
    def even(self) -> bool:
        """Whether all images have the same shape."""
        return len(set(self.shapes)) <= 1


@dataclass(frozen=True)
class DeviceBatch:
    """A batch in device memory with its scratch: everything that the kernels access."""

    staged: StagedBatch
    buffer: torch.Tensor
    payload: torch.Tensor  # uint8
    tiles: torch.Tensor  # int64 [TileField, tiles]
    images: torch.Tensor  # int64 [ImageField, images]
    ranks: torch.Tensor  # int32
    factors: torch.Tensor  # float32 [scale and shift, SampleType, MAX_CHANNELS]
    values: torch.Tensor
    entries: torch.Tensor
    numbers: torch.Tensor
    status: torch.Tensor  # int32 [images]
    out: torch.Tensor  # all images, in one allocation

    @property
    def wide(self) -> bool:
        return self.staged.wide

    def tiles_of(self, kind: TileKind) -> torch.Tensor:
        """Columns of the tile table that are of a kind, int32 [n]."""
        return self._part(f"{kind.name.lower()}_tiles")

    def chains_of(self, kind: TileKind) -> torch.Tensor:
        """Tile and plane of each chain of a kind, int32 [2, n]."""
        return self._part(f"{kind.name.lower()}_chains")

    def _part(self, name: str) -> torch.Tensor:
        return self.staged.parts[name].of_device(self.buffer)


def stage(
    source: TileSource,
    description: Description,
    factors: npt.NDArray[np.float32],
    *,
    buffer: torch.Tensor | None,
    pin: bool,
    **output: Any,
) -> StagedBatch:
    """Fetch the tiles and lay the batch out in `buffer`, or in a new one if that is None or too small.

    `output` has the fields of `StagedBatch` that describe the decoded images.
    """
    tiles = description.tiles
    arrays: dict[str, npt.NDArray[Any]] = {
        "tiles": tiles,
        "images": description.images,
        "ranks": description.ranks,
        "factors": factors,
    }
    parts = {"payload": BufferPart(0, (description.payload_bytes,), np.dtype(np.uint8))}
    # At most every tile has a wave for each channel: one int32 per tile, and two per chain.
    list_bytes = 4 * (int(tiles.shape[1]) + 2 * int(tiles[TileField.CHANNELS].sum()))
    max_bytes = description.payload_bytes + sum(each.nbytes for each in arrays.values()) + list_bytes
    max_bytes += ALIGNMENT * (1 + len(arrays) + 2 * len(WAVE_KINDS))
    if buffer is None or buffer.numel() < max_bytes:
        buffer = torch.empty(max_bytes, dtype=torch.uint8, pin_memory=pin)
    source.fetch(tiles, parts["payload"].of_host(buffer))
    sizes, lists = _core.lay_out_scratch(tiles)
    for kind, (own, chains) in zip(WAVE_KINDS, lists, strict=True):
        if len(own):
            arrays |= {f"{kind.name.lower()}_tiles": own, f"{kind.name.lower()}_chains": chains}
    end = append_parts(parts, arrays)
    for name, array in arrays.items():
        parts[name].of_host(buffer)[...] = array
    return StagedBatch(
        buffer=buffer[:end],
        parts=parts,
        scratch=sizes,
        wide=bool((tiles[TileField.BITS] == 16).any()),
        max_width=int(tiles[TileField.WIDTH].max(initial=1)),
        **output,
    )


def on_device(staged: StagedBatch, buffer: torch.Tensor, out: torch.Tensor, status: torch.Tensor) -> DeviceBatch:
    """Return the batch whose `buffer` was copied to a device, with scratch in that device's memory."""
    parts = staged.parts
    n_values, n_entries, n_numbers = staged.scratch

    def empty(size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, device=buffer.device)

    return DeviceBatch(
        staged=staged,
        buffer=buffer,
        **{name: parts[name].of_device(buffer) for name in ("payload", "tiles", "images", "ranks", "factors")},
        values=empty(n_values, torch.int16 if staged.wide else torch.uint8),
        entries=empty(n_entries, torch.int32),
        numbers=empty(n_numbers, torch.uint8),
        status=status,
        out=out,
    )
