# SPDX-License-Identifier: Apache-2.0
"""The exceptions of palette tiles in plain PyTorch."""

from __future__ import annotations

import torch

from headrace.kernels._batch import BLOCK, DeviceBatch
from headrace.kernels._status import Reason
from headrace.kernels._torch_shared import Tiles, exclusive, slices, store
from headrace.kernels.tables import LANES, TileField, TileKind

NO_EXCEPTION = 255


def expand(batch: DeviceBatch) -> None:
    """Write the exceptions of all palette tiles to their slots, and 255 for all other pixels."""
    for tiles in slices(batch, batch.tiles_of(TileKind.PALETTE)):
        _expand(tiles)


def _expand(tiles: Tiles) -> None:
    device = tiles.which.device
    h, w = tiles[TileField.HEIGHT], tiles[TileField.WIDTH]
    count = tiles.bytes(torch.ones_like(h)[:, None])[:, 0]
    _check_palette(tiles, count)
    bits_each = ((count[:, None] - 1) >> torch.arange(8, device=device) > 0).sum(1)[:, None]

    across = -(-w // BLOCK)
    blocks = -(-h // BLOCK) * across
    flags_at = 2 + count * tiles[TileField.CHANNELS] * tiles.n // 8
    block = torch.arange(LANES // BLOCK * -(-tiles.max_width // BLOCK) + 8, device=device)[None]
    flags = tiles.bytes(flags_at[:, None] + (block >> 3)) >> (block & 7) & 1
    stored = block < (-(-blocks // 8) * 8)[:, None]
    tiles.report(Reason.PADDING, ((flags == 1) & stored & (block >= blocks[:, None])).any(1))
    flags = torch.where(block < blocks[:, None], flags, 0)  # [n, blocks]

    # For each flag, a prefix sum gives the place of its byte on the next level.
    rows_at = flags_at + -(-blocks // 8)
    rows = torch.where(flags == 1, tiles.bytes(rows_at[:, None] + exclusive(flags, 1)), 0)
    row_flags = _bits_of(rows).flatten(1)  # [n, blocks * 8]
    samples_at = rows_at + flags.sum(1)
    samples = torch.where(row_flags == 1, tiles.bytes(samples_at[:, None] + exclusive(row_flags, 1)), 0)
    empty = ((flags == 1) & (rows == 0)).any(1) | ((row_flags == 1) & (samples == 0)).any(1)
    excepted = _bits_of(samples).flatten(1)  # [n, blocks * 64]
    numbers_at = samples_at + row_flags.sum(1)
    numbers = tiles.bits(numbers_at[:, None], exclusive(excepted, 1) * bits_each, bits_each)

    place = torch.arange(excepted.shape[1], device=device)[None]
    own_block = place // (BLOCK * BLOCK)
    y = own_block // across[:, None] * BLOCK + place // BLOCK % BLOCK
    x = own_block % across[:, None] * BLOCK + place % BLOCK
    inside = (own_block < blocks[:, None]) & (y < h[:, None]) & (x < w[:, None])
    unsound = ((excepted == 1) & (~inside | (numbers >= count[:, None]))).any(1)
    tiles.report(Reason.EXCEPTION, empty | unsound)
    tiles.check_end(numbers_at, excepted.sum(1) * bits_each[:, 0])
    slot = tiles.slots(torch.zeros_like(h), TileKind.PALETTE)[:, None]
    store(tiles.batch.values, slot + (x + y) * LANES + y, torch.where(excepted == 1, numbers, NO_EXCEPTION), inside)


def _check_palette(tiles: Tiles, count: torch.Tensor) -> None:
    """Report palettes that are not strictly ascending, or have fewer than two colors (spec §6.3)."""
    channels, size = tiles[TileField.CHANNELS][:, None], (tiles.n // 8)[:, None]
    color = torch.arange(255, device=count.device)[None]
    compared = color + 1 < count[:, None]
    above = decided = torch.zeros_like(compared)
    for channel in range(tiles.max_channels):
        at = 2 + (color * channels + channel) * size
        low, high = (
            tiles.bytes(place) | torch.where(size == 2, tiles.bytes(place + 1) << 8, 0)
            for place in (at, at + channels * size)
        )
        differs = (low != high) & (channel < channels)
        above = above | (differs & ~decided & (high > low))
        decided = decided | differs
    tiles.report(Reason.PALETTE, (count < 2) | (compared & ~above).any(1))


def _bits_of(octets: torch.Tensor) -> torch.Tensor:
    return octets[..., None] >> torch.arange(8, device=octets.device) & 1
