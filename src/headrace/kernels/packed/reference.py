# SPDX-License-Identifier: Apache-2.0
"""Widths and offsets of the groups of packed tiles, in plain PyTorch."""

from __future__ import annotations

import torch

from headrace.kernels._batch import GROUP, DeviceBatch
from headrace.kernels._status import Reason
from headrace.kernels._torch_shared import Tiles, exclusive, grid, slices, store, unzigzag
from headrace.kernels.tables import LANES, TileField, TileKind

FIRST_WIDTH = 4


def index(batch: DeviceBatch) -> None:
    """Fill the table of groups of all packed tiles."""
    for tiles in slices(batch, batch.tiles_of(TileKind.PACKED)):
        _index(tiles)


def _index(tiles: Tiles) -> None:
    channels = tiles[TileField.CHANNELS]
    down, across = (-(-tiles[side] // GROUP) for side in (TileField.HEIGHT, TileField.WIDTH))
    tiles.color()
    ids_at = 1 + (channels + 3) // 4
    _check_predictors(tiles, ids_at)
    size_at = ids_at + (channels + 1) // 2
    size = tiles.shorts(size_at[:, None])[:, 0]
    numbers = tiles.unary(size_at + 2, size, channels * down * across)

    max_channels = tiles.max_channels
    row, column = grid(LANES // GROUP, -(-tiles.max_width // GROUP), numbers.device)
    plane = torch.arange(max_channels, device=numbers.device)[None, :, None, None]
    down, across = down.view(-1, 1, 1, 1), across.view(-1, 1, 1, 1)
    inside = (row < down) & (column < across) & (plane < channels.view(-1, 1, 1, 1))  # [n, planes, 8, columns]
    entry = plane * down * across + row * across + column
    found = numbers.gather(1, torch.where(inside, entry, 0).flatten(1)).view(inside.shape)
    steps = torch.where(inside, unzigzag(found, 255), 0)
    first_row = steps[:, :, :1].cumsum(3) + FIRST_WIDTH
    widths = torch.cat([first_row, steps[:, :, 1:]], 2).cumsum(2) & 255
    n = tiles.n.view(-1, 1, 1, 1)
    tiles.report(Reason.WIDTH, (inside & (widths > n)).flatten(1).any(1))
    widths = torch.where(inside, torch.minimum(widths, n), 0)
    begin = size_at + 2 + size
    starts = begin.view(-1, 1, 1, 1) + exclusive(2 * widths.flatten(1), 1).view(inside.shape)
    tiles.report(Reason.LENGTH, begin + 2 * widths.flatten(1).sum(1) != tiles[TileField.LENGTH])
    store(tiles.batch.entries, tiles[TileField.ENTRIES].view(-1, 1, 1, 1) + entry, starts << 5 | widths, inside)


def _check_predictors(tiles: Tiles, at: torch.Tensor) -> None:
    plane = torch.arange(64, device=at.device)[None]
    channels = tiles[TileField.CHANNELS][:, None]
    chosen = (tiles.bytes(at[:, None] + (plane >> 1)) >> 4 * (plane & 1)) & 15
    highest = torch.where(plane < channels, 2, 0)
    tiles.report(Reason.PREDICTOR, ((chosen > highest) & (plane < (channels + 1) // 2 * 2)).any(1))
