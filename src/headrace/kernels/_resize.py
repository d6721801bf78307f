# SPDX-License-Identifier: Apache-2.0
"""Resize the images of a batch on their device: bilinear with antialiasing, as in Pillow.

An axis of `size` samples becomes one of `resized` samples, of which `count` samples from `begin` are computed. Sample x
of the result lies at `center = (x + 0.5) * size / resized`. It is a mean of the samples around it, weighted by a
triangle whose width is the scale factor. The host computes, once per row and column, where the triangle starts and the
sum of its weights; the device computes the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headrace import _core
from headrace.errors import InvalidOutput
from headrace.kernels._batch import BufferPart, append_parts
from headrace.kernels._output import output_dtype, scale_and_shift
from headrace.kernels.backend import Backend, choose, launching_on


@dataclass(frozen=True)
class ResizeWindow:
    """Resize an image from `size` to `resized`, (height, width) each, and compute a window of the result.

    `origin` is the first decoded pixel, if only `needed_region` was decoded.
    """

    size: tuple[int, int]
    resized: tuple[int, int]
    begin: tuple[int, int] = (0, 0)
    count: tuple[int, int] | None = None  # None: to the end
    origin: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if min(*self.size, *self.resized, *self.counts) < 1 or min(*self.begin, *self.origin) < 0:
            raise ValueError(f"sizes must be >= 1, and begin and origin >= 0; got {self}")
        if any(b + c > r for b, c, r in zip(self.begin, self.counts, self.resized, strict=True)):
            raise ValueError(f"the window must be within the resized image; got {self}")

    @property
    def counts(self) -> tuple[int, int]:
        if self.count is not None:
            return self.count
        return self.resized[0] - self.begin[0], self.resized[1] - self.begin[1]

    def needed_region(self) -> tuple[int, int, int, int]:
        """The part of the image that the window depends on and that must be decoded: (top, left, height, width)."""
        begins, ends = zip(*(self._needed(axis) for axis in (0, 1)), strict=True)
        return begins[0], begins[1], ends[0] - begins[0], ends[1] - begins[1]

    def _needed(self, axis: int) -> tuple[int, int]:
        return _core.resize_range(self.size[axis], self.resized[axis], self.begin[axis], self.counts[axis])


class ResizeField(IntEnum):
    """The rows of the int64 table of resizes, which has one column per image."""

    SOURCE = 0  # offset of the image in the source memory, in elements, like the strides
    STRIDE_C = 1
    STRIDE_Y = 2
    STRIDE_X = 3
    CHANNELS = 4
    HEIGHT = 5  # of the window, like the width
    WIDTH = 6
    ROWS = 7  # offset of its rows in the tables of taps
    COLUMNS = 8
    OUT = 9
    OUT_C = 10
    OUT_Y = 11
    OUT_X = 12
    FLIP = 13


TAPS = ("first", "count", "position", "step", "unit")


def make_taps(windows: Sequence[ResizeWindow]) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.int64]]:
    """Return the taps (of the first image's rows, of its columns, of the second image's rows, …) and their samples.

    The samples are ranges [image, rows and columns, begin and end], counted from the first row and column.
    """
    parts = [(*each.size, *each.resized, *each.begin, *each.counts, *each.origin) for each in windows]
    axes = np.array(parts, np.int64).reshape(-1, 5, 2).transpose(0, 2, 1).reshape(-1, 5)
    integers, floats, ranges = _core.resize_taps(axes)
    return dict(zip(TAPS, [*integers, *floats], strict=True)), ranges.reshape(-1, 2, 2)


@dataclass(frozen=True)
class ResizeBatch:
    """Everything that the kernel accesses."""

    source: torch.Tensor
    jobs: torch.Tensor  # int64 [ResizeField, images]
    first: torch.Tensor  # int32: the first source sample of each row and column of each result
    count: torch.Tensor  # int32: how many source samples
    position: torch.Tensor  # float32: distance of the first one from the center, in half widths of the triangle
    step: torch.Tensor  # float32: distance from one source sample to the next
    unit: torch.Tensor  # float32: factor that makes the weights sum to 1
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
    arrays: dict[str, npt.NDArray[Any]] = {"jobs": jobs, "factors": factors, **taps}
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
        dtype, mean, std, flips, backend: As for `decode_batch`.

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
