# SPDX-License-Identifier: Apache-2.0
"""Bilinear resize with antialiasing in plain PyTorch: two matrix products per image."""

from __future__ import annotations

import torch

from headrace.kernels._resize import ResizeBatch, ResizeField
from headrace.kernels.finish.reference import convert_levels
from headrace.kernels.tables import SampleType

_SAMPLES = {torch.uint8: SampleType.UINT8, torch.uint16: SampleType.UINT16, torch.int16: SampleType.INT16}
_LEVELS = {SampleType.UINT8: (0, 255), SampleType.UINT16: (0, 65535), SampleType.INT16: (-32768, 32767)}


def run(batch: ResizeBatch) -> None:
    """Resize all images of a batch."""
    stored = _SAMPLES[batch.source.dtype]
    lowest, highest = _LEVELS[stored]
    source = batch.source.view(torch.int16) if stored == SampleType.UINT16 else batch.source
    for i, job in enumerate(batch.jobs.T.tolist()):
        rows = _weights(batch, job[ResizeField.ROWS], job[ResizeField.HEIGHT])  # [H, h]
        columns = _weights(batch, job[ResizeField.COLUMNS], job[ResizeField.WIDTH])  # [W, w]
        shape = job[ResizeField.CHANNELS], rows.shape[1], columns.shape[1]
        image = source.as_strided(shape, job[ResizeField.STRIDE_C : ResizeField.STRIDE_X + 1], job[ResizeField.SOURCE])
        levels = (image.int() & 0xFFFF if stored == SampleType.UINT16 else image).float()
        made = (rows @ levels @ columns.T + 0.5).floor().clamp(lowest, highest).int()  # [C, H, W]
        made = made.flip(2) if job[ResizeField.FLIP] else made
        batch.out[i].copy_(convert_levels(made, stored, batch.factors, batch.out.dtype))


def _weights(batch: ResizeBatch, start: int, count: int) -> torch.Tensor:
    """The weight of each source sample for each sample of the result."""
    own = slice(start, start + count)
    first, taps = batch.first[own, None], batch.count[own, None]
    sample = torch.arange(int((first + taps).max()), device=first.device)[None]
    weights = (1 - (batch.position[own, None] + (sample - first) * batch.step[own, None]).abs()).clamp(min=0)
    return torch.where((sample >= first) & (sample < first + taps), weights * batch.unit[own, None], 0)
