# SPDX-License-Identifier: Apache-2.0
"""Resize the images of a batch on their device."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import torch

from headrace.kernels._output import output_dtype, scale_and_shift
from headrace.kernels.backend import Backend, choose, launching_on
from headrace.kernels.resize._tables import make_batch
from headrace.kernels.resize._windows import ResizeWindow


def resize_batch(
    images: Sequence[torch.Tensor] | torch.Tensor,
    resizes: Sequence[ResizeWindow],
    *,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | str | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    flips: Sequence[bool] | None = None,
    backend: Backend = "auto",
) -> torch.Tensor:
    """Resize many images in one launch: bilinear with antialiasing, with Pillow's weights.

    Levels differ by at most 1 from those of the CPU's transforms, which weight 8-bit samples in integers. As there,
    levels are rounded before they are converted and normalized.

    Args:
        images: Tensors `[C, H, W]` of uint8, uint16 or int16, all of one dtype, as `decode_batch` returns them.
        resizes: For each image its sizes before and after, and the window to compute; all windows of one size.
        out: A tensor `[N, C, H, W]` of any strides to write to.
        dtype: As for `decode_batch`, like `mean`, `std`, `flips` and `backend`.
        mean: Subtracted.
        std: Divides the result.
        flips: For each image whether its columns are mirrored.
        backend: What runs it.

    """
    sources = list(images)
    if len(sources) != len(resizes) or (flips is not None and len(flips) != len(sources)):
        given = f"{len(sources)} images, {len(resizes)} resizes and {flips and len(flips)} flips"
        raise ValueError(f"there must be one resize, and one flip if any, per image; got {given}")
    if not sources:
        raise ValueError("images must not be empty")
    stored = {image.dtype for image in sources}
    made = output_dtype(out.dtype if dtype is None and out is not None else dtype, stored, normalized=mean is not None)
    factors = scale_and_shift(mean, std, {image.shape[0] for image in sources})
    device = sources[0].device
    if out is None:
        shape = (len(sources), sources[0].shape[0], *resizes[0].counts)
        out = torch.empty(shape, dtype=made, device=device)
    batch = make_batch(sources, resizes, flips, factors, out)
    with launching_on(device):
        import_module(f"headrace.kernels.resize.{choose(backend, device)}").run(batch)
    return out
