# SPDX-License-Identifier: Apache-2.0
"""The tables that tell a device about a batch, a column a tile and a column an image, and what they hold: int64."""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """What a tile's first byte says (spec/image.md §6)."""

    CONSTANT = 0
    RAW = 1
    PALETTE = 2
    PACKED = 3
    CODED = 4


class Tile(IntEnum):
    """The rows of the table of tiles. Only the tiles that a region touches are in it."""

    AT = 0
    """Where its bytes begin in the payload."""
    LENGTH = 1
    IMAGE = 2
    """Which image of the batch it belongs to."""
    NUMBER = 3
    """Which tile of that image it is, in raster order."""
    KIND = 4
    BITS = 5
    """Of a coded value: n of the spec."""
    CHANNELS = 6
    HEIGHT = 7
    WIDTH = 8
    TOP = 9
    """Its first row, counted from the region's; negative where the tile begins above it."""
    LEFT = 10
    VALUES = 11
    """Where its planes begin in the scratch of values."""
    ENTRIES = 12
    """Where its table of groups or blocks begins in the scratch of entries."""
    NUMBERS = 13
    """Where its unary numbers go in the scratch of numbers."""
    SOURCE = 14
    """Where its bytes begin in the file; for the host alone."""
    SUM = 15
    """The checksum of its bytes; for the host alone."""


class Image(IntEnum):
    """The rows of the table of images."""

    HEIGHT = 0
    """Of the region, like the width."""
    WIDTH = 1
    CHANNELS = 2
    DTYPE = 3
    """Of the stored samples: a `Sample`."""
    RANKS = 4
    """Where its ranks begin in the table of ranks."""
    RANK_COUNT = 5
    """0: it has none."""
    OUT = 6
    """Where it begins in the output, in elements, like the strides."""
    STRIDE_C = 7
    STRIDE_Y = 8
    STRIDE_X = 9
    FLIP = 10
    """1: its columns are mirrored."""


class Sample(IntEnum):
    """What a stored sample is."""

    UINT8 = 0
    UINT16 = 1
    INT16 = 2


LANES = 32  # rows of a tile, and lanes that take a row each
TILE_WIDTH = 256  # at most
MAX_CHANNELS = 64
ALIGNMENT = 16  # of each tile in the payload, and of each part of a staged batch
SKEW = {Kind.PALETTE: 1, Kind.PACKED: 1, Kind.CODED: 2}
"""By how many columns a lane is behind the one above it in a tile's wave."""


def slot_samples(kind: Kind, width: int) -> int:
    """How many values a plane of a tile takes in the scratch: a row of lanes for each step of its wave."""
    return LANES * (width + SKEW[kind] * (LANES - 1))


SIZES = ("n_tiles", "n_chains", "n_images", "n_jobs", "n_rectangles", "out_channels")
"""Arguments of kernels that no code is specialised for: another batch must not be another compilation."""
SLICES = ("status", "out", "source")
"""Pointers of which no alignment is assumed, for the same reason: a caller may pass a part of a tensor."""
