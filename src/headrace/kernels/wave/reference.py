# SPDX-License-Identifier: Apache-2.0
"""Waves in plain NumPy: from residuals or exceptions to values, one diagonal of a tile at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headrace.kernels._reference_tile import average
from headrace.kernels.tables import Ints

NO_EXCEPTION = -1


def undo_prediction(residuals: Ints, predictors: Ints, n: int) -> Ints:
    """Return the values for residuals [planes, height, width]. `predictors` has one for each column [planes, width]."""

    def value(given: Ints, w: Ints, n_: Ints, nw: Ints, ne: Ints, x: Ints) -> Ints:
        """Apply predictors 0 to 4 (spec §5.5)."""
        low, high = np.minimum(w, n_), np.maximum(w, n_)
        median = low + high - np.clip(nw, low, high)
        flat, soft = average(w, n_), average(w, average(n_, ne))
        every = [flat, median, average(median, flat), soft, average(median, soft)]
        return np.choose(predictors[:, x], every) + given & (1 << n) - 1

    return _decode(residuals, 1 << n - 1, value)


def fill_colors(exceptions: Ints) -> Ints:
    """Return the color numbers of a palette tile from its exceptions [1, height, width] (spec §6.3)."""

    def value(given: Ints, w: Ints, n: Ints, nw: Ints, _: Ints, __: Ints) -> Ints:
        return np.where(given == NO_EXCEPTION, np.where(w == nw, n, w), given)

    return _decode(exceptions, 0, value)


def _decode(given: Ints, start: int, value: Callable[[Ints, Ints, Ints, Ints, Ints, Ints], Ints]) -> Ints:
    """Compute each sample with `value` from what is given for it and from its neighbors W, N, NW and NE.

    In row 0 all neighbors above are W, in column 0 all neighbors to the left are N. The first sample has `start`.
    """
    _, height, width = given.shape
    values = np.full_like(given, start)
    for step in range(width + 2 * (height - 1)):
        y = np.arange(max(0, (step - width + 2) // 2), min(height, step // 2 + 1))
        x = step - 2 * y
        north = np.where(y == 0, values[:, y, x - 1], values[:, y - 1, x])
        west = np.where(x == 0, north, values[:, y, x - 1])
        at_edge = (x == 0) | (y == 0) | (x == width - 1)
        north_east = np.where(at_edge, north, values[:, y - 1, np.minimum(x + 1, width - 1)])
        values[:, y, x] = value(given[:, y, x], west, north, values[:, y - 1, x - 1], north_east, x)
    return values
