# SPDX-License-Identifier: Apache-2.0
"""A batch of images to be resized, with its tables, in the memory of a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from headrace.errors import InvalidOutput
from headrace.kernels._batch import Part
from headrace.kernels._fields import ALIGNMENT
from headrace.kernels.resize._jobs import Job, Resize, make_taps


@dataclass(frozen=True)
class ResizeBatch:
    """All that the kernel sees."""

    source: torch.Tensor
    jobs: torch.Tensor  # int64 [Job, images]
    first: torch.Tensor  # int32, like the count; of all rows and columns
    count: torch.Tensor
    position: torch.Tensor  # float32, like the two that follow
    step: torch.Tensor
    unit: torch.Tensor
    factors: torch.Tensor  # float32 [scale and shift, Sample, MAX_CHANNELS]
    out: torch.Tensor
    max_height: int
    max_width: int


def make_batch(
    images: Sequence[torch.Tensor],
    resizes: Sequence[Resize],
    flips: Sequence[bool] | None,
    factors: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    out: torch.Tensor,
) -> ResizeBatch:
    """Lay the tables out and bring them to the images' device in one copy."""
    source, offsets = _one_memory(images)
    jobs = np.zeros((len(Job), len(images)), np.int64)
    taps = make_taps(resizes)
    at = 0
    for i, (image, resize) in enumerate(zip(images, resizes, strict=True)):
        _check(image, resize, out, i)
        height, width = resize.counts
        jobs[Job.SOURCE, i] = offsets[i]
        jobs[[Job.STRIDE_C, Job.STRIDE_Y, Job.STRIDE_X], i] = image.stride()
        jobs[[Job.CHANNELS, Job.HEIGHT, Job.WIDTH], i] = image.shape[0], height, width
        jobs[[Job.ROWS, Job.COLUMNS], i] = at, at + height
        jobs[Job.OUT, i] = i * out.stride(0)
        jobs[[Job.OUT_C, Job.OUT_Y, Job.OUT_X], i] = out.stride()[1:]
        jobs[Job.FLIP, i] = flips is not None and bool(flips[i])
        at += height + width
    arrays = {"jobs": jobs, "factors": factors, **vars(taps)}
    parts: dict[str, Part] = {}
    end = 0
    for name, array in arrays.items():
        parts[name] = Part(-(-end // ALIGNMENT) * ALIGNMENT, array.shape, array.dtype)
        end = parts[name].end
    staged = torch.empty(end, dtype=torch.uint8, pin_memory=source.device.type == "cuda")
    for name, array in arrays.items():
        parts[name].of_host(staged)[...] = array
    buffer = staged.to(source.device, non_blocking=True)
    return ResizeBatch(
        source=source,
        out=out,
        max_height=int(jobs[Job.HEIGHT].max(initial=1)),
        max_width=int(jobs[Job.WIDTH].max(initial=1)),
        **{name: part.of_device(buffer) for name, part in parts.items()},
    )


def _one_memory(images: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[int]]:
    """A tensor that spans the images' memory, and where each begins in it. What is scattered is gathered first."""
    if len({image.untyped_storage().data_ptr() for image in images}) > 1:
        flat = torch.cat([image.reshape(-1) for image in images])
        sizes = [image.numel() for image in images]
        return flat, [sum(sizes[:i]) for i in range(len(sizes))]
    elements = images[0].untyped_storage().nbytes() // images[0].element_size()
    whole = images[0].as_strided((elements,), (1,), 0)
    return whole, [int(image.storage_offset()) for image in images]


def _check(image: torch.Tensor, resize: Resize, out: torch.Tensor, index: int) -> None:
    if image.ndim != 3:
        raise ValueError(f"image {index} is {list(image.shape)}; what is resized is [C, H, W]")
    top, left, height, width = resize.needed_region()
    end = resize.origin[0] + image.shape[1], resize.origin[1] + image.shape[2]
    if top < resize.origin[0] or left < resize.origin[1] or top + height > end[0] or left + width > end[1]:
        raise ValueError(
            f"image {index}: rows {top} to {top + height} and columns {left} to {left + width} are needed, but what is "
            f"given begins at {resize.origin} and ends at {end}"
        )
    expected = (image.shape[0], *resize.counts)
    if out.ndim != 4 or tuple(out.shape[1:]) != expected or index >= out.shape[0]:
        raise InvalidOutput(f"image {index} comes out as {list(expected)}, but out is {list(out.shape)}")
