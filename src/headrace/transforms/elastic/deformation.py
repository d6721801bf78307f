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
_CLOSE = 1e-2  # pixels
_MAX_PARTS = 256  # of an edge


class Deformation:
    """The displacements of one image, from the "elastic" entry of a pass."""

    def __init__(self, elastic: Mapping[str, Any]) -> None:
        nodes = np.asarray(elastic["nodes"], np.float64)
        self._columns = nodes.shape[2]
        self._nodes = nodes.reshape(2, -1)  # [2, rows * columns]
        self._size = np.array(elastic["size"], np.float64)  # width, height
        self._spacing = np.array(elastic["spacing"], np.float64)  # across, down

    def at(self, points: Floats) -> tuple[Floats, Floats]:
        """Return displacements `[N, 2]` at `points`, and their derivatives `[N, 2, 2]` (by x, then by y)."""
        inside = np.clip(points, 0, self._size) / self._spacing
        cells = inside.astype(np.int64)
        (x, slope_x), (y, slope_y) = (_weights(inside[:, k] - cells[:, k]) for k in (0, 1))
        offsets = (np.arange(4)[:, None] * self._columns + np.arange(4)).ravel()
        around = self._nodes[:, (cells[:, 1] * self._columns + cells[:, 0])[:, None] + offsets]  # [2, N, 16]
        kinds = [(y, x), (y, slope_x / self._spacing[0]), (slope_y / self._spacing[1], x)]
        weights = [(down[:, :, None] * across[:, None, :]).reshape(-1, 16) for down, across in kinds]
        displacements, by_x, by_y = (np.einsum("kns,ns->nk", around, weight) for weight in weights)
        return displacements, np.stack([by_x, by_y], axis=-1)

    def undo_polygons(self, polygons: Floats) -> Floats:
        """Return polygons `[N, V, 2]` in the new image, with further vertices, as straight edges become curves.

        They are as far apart as nodes, or a 256th of an edge. All polygons get the same number of vertices again; those
        that a polygon does not need repeat its last one.
        """
        divided = [_divided(polygon, float(self._spacing.min())) for polygon in polygons]
        ends = np.cumsum([len(each) for each in divided])
        moved = np.split(self.undo(np.concatenate(divided)), ends[:-1])
        longest = max(map(len, moved))
        return np.stack([np.pad(each, ((0, longest - len(each)), (0, 0)), mode="edge") for each in moved])

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


def _divided(polygon: Floats, length: float) -> Floats:
    """Return a polygon `[V, 2]` with more vertices, so that no edge is longer, or at most a 256th of what it was."""
    edges = np.roll(polygon, -1, axis=0) - polygon
    lengths = np.nan_to_num(np.hypot(*edges.T))
    parts = np.clip(np.ceil(lengths / length), 1, _MAX_PARTS).astype(np.int64)
    parts[lengths == 0] = 0  # of repeated vertices one stays
    parts[-1] = max(1, parts[-1])
    number = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
    share = number / np.repeat(parts, parts)
    divided: Floats = np.repeat(polygon, parts, axis=0) + share[:, None] * np.repeat(edges, parts, axis=0)
    return divided


def _weights(t: Floats) -> tuple[Floats, Floats]:
    """Return the weights `[N, 4]` of four nodes at the fraction t of a cell, and their derivatives."""
    rest, square = 1 - t, t * t
    weights = [rest**3, 3 * square * t - 6 * square + 4, 3 * (square + t - square * t) + 1, square * t]
    slopes = [-(rest**2), 3 * square - 4 * t, 2 * t + 1 - 3 * square, square]
    return np.stack(weights, axis=-1) / 6, np.stack(slopes, axis=-1) / 2
