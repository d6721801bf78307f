# SPDX-License-Identifier: Apache-2.0
"""The boxes of an image, with the labels, keypoints, polygons and other lists that belong to them, move as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.transforms.boxes import BoxFilter, keep_elements, map_boxes
from headrace.transforms.points import is_mirrored, move_keypoints, move_polygon_lists

Pairs = tuple[tuple[int, int], ...]


class Targets(NamedTuple):
    """The boxes of an image, and the lists that belong to them by field: one element per box."""

    boxes: Any
    lists: dict[str, Any]


@dataclass(frozen=True)
class Motion:
    """What one view of a sample does to positions in its image."""

    passes: Sequence[Mapping[str, Any]]
    left: npt.NDArray[np.bool_] | None = None
    """Which boxes a crop leaves that removes boxes by their centers; None: all."""
    flip_pairs: Pairs | None = None
    """Keypoints that a mirrored image exchanges, if the transforms name them."""

    @cached_property
    def mirrors(self) -> bool:
        """Whether left and right are exchanged."""
        return is_mirrored(self.passes)

    def move(
        self, given: Targets, kinds: Mapping[str, str], keep: BoxFilter, flip_pairs: Mapping[str, Pairs]
    ) -> Targets:
        """Return what is left of the targets of an image.

        `kinds` has the field type of each list, `flip_pairs` what the dataset records for fields of keypoints.
        """
        boxes, kept = self.move_boxes(given.boxes, keep)
        lists = {name: keep_elements(values, kept) for name, values in given.lists.items()}
        moved = {
            name: self.move_shapes(kinds[name], values, flip_pairs.get(name, ())) for name, values in lists.items()
        }
        return Targets(boxes, moved)

    def move_boxes(self, boxes: Any, keep: BoxFilter) -> tuple[Any, npt.NDArray[np.bool_]]:
        """Return the boxes that are left, and a mask of the given ones that were kept."""
        return map_boxes(boxes, self.passes, keep, self.left)

    def move_shapes(self, kind: str, shapes: Any, flip_pairs: Pairs = ()) -> Any:
        """Return the values of a list, one for each box that was kept; those that are no shapes do not change.

        `flip_pairs` are used if the transforms name none.
        """
        if kind == "polygons":
            return move_polygon_lists(shapes, self.passes)
        if kind != "keypoints":
            return shapes
        moved = move_keypoints(shapes, self.passes)
        pairs = flip_pairs if self.flip_pairs is None else self.flip_pairs
        return [_swapped(each, pairs) for each in moved] if pairs and self.mirrors else moved


def join_targets(parts: Sequence[Targets]) -> Targets:
    """Return the targets of several images as those of one."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    corners = np.concatenate([np.asarray(part.boxes.xyxy).reshape(-1, 4) for part in parts])
    labels = np.concatenate([np.asarray(part.boxes.labels) for part in parts])
    lists = {name: _joined([part.lists[name] for part in parts]) for name in first.lists}
    return Targets(type(first.boxes)(corners, labels), lists)


def _joined(values: Sequence[Any]) -> Any:
    if all(isinstance(each, np.ndarray) for each in values):
        return np.concatenate(values)
    return [element for each in values for element in each]


def _swapped(keypoints: npt.NDArray[np.float32], pairs: Pairs) -> npt.NDArray[np.float32]:
    """Exchange keypoints; a pair that an object does not have is skipped."""
    points = keypoints.reshape(-1, 3).copy()
    for one, other in pairs:
        if one < len(points) and other < len(points):
            points[[one, other]] = points[[other, one]]
    return points.reshape(-1)
