# SPDX-License-Identifier: Apache-2.0
"""Where points go when an image is deformed: the inverse of an elastic deformation, by Newton's method.

The core works the other way: it looks up, for each place x of the new image, the place x + d(x) of the old one. The
displacement d is a cubic B-spline; `cpp/src/transform/warp/field.h` has the details.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

_ITERATIONS = 20
_CLOSE = 1e-3  # pixels
_MAX_PARTS = 256  # of an edge


class Deformation:
    """The displacements of one image, from the "elastic" entry of a pass."""

    def __init__(self, elastic: Mapping[str, Any]) -> None:
        self._nodes = np.asarray(elastic["nodes"], np.float64)  # [2, rows, columns]
        self._size = np.array(elastic["size"], np.float64)  # width, height
        self._spacing = np.array(elastic["spacing"], np.float64)  # across, down

    @property
    def spacing(self) -> float:
        """Pixels between two nodes, of the direction in which they are closer."""
        return float(self._spacing.min())

    def at(self, points: Floats) -> tuple[Floats, Floats]:
        """Return displacements `[N, 2]` at `points`, and their derivatives `[N, 2, 2]` (by x, then by y)."""
        inside = np.clip(points, 0, self._size) / self._spacing
        cells = inside.astype(np.int64)
        (x, slope_x), (y, slope_y) = (_weights(inside[:, k] - cells[:, k]) for k in (0, 1))
        column, row = cells.T
        # [2, N, 4 rows, 4 columns]
        around = self._nodes[:, (row[:, None] + range(4))[:, :, None], (column[:, None] + range(4))[:, None, :]]
        displacements = np.einsum("knij,ni,nj->nk", around, y, x)
        by_x = np.einsum("knij,ni,nj->nk", around, y, slope_x) / self._spacing[0]
        by_y = np.einsum("knij,ni,nj->nk", around, slope_y, x) / self._spacing[1]
        return displacements, np.stack([by_x, by_y], axis=-1)

    def undo(self, points: Floats) -> Floats:
        """Return where places `[..., 2]` of the old image are in the new one; not finite ones stay as they are.

        Where the deformation folds the image, it is one of several places, or the closest one that was found.
        """
        goals = points.reshape(-1, 2)
        found = goals.copy()
        open_ = np.flatnonzero(np.isfinite(goals).all(axis=1))
        at, best = goals[open_], np.full(len(open_), np.inf)
        for _ in range(_ITERATIONS):
            displacements, slopes = self.at(at)
            missed = at + displacements - goals[open_]
            distance = np.hypot(*missed.T)
            better = distance < best
            found[open_[better]] = at[better]
            best = np.minimum(best, distance)
            far = best > _CLOSE
            if not far.any():
                break
            open_, at, best = open_[far], at[far], best[far]
            # Newton's step; where the image is almost folded, at most one node's spacing far.
            (a, b), (c, d) = np.moveaxis(slopes[far] + np.eye(2), 0, -1)
            determinant = a * d - b * c
            determinant = np.where(np.abs(determinant) > 0.05, determinant, 0.05)
            x, y = missed[far].T
            step = np.stack([d * x - b * y, a * y - c * x], axis=-1) / determinant[:, None]
            at = at - np.clip(step, -self._spacing, self._spacing)
        return found.reshape(points.shape)


def subdivide(polygons: Floats, length: float) -> Floats:
    """Return polygons `[N, V, 2]` whose edges are not longer than this, or a 256th of what they were.

    All get the same number of vertices again; those that a polygon does not need repeat its last one.
    """
    made = []
    for polygon in polygons:
        following = np.roll(polygon, -1, axis=0)
        lengths = np.nan_to_num(np.hypot(*(following - polygon).T))
        parts = np.clip(np.ceil(lengths / length), 1, _MAX_PARTS).astype(np.int64)
        begins = np.repeat(np.cumsum(parts) - parts, parts)
        share = (np.arange(parts.sum()) - begins) / np.repeat(parts, parts)
        corners, edges = np.repeat(polygon, parts, axis=0), np.repeat(following - polygon, parts, axis=0)
        made.append(corners + share[:, None] * edges)
    longest = max(map(len, made))
    return np.stack([np.pad(each, ((0, longest - len(each)), (0, 0)), mode="edge") for each in made])


def _weights(t: Floats) -> tuple[Floats, Floats]:
    """Return the weights `[N, 4]` of four nodes at the fraction t of a cell, and their derivatives."""
    rest, square = 1 - t, t * t
    weights = [rest**3, 3 * square * t - 6 * square + 4, 3 * (square + t - square * t) + 1, square * t]
    slopes = [-(rest**2), 3 * square - 4 * t, 2 * t + 1 - 3 * square, square]
    return np.stack(weights, axis=-1) / 6, np.stack(slopes, axis=-1) / 2
