# SPDX-License-Identifier: Apache-2.0
"""From decoded planes to output pixels, in plain PyTorch."""

from __future__ import annotations

import torch

from headrace.kernels._batch import DeviceBatch
from headrace.kernels._torch_shared import Tiles, average, grid, slices
from headrace.kernels.tables import LANES, SKEW, ImageField, SampleType, TileField, TileKind

_INTEGER_BITS = {torch.uint8: 8, torch.uint16: 16, torch.int16: 15}  # of the non-negative part of the range


def run(batch: DeviceBatch) -> None:
    """Write all images of a batch."""
    every = torch.arange(batch.tiles.shape[1], device=batch.tiles.device)
    for tiles in slices(batch, every):
        _run(tiles)


def _run(tiles: Tiles) -> None:
    batch = tiles.batch

    def of_tile(field: TileField) -> torch.Tensor:
        return tiles[field].view(-1, 1, 1)

    def of_image(field: ImageField) -> torch.Tensor:
        return batch.images[field][tiles[TileField.IMAGE]].view(-1, 1, 1)

    y, x = grid(LANES, tiles.max_width, tiles.which.device)  # [LANES, 1], [1, width]
    row, column = of_tile(TileField.TOP) + y, of_tile(TileField.LEFT) + x
    width, channels = of_image(ImageField.WIDTH), of_tile(TileField.CHANNELS)
    wanted = (
        (y < of_tile(TileField.HEIGHT))
        & (x < of_tile(TileField.WIDTH))
        & (row >= 0)
        & (row < of_image(ImageField.HEIGHT))
    )
    wanted = wanted & (column >= 0) & (column < width)  # [n, LANES, width]
    column = torch.where(of_image(ImageField.FLIP) > 0, width - 1 - column, column)
    pixel = of_image(ImageField.OUT) + row * of_image(ImageField.STRIDE_Y) + column * of_image(ImageField.STRIDE_X)
    kept = channels if batch.staged.out_channels == 0 else torch.full_like(channels, batch.staged.out_channels)
    spread = (channels <= 2) & (kept == 3)  # one channel becomes three
    codes = torch.where(of_tile(TileField.KIND) >= TileKind.PACKED, _color_codes(tiles)[:, :, None], 0)  # [n, 64, 1]

    near = far = torch.zeros_like(pixel)
    for plane in range(tiles.max_channels):
        channel = torch.where((channels > 1) & (plane < 2), 1 - plane, plane)
        value = _coded_values(tiles, plane, channel, y, x, wanted)
        code = codes.gather(1, channel)
        mid = 1 << of_tile(TileField.BITS) - 1
        reference = torch.where(code == 2, average(near, far), near)
        value = torch.where(code > 0, value + reference - mid, value) & 2 * mid - 1
        near, far = (near, value) if plane == 1 else (value, near)

        stored = of_image(ImageField.DTYPE)
        level = _levels(batch, value, of_image(ImageField.RANKS), of_image(ImageField.RANK_COUNT), wanted)
        level = torch.where(stored == SampleType.INT16, level - 32768, level)
        for copy in range(3):
            written = torch.where(spread, channel == 0, (channel < kept) & (copy == 0)) & (plane < channels) & wanted
            out_channel = torch.where(spread, copy, channel)
            made = convert_levels(level, stored, out_channel, batch.factors, batch.out.dtype)
            _put(batch.out, (pixel + out_channel * of_image(ImageField.STRIDE_C))[written], made[written])


def _color_codes(tiles: Tiles) -> torch.Tensor:
    channel = torch.arange(64, device=tiles.which.device)[None]
    return tiles.bytes(1 + (channel >> 2).expand(len(tiles.which), -1)) >> 2 * (channel & 3) & 3


def _coded_values(
    tiles: Tiles, plane: int, channel: torch.Tensor, y: torch.Tensor, x: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """The coded values of a plane: stored values, palette colors, or the results of the waves."""
    kind, channels = tiles[TileField.KIND].view(-1, 1, 1), tiles[TileField.CHANNELS].view(-1, 1, 1)
    w, size = tiles[TileField.WIDTH].view(-1, 1, 1), (tiles.n // 8).view(-1, 1, 1)
    has_plane = (kind >= TileKind.PACKED) & (plane < channels) | (kind == TileKind.PALETTE)
    skew = torch.where(kind == TileKind.CODED, SKEW[TileKind.CODED], SKEW[TileKind.PACKED])
    slot = torch.where(kind == TileKind.PALETTE, 0, plane) * LANES * (w + skew * (LANES - 1))
    place = tiles[TileField.VALUES].view(-1, 1, 1) + slot + (x + skew * y) * LANES + y
    values = tiles.batch.values
    empty = len(values) == 0
    found = torch.zeros_like(place) if empty else values[torch.where(mask & has_plane, place, 0)].long() & 0xFFFF
    pixel = torch.where(kind == TileKind.PALETTE, found, torch.where(kind == TileKind.RAW, y * w + x, 0))
    at = torch.where(kind == TileKind.PALETTE, 2, 1) + (pixel * channels + channel) * size
    listed = tiles.bytes(at) | torch.where(size == 2, tiles.bytes(at + 1) << 8, 0)
    return torch.where(kind >= TileKind.PACKED, found, listed)


def _levels(
    batch: DeviceBatch, value: torch.Tensor, at: torch.Tensor, count: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Look up the levels of ranks in images that have ranks (spec §4)."""
    if len(batch.ranks) == 0:
        return value
    place = torch.where(mask & (count > 0), at + torch.minimum(value, count - 1), 0)
    return torch.where(count > 0, batch.ranks[place].long(), value)


def convert_levels(
    level: torch.Tensor, stored: torch.Tensor, channel: torch.Tensor, factors: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Convert levels to a dtype. The product and the sum are rounded separately, as on the CPU."""
    if dtype.is_floating_point:
        scale, shift = factors[:, stored, channel.clamp(max=63)]
        made: torch.Tensor = level.float() * scale + shift
        return made.to(dtype)
    new = _INTEGER_BITS[dtype]
    own = torch.where(stored == SampleType.UINT8, 8, torch.where(stored == SampleType.UINT16, 16, 15))
    positive = level.clamp(min=0)
    larger = positive << (new - own).clamp(min=0)
    if new == 16:
        larger = torch.where(stored == SampleType.UINT8, positive * 257, larger)
    scaled = torch.where(own > new, positive >> (own - new).clamp(min=0), larger)
    return torch.where(own == new, level, scaled)


def _put(out: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> None:
    """Write to elements of the memory of a tensor of any strides."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(out.shape, out.stride(), strict=True))
    flat = out.as_strided((span,), (1,))
    if out.dtype == torch.uint16:  # PyTorch cannot index uint16 tensors
        flat, values = flat.view(torch.int16), values.to(torch.int16)
    flat[places] = values.to(flat.dtype)
