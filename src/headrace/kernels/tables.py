# SPDX-License-Identifier: Apache-2.0
"""The int64 tables that describe a batch to the kernels: one column per tile, and one column per image."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]


class TileKind(IntEnum):
    """The first byte of a tile (spec/image.md §6)."""

    CONSTANT = 0
    RAW = 1
    PALETTE = 2
    PACKED = 3
    CODED = 4


class TileField(IntEnum):
    """The rows of the tile table, which holds only the tiles that a region touches."""

    AT = 0  # offset of the tile's first byte in the payload
    LENGTH = 1
    IMAGE = 2  # index of the tile's image in the batch
    NUMBER = 3  # index of the tile in its image, in raster order
    KIND = 4
    BITS = 5  # bits of a coded value: n in the spec
    CHANNELS = 6
    HEIGHT = 7
    WIDTH = 8
    TOP = 9  # first row, relative to the region; negative where the tile starts above it
    LEFT = 10
    VALUES = 11  # offset of the tile's planes in the `values` scratch
    ENTRIES = 12  # offset of the tile's table of groups or blocks in the `entries` scratch
    NUMBERS = 13  # offset of the tile's unary numbers in the `numbers` scratch
    SOURCE = 14  # offset of the tile's first byte in its file; used by the host only
    SUM = 15  # checksum of the tile's bytes; used by the host only


class ImageField(IntEnum):
    """The rows of the image table. Sizes are those of the region that is decoded."""

    HEIGHT = 0
    WIDTH = 1
    CHANNELS = 2
    DTYPE = 3  # type of the stored samples: a `SampleType`
    RANKS = 4  # offset of the image's ranks in the rank table
    RANK_COUNT = 5  # 0 if the image has no ranks
    OUT = 6  # offset of the image in the output, in elements, like the strides
    STRIDE_C = 7
    STRIDE_Y = 8
    STRIDE_X = 9
    FLIP = 10  # 1 if the columns are mirrored


class SampleType(IntEnum):
    """The type of a stored sample."""

    UINT8 = 0
    UINT16 = 1
    INT16 = 2


LANES = 32  # rows of a tile; each is decoded by one lane of a warp
TILE_WIDTH = 256  # maximum
MAX_CHANNELS = 64
ALIGNMENT = 16  # of each tile in the payload, and of each part of a staged batch
SKEW = {TileKind.PALETTE: 1, TileKind.PACKED: 1, TileKind.CODED: 2}
"""By how many columns a lane is behind the lane above it."""

SIZES = ("n_tiles", "n_chains", "n_images", "n_jobs", "n_rectangles", "out_channels")
"""Kernel arguments that Triton must not specialize on: otherwise another batch could compile again."""
SLICES = ("status", "out", "source")
"""Kernel pointers that may be unaligned, because a caller may pass a slice of a tensor."""
