# SPDX-License-Identifier: Apache-2.0
"""Palette tiles in plain NumPy: the colors, and the exceptions from the prediction (spec §6.3)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.kernels._batch import BLOCK
from headrace.kernels._reference_tile import Tile, check, join_bits, unblock, unpack
from headrace.kernels._status import Reason
from headrace.kernels.tables import Ints
from headrace.kernels.wave.reference import NO_EXCEPTION, fill_colors


def decode(tile: Tile) -> Ints:
    """Return the values of a tile [channels, height, width]."""
    count = tile.number(1)
    check(count >= 2, Reason.PALETTE)
    colors = tile.numbers((count, tile.channels), tile.n // 8)
    check(all(low < high for low, high in pairwise(colors.tolist())), Reason.PALETTE)

    down, across = -(-tile.height // BLOCK), -(-tile.width // BLOCK)
    flags = unpack(tile.take(-(-down * across // 8)), 1)
    check(not flags[down * across :].any(), Reason.PADDING)
    excepted = _flags_of(tile, _flags_of(tile, flags[: down * across] == 1))  # [blocks, rows, columns]
    b = (count - 1).bit_length()
    numbers = join_bits(tile.last_bits(b * int(excepted.sum())), b)
    exceptions = np.full(excepted.shape, NO_EXCEPTION)
    exceptions[excepted] = numbers
    plane = unblock(exceptions.reshape(1, down, across, BLOCK, BLOCK), tile.height, tile.width)
    is_inside = (plane != NO_EXCEPTION).sum() == len(numbers)
    check(is_inside and (numbers < count).all(), Reason.EXCEPTION)
    values: Ints = colors[fill_colors(plane)[0]].transpose(2, 0, 1)
    return values


def _flags_of(tile: Tile, wanted: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Read a byte of flags, which must not be 0, for each place where `wanted` is true."""
    octets = tile.take(int(wanted.sum()))
    check(octets.all(), Reason.EXCEPTION)
    flags = np.zeros((*wanted.shape, 8), bool)
    flags[wanted] = np.unpackbits(octets, bitorder="little").reshape(-1, 8)
    return flags
