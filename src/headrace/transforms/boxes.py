# SPDX-License-Identifier: Apache-2.0
"""Transform boxes together with their image: the passes of a compiled transform, applied to corners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from headrace.errors import TransformError
from headrace.transforms.points import move_polygons


class BoxesLike(Protocol):
    """A pair of corners `[N, 4]` (x0, y0, x1, y1 in pixels) and labels `[N]`, such as `headrace.records.Boxes`."""

    @property
    def xyxy(self) -> npt.NDArray[np.float32]: ...
    @property
    def labels(self) -> npt.NDArray[np.int64]: ...


B = TypeVar("B", bound=BoxesLike)


def map_boxes(boxes: B, passes: Sequence[Mapping[str, Any]], min_area: float) -> tuple[B, npt.NDArray[np.bool_]]:
    """Move boxes as the passes move pixels, clip them to the visible image, and drop those below `min_area`.

    Return the boxes with their labels, and a mask of the given boxes that were kept. Padding that repeats pixels of
    the image does not repeat boxes.
    """
    corners = np.asarray(boxes.xyxy, np.float64).reshape(-1, 2, 2)  # [N, 2 corners, (x, y)]
    first = next((k for k, each in enumerate(passes) if each.get("warp") is not None), len(passes))
    for each in passes[:first]:
        corners = np.stack([_along(corners[..., 0], each["columns"]), _along(corners[..., 1], each["rows"])], axis=-1)
    if first < len(passes):
        corners = _enclosing(corners, passes[first:])
    width, height = (corners[:, 1] - corners[:, 0]).T
    kept = (width > 0) & (height > 0) & (width * height >= min_area)
    xyxy = corners[kept].reshape(-1, 4).astype(np.float32)
    return type(boxes)(xyxy, np.asarray(boxes.labels)[kept]), kept  # type: ignore[call-arg]


def keep_elements(values: Sequence[Any] | npt.NDArray[Any], kept: npt.NDArray[np.bool_]) -> Any:
    """Return the elements of a list with one element per box whose boxes were kept."""
    if len(values) != len(kept):
        raise TransformError(
            f"a list that belongs to boxes must have one element per box; got {len(values)} for {len(kept)} boxes"
        )
    return values[kept] if isinstance(values, np.ndarray) else list(compress(values, kept))


def _enclosing(corners: npt.NDArray[np.float64], passes: Sequence[Mapping[str, Any]]) -> npt.NDArray[np.float64]:
    """Return the corners `[N, 2, 2]` of the smallest boxes around what the passes show of boxes.

    Outlines are moved through all passes: a box around a box of each pass would grow with every one.
    """
    (x0, y0), (x1, y1) = corners[:, 0].T, corners[:, 1].T
    outlines = np.stack([x0, y0, x1, y0, x1, y1, x0, y1], axis=-1).reshape(-1, 4, 2)
    moved, kept = move_polygons(outlines, passes)
    canvas = passes[-1]["columns"]["canvas"], passes[-1]["rows"]["canvas"]
    enclosing = np.clip(np.stack([moved.min(axis=1), moved.max(axis=1)], axis=1), 0, canvas)
    return np.where(kept[:, None, None], enclosing, 0.0)


def _along(ends: npt.NDArray[np.float64], axis: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """Move starts and ends `[N, 2]` along one axis of a pass."""
    moved = (ends - axis["start"]) * (axis["resized"] / axis["size"]) + axis["offset"]
    # What a crop removed stays removed, even where padding was added in its place.
    shown = max(0, axis["offset"]), min(axis["canvas"], axis["offset"] + axis["resized"])
    clipped: npt.NDArray[np.float64] = np.clip(moved, shown[0], max(shown))
    if axis["flipped"]:
        clipped = int(axis["canvas"]) - clipped[:, ::-1]
    return clipped
