# SPDX-License-Identifier: Apache-2.0
"""From the values of tiles to output pixels, in plain NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import torch

from headrace.kernels._batch import DeviceBatch
from headrace.kernels._reference_tile import average
from headrace.kernels.tables import ImageField, Ints, SampleType, TileField

_STORED_BITS = {SampleType.UINT8: 8, SampleType.UINT16: 16, SampleType.INT16: 15}  # of the non-negative part
_INTEGER_BITS = {torch.uint8: 8, torch.uint16: 16, torch.int16: 15}


def undo_color(planes: Ints, codes: Ints, n: int) -> Ints:
    """Return the channels of planes in the order in which they are coded: green first (spec §5.4)."""
    channels = planes.copy()
    if len(planes) > 1:
        channels[:2] = planes[1::-1]
    for c in [1, 0, *range(2, len(planes))][-len(planes) :]:
        if codes[c]:
            near = channels[c - 1 if c else 1]
            reference = average(near, channels[c - 2]) if codes[c] == 2 else near
            channels[c] = channels[c] + reference - (1 << n - 1) & (1 << n) - 1
    return channels


def write(batch: DeviceBatch, tile: Ints, image: Ints, values: Ints) -> None:
    """Write a tile's values [channels, height, width] to its image; `tile` and `image` are columns of the tables."""
    if image[ImageField.RANK_COUNT]:  # spec §4
        ranks = batch.ranks.cpu().numpy()[image[ImageField.RANKS] :][: image[ImageField.RANK_COUNT]]
        values = ranks[np.minimum(values, len(ranks) - 1)].astype(np.int64)
    stored = SampleType(image[ImageField.DTYPE])
    levels = values - 32768 if stored == SampleType.INT16 else values
    if batch.staged.out_channels == 3:
        levels = levels[[0, 0, 0]] if len(levels) <= 2 else levels[:3]
    # Only the part that lies within the region is written.
    (top, left), (height, width) = tile[[TileField.TOP, TileField.LEFT]], image[[ImageField.HEIGHT, ImageField.WIDTH]]
    levels = levels[:, max(0, -top) : height - top, max(0, -left) : width - left]
    top, left = max(0, top), max(0, left)
    if image[ImageField.FLIP]:
        levels, left = levels[:, :, ::-1], width - left - levels.shape[2]
    made = convert_levels(torch.from_numpy(levels.copy()), stored, batch.factors.cpu(), batch.out.dtype)
    strides = image[[ImageField.STRIDE_C, ImageField.STRIDE_Y, ImageField.STRIDE_X]].tolist()
    place = int(image[ImageField.OUT]) + int(top) * strides[1] + int(left) * strides[2]
    batch.out.as_strided(made.shape, strides, batch.out.storage_offset() + place).copy_(made)


def convert_levels(levels: torch.Tensor, stored: SampleType, factors: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert levels [C, H, W] of a stored type to a dtype: normalize floats, or scale integers to its range."""
    if dtype.is_floating_point:
        scale, shift = factors[:, stored, : len(levels), None, None]
        made: torch.Tensor = levels.float() * scale + shift  # rounded separately, as on the CPU
        return made.to(dtype)
    own, new = _STORED_BITS[stored], _INTEGER_BITS[dtype]
    if own < new:
        levels = levels.clamp(min=0)
        levels = levels * 257 if own == 8 and new == 16 else levels << new - own
    elif own > new:
        levels = levels.clamp(min=0) >> own - new
    return levels.to(dtype)
