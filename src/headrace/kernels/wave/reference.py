# SPDX-License-Identifier: Apache-2.0
"""Waves in plain PyTorch: all chains of a kind in parallel, one step of all lanes at a time."""

from __future__ import annotations

import torch

from headrace.kernels._batch import GROUP, DeviceBatch
from headrace.kernels._torch_shared import Tiles, average
from headrace.kernels.tables import LANES, SKEW, TileField, TileKind

STRIP = 32
CHAINS = 4096  # at a time, so that memory stays bounded


def run(batch: DeviceBatch, kind: TileKind) -> None:
    """Decode the planes of all tiles of a kind to their slots."""
    which, planes = batch.chains_of(kind).long()
    for some, plane in zip(torch.split(which, CHAINS), torch.split(planes, CHAINS), strict=True):
        _run(Tiles(batch, some), plane, kind)


def _run(tiles: Tiles, plane: torch.Tensor, kind: TileKind) -> None:
    batch, skew = tiles.batch, SKEW[kind]
    slot = tiles.slots(plane, kind)[:, None]  # [chains, 1]
    h, w = tiles[TileField.HEIGHT][:, None], tiles[TileField.WIDTH][:, None]
    lane = torch.arange(LANES, device=slot.device)[None]  # [1, LANES]
    top = (1 << tiles.n[:, None]) - 1
    predictors = _predictors(tiles, plane, kind)
    west = torch.zeros_like(slot + lane) if kind == TileKind.PALETTE else (top + 1 >> 1).expand(-1, LANES)
    north = north_west = north_east = west
    for step in range(int((w + skew * (h - 1)).max())):
        x = step - skew * lane
        inside = (lane < h) & (x >= 0) & (x < w)
        place = torch.where(inside, slot + step * LANES + lane, 0)
        if kind == TileKind.PACKED:
            given = _packed_samples(tiles, plane, lane, torch.where(inside, x, 0))
        else:
            given = batch.values[place].long() & 0xFFFF
        from_above = west.roll(1, 1)
        north_west = north
        north, north_east = (north_east, from_above) if skew == 2 else (from_above, from_above)
        n = torch.where(lane == 0, west, north)
        left = torch.where(x == 0, n, west)
        ne = torch.where((x == 0) | (lane == 0) | (x == w - 1), n, north_east)
        if kind == TileKind.PALETTE:
            west = torch.where(given == 255, torch.where(left == north_west, n, left), given)
        else:
            chosen = predictors.gather(1, (x // STRIP).clamp(0, 7).expand(len(slot), -1))
            west = (_predict(left, n, north_west, ne, chosen) + given) & top
        batch.values[place[inside]] = west[inside].to(batch.values.dtype)


def _predict(
    w: torch.Tensor, n: torch.Tensor, nw: torch.Tensor, ne: torch.Tensor, chosen: torch.Tensor
) -> torch.Tensor:
    """Predictors 0 to 4 (spec §5.5)."""
    low, high = torch.minimum(w, n), torch.maximum(w, n)
    median = low + high - torch.minimum(torch.maximum(nw, low), high)
    flat, soft = average(w, n), average(w, average(n, ne))
    every = torch.stack([flat, median, average(median, flat), soft, average(median, soft)])
    return every.gather(0, chosen.clamp(max=4)[None])[0]


def _predictors(tiles: Tiles, plane: torch.Tensor, kind: TileKind) -> torch.Tensor:
    """The predictor of each of up to eight strips [chains, 8]; a packed plane has one predictor."""
    ids_at = (1 + (tiles[TileField.CHANNELS] + 3) // 4)[:, None]
    strip = torch.arange(8, device=plane.device)[None]
    if kind == TileKind.PACKED:
        nibble = plane[:, None] + 0 * strip
    else:
        nibble = 2 * plane[:, None] * ((-(-tiles[TileField.WIDTH] // STRIP) + 1) // 2)[:, None] + strip
    return (tiles.bytes(ids_at + (nibble >> 1)) >> 4 * (nibble & 1)) & 15


def _packed_samples(tiles: Tiles, plane: torch.Tensor, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The residuals of packed tiles at these pixels, in two's complement."""
    down, across = (-(-tiles[side] // GROUP)[:, None] for side in (TileField.HEIGHT, TileField.WIDTH))
    y = y.minimum(tiles[TileField.HEIGHT][:, None] - 1)
    group = (plane[:, None] * down + y // GROUP) * across + x // GROUP
    entry = tiles.batch.entries[tiles[TileField.ENTRIES][:, None] + group].long()
    b = entry & 31
    samples = tiles.samples(entry >> 5, y % GROUP * GROUP + x % GROUP, b, GROUP * GROUP)
    sign = (1 << b) >> 1
    return (samples ^ sign) - sign
