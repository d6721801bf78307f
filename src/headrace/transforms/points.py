# SPDX-License-Identifier: Apache-2.0
"""Move points and polygons together with their image: the passes of a compiled transform, applied to positions.

Positions are in pixels, (x, y), where pixel i covers [i, i + 1). A pass keeps a part of its input, and maps it to its
canvas by a matrix; what it shows is bounded by half-planes. A half-plane is three numbers whose product with (x, y, 1)
is at least 0 inside. A pass that deforms does so twice, before and after the deformation (elastic/deformation.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.transforms.elastic.deformation import Deformation

Floats: TypeAlias = npt.NDArray[np.float64]

_HORIZON = 1e-9  # of a perspective; what is behind it is not seen
_TOUCHES = 1e-6  # pixels by which rounding may move a point over an edge


def move_points(points: npt.ArrayLike, passes: Sequence[Mapping[str, Any]]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return where points `[N, 2]` come out, and which of them are visible in the result.

    Points outside of the result are moved, too; those behind the horizon of a perspective become NaN.
    """
    moved = np.asarray(points, np.float64).reshape(-1, 2)
    visible = np.asarray(np.isfinite(moved).all(axis=1))
    for forward, bounds, deformation in _stages(passes):
        homogeneous = _homogeneous(moved) @ forward.T
        seen = homogeneous[:, 2] > _HORIZON
        visible = visible & seen & (homogeneous @ bounds.T >= -_TOUCHES).all(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = np.where(seen[:, None], homogeneous[:, :2] / homogeneous[:, 2:], np.nan)
        if deformation is not None:
            moved = deformation.undo(moved)
    return moved, visible


def move_polygons(polygons: Floats, passes: Sequence[Mapping[str, Any]]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return polygons `[N, V, 2]` as they come out, cut to what is visible, and which of them are not empty.

    All have the same number of vertices; those that a polygon does not need repeat its last one. Convex polygons stay
    convex, but where an image is deformed: there they get further vertices. A part that is cut in two stays connected
    along the edge that cut it, as with Sutherland and Hodgman.
    """
    moved = np.asarray(polygons, np.float64)
    kept = np.ones(len(moved), np.bool_)
    for forward, bounds, deformation in _stages(passes):
        homogeneous, some = _cut(_homogeneous(moved) @ forward.T, bounds)
        kept &= some
        moved = homogeneous[..., :2] / np.where(homogeneous[..., 2:] > 0, homogeneous[..., 2:], 1)
        if deformation is not None and len(moved) > 0:
            moved = deformation.undo_polygons(moved)
    return moved, kept


def move_keypoints(boxes: Sequence[Any], passes: Sequence[Mapping[str, Any]]) -> list[npt.NDArray[np.float32]]:
    """Return the keypoints of each box, x, y and visibility `[3 K]`, as they come out.

    The visibility of those outside of the result becomes 0. Keypoints with visibility 0 are not moved.
    """
    counts = [len(numbers) for numbers in boxes]
    points = np.concatenate([np.zeros(0), *boxes]).reshape(-1, 3)
    places, visible = move_points(points[:, :2], passes)
    seen = points[:, 2] > 0
    moved = np.where(seen[:, None], np.nan_to_num(places), points[:, :2])
    flat = np.column_stack([moved, np.where(visible & seen, points[:, 2], 0)]).astype(np.float32).reshape(-1)
    return np.split(flat, np.cumsum(counts)[:-1]) if counts else []


def move_polygon_lists(
    boxes: Sequence[Sequence[Any]], passes: Sequence[Mapping[str, Any]]
) -> list[list[npt.NDArray[np.float32]]]:
    """Return the polygons of each box, x and y of each corner `[2 V]`, as they come out, without those out of sight."""
    flat = [np.asarray(polygon, np.float64).reshape(-1, 2) for polygons in boxes for polygon in polygons]
    if not flat:
        return [[] for _ in boxes]
    longest = max(map(len, flat))
    padded = np.stack([np.pad(each, ((0, longest - len(each)), (0, 0)), mode="edge") for each in flat])
    moved, kept = move_polygons(padded, passes)
    results = iter(zip(moved, kept, strict=True))
    return [[polygon for _ in polygons for polygon in _visible(*next(results))] for polygons in boxes]


def _visible(corners: Floats, kept: np.bool_) -> list[npt.NDArray[np.float32]]:
    """Return a polygon as flat numbers without repeated corners, or nothing if there is no polygon left."""
    if not kept:
        return []
    single = corners.astype(np.float32)
    single = single[(single != np.roll(single, 1, axis=0)).any(axis=1)]
    return [single.reshape(-1)] if len(single) >= 3 else []


def _homogeneous(points: Floats) -> Floats:
    return np.concatenate([points, np.ones_like(points[..., :1])], axis=-1)


def _stages(passes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Floats, Floats, Deformation | None]]:
    """Yield matrices, the half-planes that bound their results, and the deformation to undo after each, or None."""
    for each in passes:
        elastic = each["warp"] and each["warp"].get("elastic")
        if not elastic:
            yield _forward(each), _bounds(each), None
            continue
        rows, columns = each["rows"], each["columns"]
        matrix = np.array(elastic["map"], np.float64).reshape(3, 3)
        window = _box(0, columns["size"], 0, rows["size"]) @ matrix
        gates = np.array(elastic["gates"], np.float64).reshape(-1, 3)
        yield _inverse(matrix) @ _start(each), np.concatenate([window, gates]), Deformation(elastic)
        canvas = _box(0, columns["canvas"], 0, rows["canvas"])
        gates = np.array(each["warp"]["gates"], np.float64).reshape(-1, 3)
        outer = np.array(each["warp"]["map"], np.float64).reshape(3, 3)
        yield _flip(each) @ _inverse(outer), np.concatenate([canvas, gates]) @ _flip(each), None


def _start(each: Mapping[str, Any]) -> Floats:
    """Return the matrix from the input of a pass to the part of it that is used."""
    return np.array([[1, 0, -each["columns"]["start"]], [0, 1, -each["rows"]["start"]], [0, 0, 1]], np.float64)


def _forward(each: Mapping[str, Any]) -> Floats:
    """Return the matrix from the input of a pass to its canvas, flips included."""
    rows, columns, warp = each["rows"], each["columns"], each["warp"]
    if warp is None:
        matrix = np.diag([columns["resized"] / columns["size"], rows["resized"] / rows["size"], 1.0])
        matrix[:2, 2] = columns["offset"], rows["offset"]
    else:
        matrix = _inverse(np.array(warp["map"], np.float64).reshape(3, 3))
    forward: Floats = _flip(each) @ matrix @ _start(each)
    return forward


def _inverse(matrix: Floats) -> Floats:
    """Return the inverse of a map; of a perspective that is degenerate, which shows a line, the nearest to one."""
    try:
        return np.asarray(np.linalg.inv(matrix), np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(matrix), np.float64)


def _flip(each: Mapping[str, Any]) -> Floats:
    """Return the matrix from the canvas of a pass to its flipped canvas, which is its own inverse."""
    flip = np.eye(3)
    for k, axis in enumerate((each["columns"], each["rows"])):
        if axis["flipped"]:
            flip[k] = -flip[k]
            flip[k, 2] = axis["canvas"]
    return flip


def _bounds(each: Mapping[str, Any]) -> Floats:
    """Return the half-planes `[P, 3]` that bound what the flipped canvas of a pass shows."""
    rows, columns, warp = each["rows"], each["columns"], each["warp"]
    edges = _box(0, columns["canvas"], 0, rows["canvas"])
    if warp is None:
        left, top = columns["offset"], rows["offset"]
        content = _box(left, left + columns["resized"], top, top + rows["resized"])
        return np.concatenate([edges, content]) @ _flip(each)
    # A half-plane of the input, times the map, is one of the canvas.
    window = _box(0, columns["size"], 0, rows["size"]) @ np.array(warp["map"], np.float64).reshape(3, 3)
    gates = np.array(warp["gates"], np.float64).reshape(-1, 3)
    return np.concatenate([edges, window, gates]) @ _flip(each)


def _box(left: float, right: float, top: float, bottom: float) -> Floats:
    return np.array([[1, 0, -left], [-1, 0, right], [0, 1, -top], [0, -1, bottom]], np.float64)


def _cut(polygons: Floats, planes: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Cut homogeneous polygons `[N, V, 3]` at half-planes, by Sutherland and Hodgman's method for all at once."""
    kept = np.ones(len(polygons), np.bool_)
    bounds = np.concatenate([[[0, 0, 1.0]], planes])
    limits = np.append(_HORIZON, np.zeros(len(planes)))
    # Most polygons lie inside of most half-planes, and cutting them at others moves none of them outside.
    needed = (polygons @ bounds.T < limits).any(axis=(0, 1))
    for plane, limit in zip(bounds[needed], limits[needed], strict=True):
        side = polygons @ plane - limit
        inside = side >= 0
        following, other = np.roll(polygons, -1, axis=1), np.roll(side, -1, axis=1)
        crosses = inside != (other >= 0)
        share = np.where(crosses, side / np.where(crosses, side - other, 1), 0)
        cut = polygons + share[..., None] * (following - polygons)
        # After each vertex that stays comes the point where its edge crosses the line, if it does.
        vertices = np.stack([polygons, cut], axis=2).reshape(len(polygons), -1, 3)
        stays = np.stack([inside, crosses], axis=2).reshape(len(polygons), -1)
        count = stays.sum(axis=1)
        kept &= count > 0
        order = np.argsort(~stays, axis=1, kind="stable")[:, : max(1, int(count.max(initial=1)))]
        order = np.take_along_axis(
            order, np.minimum(np.arange(order.shape[1]), np.maximum(count - 1, 0)[:, None]), axis=1
        )
        polygons = np.take_along_axis(vertices, order[..., None], axis=1)
    return polygons, kept
