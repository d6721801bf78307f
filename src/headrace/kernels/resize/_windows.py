# SPDX-License-Identifier: Apache-2.0
"""Which part of an image to resize, and the taps of each row and column: bilinear with antialiasing, as in Pillow.

An axis of `size` samples becomes one of `resized` samples, of which `count` samples from `begin` are computed. Sample x
of the result lies at `center = (x + 0.5) * size / resized`. It is a mean of the samples around it, weighted by a
triangle whose width is the scale factor. The host computes, once per row and column, where the triangle starts and the
sum of its weights; the device computes the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from headrace import _core


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

    SOURCE = 0
    """Offset of the image in the source memory, in elements, like the strides."""
    STRIDE_C = 1
    STRIDE_Y = 2
    STRIDE_X = 3
    CHANNELS = 4
    HEIGHT = 5
    """Of the window, like the width."""
    WIDTH = 6
    ROWS = 7
    """Offset of its rows in the tables of taps."""
    COLUMNS = 8
    OUT = 9
    OUT_C = 10
    OUT_Y = 11
    OUT_X = 12
    FLIP = 13


@dataclass(frozen=True)
class Taps:
    """For each row and column of each result: its source samples and their weights."""

    first: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    position: npt.NDArray[np.float32]
    """Distance of the first sample from the center, in half widths of the triangle."""
    step: npt.NDArray[np.float32]
    """Distance from one sample to the next."""
    unit: npt.NDArray[np.float32]
    """Factor that makes the weights sum to 1."""


def make_taps(windows: Sequence[ResizeWindow]) -> tuple[Taps, npt.NDArray[np.int64]]:
    """Return the taps (of the first image's rows, of its columns, of the second image's rows, …) and their samples.

    The samples are ranges [image, rows and columns, begin and end], counted from the first row and column.
    """
    parts = [(*each.size, *each.resized, *each.begin, *each.counts, *each.origin) for each in windows]
    axes = np.array(parts, np.int64).reshape(-1, 5, 2).transpose(0, 2, 1).reshape(-1, 5)
    integers, floats, ranges = _core.resize_taps(axes)
    return Taps(*integers, *floats), ranges.reshape(-1, 2, 2)
