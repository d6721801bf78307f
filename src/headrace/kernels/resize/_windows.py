# SPDX-License-Identifier: Apache-2.0
"""What is to be resized, and the tables that say how: bilinear with antialias, with Pillow's weights.

An axis of `size` samples becomes one of `resized`, of which `count` from `begin` on are wanted. Sample x of the result
lies at `center = (x + 0.5) * size / resized` and is a mean of the samples around it, weighted by a triangle that is as
wide as the axis shrinks. The host works out, once a row and once a column, where the triangle begins and by what its
weights have to be divided; the weights themselves are made on the device.
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
    """An image of `size` becomes one of `resized`, (height, width) each, of which a window is wanted.

    `origin` is the first pixel that is at hand, where only a part of the image was decoded: that of `needed_region`.
    """

    size: tuple[int, int]
    resized: tuple[int, int]
    begin: tuple[int, int] = (0, 0)
    count: tuple[int, int] | None = None  # None: up to the end
    origin: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if min(*self.size, *self.resized, *self.counts) < 1 or min(*self.begin, *self.origin) < 0:
            raise ValueError(f"{self} has a side below 1 or begins below 0")
        if any(b + c > r for b, c, r in zip(self.begin, self.counts, self.resized, strict=True)):
            raise ValueError(f"the window of {self} is not within the resized image")

    @property
    def counts(self) -> tuple[int, int]:
        if self.count is not None:
            return self.count
        return self.resized[0] - self.begin[0], self.resized[1] - self.begin[1]

    def needed_region(self) -> tuple[int, int, int, int]:
        """The part of the image that the window depends on, (top, left, height, width): what has to be decoded."""
        begins, ends = zip(*(self._needed(axis) for axis in (0, 1)), strict=True)
        return begins[0], begins[1], ends[0] - begins[0], ends[1] - begins[1]

    def _needed(self, axis: int) -> tuple[int, int]:
        return _core.resize_range(self.size[axis], self.resized[axis], self.begin[axis], self.counts[axis])


class ResizeField(IntEnum):
    """The rows of the table of jobs, int64."""

    SOURCE = 0
    """Where the image begins in the memory of all, in elements, like the strides."""
    STRIDE_C = 1
    STRIDE_Y = 2
    STRIDE_X = 3
    CHANNELS = 4
    HEIGHT = 5
    """Of what is wanted, like the width."""
    WIDTH = 6
    ROWS = 7
    """Where its rows begin in the tables of taps."""
    COLUMNS = 8
    OUT = 9
    OUT_C = 10
    OUT_Y = 11
    OUT_X = 12
    FLIP = 13


@dataclass(frozen=True)
class Taps:
    """Of every row and column of every result: its samples, and how to weigh them."""

    first: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    position: npt.NDArray[np.float32]
    """Of the first sample, in half widths of the triangle."""
    step: npt.NDArray[np.float32]
    """From a sample to the next."""
    unit: npt.NDArray[np.float32]
    """By which weights are multiplied so that they add up to one."""


def make_taps(jobs: Sequence[ResizeWindow]) -> tuple[Taps, npt.NDArray[np.int64]]:
    """The taps of the first job's rows, of its columns, of the second job's rows, and so on.

    Also the samples that they look at, counted from the image's first: [job, rows and columns, begin and end].
    """
    parts = [(*job.size, *job.resized, *job.begin, *job.counts, *job.origin) for job in jobs]
    axes = np.array(parts, np.int64).reshape(-1, 5, 2).transpose(0, 2, 1).reshape(-1, 5)
    whole, real, ranges = _core.resize_taps(axes)
    return Taps(*whole, *real), ranges.reshape(-1, 2, 2)
