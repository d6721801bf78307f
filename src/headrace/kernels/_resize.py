# SPDX-License-Identifier: Apache-2.0
"""Resizing the images of a batch on their device."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import torch

from headrace.kernels._backend import Backend, choose
from headrace.kernels._batch import factors_of
from headrace.kernels._devices import launching_on
from headrace.kernels._normalisation import normalisation, output_dtype
from headrace.kernels.resize._jobs import Resize
from headrace.kernels.resize._tables import make_batch


def resize_batch(
    images: Sequence[torch.Tensor] | torch.Tensor,
    resizes: Sequence[Resize],
    *,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | str | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    flips: Sequence[bool] | None = None,
    backend: Backend = "auto",
) -> torch.Tensor:
    """Resize many images in one launch: bilinear, with antialias, with Pillow's weights.

    Levels are within 1 of those of the CPU's transforms, which weigh 8-bit samples in integers. They are rounded before
    they are converted and normalised, as there.

    Args:
        images: What `decode_batch` gave: tensors `[C, H, W]` of uint8, uint16 or int16, of one dtype.
        resizes: For each image its sizes before and after and the window that is wanted; all windows of one size.
        out: A tensor `[N, C, H, W]` of any strides to write to.
        dtype: As for `decode_batch`, like `mean`, `std`, `flips` and `backend`.
        mean: Subtracted.
        std: Divided by.
        flips: For each image whether its columns are mirrored.
        backend: What runs it.

    """
    pictures = list(images)
    if len(pictures) != len(resizes) or (flips is not None and len(flips) != len(pictures)):
        raise ValueError(f"there are {len(pictures)} images, {len(resizes)} resizes and {flips and len(flips)} flips")
    if not pictures:
        raise ValueError("there are no images to resize")
    stored = {image.dtype for image in pictures}
    made = output_dtype(out.dtype if dtype is None and out is not None else dtype, stored, normalised=mean is not None)
    factors = factors_of(*normalisation(mean, std, {image.shape[0] for image in pictures}))
    device = pictures[0].device
    if out is None:
        shape = (len(pictures), pictures[0].shape[0], *resizes[0].counts)
        out = torch.empty(shape, dtype=made, device=device)
    batch = make_batch(pictures, resizes, flips, factors, out)
    with launching_on(device):
        import_module(f"headrace.kernels.resize.{choose(backend, device)}").run(batch)
    return out
