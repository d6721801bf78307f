# SPDX-License-Identifier: Apache-2.0
"""A batch of images to be resized, with its tables, in the memory of a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from headrace.errors import InvalidOutput
from headrace.kernels._batch import BufferPart, append_parts
from headrace.kernels.resize._windows import ResizeField, ResizeWindow, make_taps


@dataclass(frozen=True)
class ResizeBatch:
    """Everything that the kernel accesses."""

    source: torch.Tensor
    jobs: torch.Tensor  # int64 [ResizeField, images]
    first: torch.Tensor  # int32, like the count; of all rows and columns
    count: torch.Tensor
    position: torch.Tensor  # float32, like the two that follow
    step: torch.Tensor
    unit: torch.Tensor
    factors: torch.Tensor  # float32 [scale and shift, SampleType, MAX_CHANNELS]
    out: torch.Tensor
    max_height: int
    max_width: int


def make_batch(
    images: Sequence[torch.Tensor],
    resizes: Sequence[ResizeWindow],
    flips: Sequence[bool] | None,
    factors: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    out: torch.Tensor,
) -> ResizeBatch:
    """Lay the tables out and copy them to the device of the images at once."""
    source, offsets = _one_memory(images)
    taps, ranges = make_taps(resizes)
    needed: list[list[list[int]]] = ranges.tolist()
    strides = out.stride()
    columns: list[tuple[int, ...]] = []
    at = 0
    for i, (image, resize) in enumerate(zip(images, resizes, strict=True)):
        _check(image, resize, needed[i], out, i)
        height, width = resize.counts
        flip = flips is not None and bool(flips[i])
        window = image.shape[0], height, width, at, at + height
        columns.append((offsets[i], *image.stride(), *window, i * strides[0], *strides[1:], flip))
        at += height + width
    jobs = np.ascontiguousarray(np.array(columns, np.int64).reshape(-1, len(ResizeField)).T)
    arrays = {"jobs": jobs, "factors": factors, **vars(taps)}
    parts: dict[str, BufferPart] = {}
    end = append_parts(parts, arrays)
    staged = torch.empty(end, dtype=torch.uint8, pin_memory=source.device.type == "cuda")
    for name, array in arrays.items():
        parts[name].of_host(staged)[...] = array
    buffer = staged.to(source.device, non_blocking=True)
    return ResizeBatch(
        source=source,
        out=out,
        max_height=int(jobs[ResizeField.HEIGHT].max(initial=1)),
        max_width=int(jobs[ResizeField.WIDTH].max(initial=1)),
        **{name: part.of_device(buffer) for name, part in parts.items()},
    )


def _one_memory(images: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[int]]:
    """Return a tensor that spans the memory of all images, and their offsets; several storages are copied to one."""
    if len({image.untyped_storage().data_ptr() for image in images}) > 1:
        flat = torch.cat([image.reshape(-1) for image in images])
        sizes = [image.numel() for image in images]
        return flat, [sum(sizes[:i]) for i in range(len(sizes))]
    elements = images[0].untyped_storage().nbytes() // images[0].element_size()
    memory = images[0].as_strided((elements,), (1,), 0)
    return memory, [int(image.storage_offset()) for image in images]


def _check(
    image: torch.Tensor, resize: ResizeWindow, needed: Sequence[Sequence[int]], out: torch.Tensor, i: int
) -> None:
    """Check that the samples that the taps need were decoded, and that the result fits into `out`."""
    if image.ndim != 3:
        raise ValueError(f"images must be [C, H, W]; image {i} is {list(image.shape)}")
    channels, height, width = image.shape
    (top, bottom), (left, right) = needed
    first_row, first_column = resize.origin
    end = first_row + height, first_column + width
    if top < first_row or left < first_column or bottom > end[0] or right > end[1]:
        raise ValueError(
            f"image {i}: the window needs rows {top} to {bottom} and columns {left} to {right}; got an image from "
            f"{resize.origin} to {end}"
        )
    expected = (channels, *resize.counts)
    if out.ndim != 4 or out.shape[1:] != expected or i >= out.shape[0]:
        raise InvalidOutput(f"out must be [N, *{list(expected)}] for image {i}; got {list(out.shape)}")
