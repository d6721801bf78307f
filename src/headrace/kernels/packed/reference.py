# SPDX-License-Identifier: Apache-2.0
"""Packed tiles in plain NumPy: the widths of groups, and the residuals of their samples (spec §6.4)."""

from __future__ import annotations

import numpy as np

from headrace.kernels._batch import GROUP
from headrace.kernels._reference_tile import Tile, check, unblock, unzigzag
from headrace.kernels._status import Reason
from headrace.kernels.finish.reference import undo_color
from headrace.kernels.tables import Ints
from headrace.kernels.wave.reference import undo_prediction

FIRST_WIDTH = 4


def decode(tile: Tile) -> Ints:
    """Return the values of a tile [channels, height, width]."""
    codes, ids = tile.color(), tile.predictors(tile.channels, 2)
    shape = tile.channels, -(-tile.height // GROUP), -(-tile.width // GROUP)
    steps = unzigzag(tile.unary(tile.number(2), int(np.prod(shape))), 255).reshape(shape)
    # A group is predicted by the one above it; those of the first row by the one to the left.
    steps[:, 0] = FIRST_WIDTH + steps[:, 0].cumsum(1)
    widths = steps.cumsum(1) & 255
    check((widths <= tile.n).all(), Reason.WIDTH)
    samples = np.array([tile.samples(GROUP * GROUP, int(b)) for b in widths.flat]).reshape(*shape, GROUP, GROUP)
    tile.last_bits(0)
    sign = (1 << widths >> 1)[..., None, None]
    residuals = unblock((samples ^ sign) - sign, tile.height, tile.width)
    return undo_color(undo_prediction(residuals, ids[:, None].repeat(tile.width, 1), tile.n), codes, tile.n)
