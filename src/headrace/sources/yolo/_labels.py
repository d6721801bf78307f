# SPDX-License-Identifier: Apache-2.0
"""The lines of a YOLO label file: a class, and a box, a polygon or keypoints, as shares of the width and height."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.errors import BadSource

MAX_LABEL_BYTES = 1 << 26
_BOX, _POLYGON = 4, 6
_ROUNDING = 1e-3  # how far beyond the image a share may lie: exports round to few digits


@dataclass(slots=True)
class Labels:
    """The objects of an image, in pixels."""

    boxes: npt.NDArray[np.float32]
    classes: npt.NDArray[np.int64]
    polygons: list[list[list[float]]]
    """None or one for each box."""
    keypoints: list[list[float]]
    """x, y and visibility of each keypoint, for each box."""


def is_polygon(line: str) -> bool:
    """Return whether a line has more numbers than a box."""
    return len(line.split()) > 1 + _BOX


def parse_labels(
    text: str, width: int, height: int, *, keypoints: tuple[int, int] | None, n_classes: int | None, where: str
) -> Labels:
    """Read the lines of a label file for an image of this size."""
    boxes, classes = [], []
    found = Labels(np.zeros((0, 4), np.float32), np.zeros(0, np.int64), [], [])
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        at = f"{where}, line {number}"
        label, *shares = _numbers(line, at)
        if label != int(label) or label < 0 or (n_classes is not None and label >= n_classes):
            limit = f" below {n_classes}" if n_classes is not None else ""
            raise BadSource(f"{at}: the class must be a whole number{limit}; got {label:g}")
        if keypoints is not None:
            count, size = keypoints
            if len(shares) != _BOX + count * size:
                raise BadSource(
                    f"{at}: a box and {count} keypoints must have {_BOX + count * size} numbers; it has {len(shares)}"
                )
            found.keypoints.append(_points(shares[_BOX:], size, width, height))
            box, polygon = shares[:_BOX], list[float]()
        else:
            box, polygon = _box_or_polygon(shares, at)
        outside = [share for share in (*box, *polygon) if not -_ROUNDING <= share <= 1 + _ROUNDING]
        if outside:
            raise BadSource(f"{at}: coordinates must be shares of the image, 0 to 1; got {outside[0]:g}")
        boxes.append(_corners(box, polygon, width, height))
        classes.append(int(label))
        scaled = [share * (height if odd % 2 else width) for odd, share in enumerate(polygon)]
        found.polygons.append([scaled] if scaled else [])
    if boxes:
        found.boxes, found.classes = np.array(boxes, np.float32), np.array(classes, np.int64)
    return found


def _numbers(line: str, at: str) -> list[float]:
    try:
        numbers = [float(word) for word in line.split()]
    except ValueError as error:
        raise BadSource(f"{at}: a label must be numbers: {error}") from None
    if not all(map(math.isfinite, numbers)):
        raise BadSource(f"{at}: a label must be finite numbers")
    return numbers


def _box_or_polygon(shares: list[float], at: str) -> tuple[list[float], list[float]]:
    if len(shares) == _BOX:
        return shares, []
    if len(shares) >= _POLYGON and len(shares) % 2 == 0:
        return [], shares
    raise BadSource(
        f"{at}: a label must have a class, then 4 numbers (a box) or x and y of 3 or more corners; got {len(shares)}"
    )


def _corners(box: list[float], polygon: list[float], width: int, height: int) -> tuple[float, float, float, float]:
    """Return the corners of a box given by center and size, or of the box around a polygon."""
    if polygon:
        xs, ys = polygon[::2], polygon[1::2]
        left, top, right, bottom = min(xs), min(ys), max(xs), max(ys)
    else:
        x, y, w, h = box
        left, top, right, bottom = x - w / 2, y - h / 2, x + w / 2, y + h / 2
    return left * width, top * height, right * width, bottom * height


def _points(shares: list[float], size: int, width: int, height: int) -> list[float]:
    """Return x, y and visibility in pixels; without a visibility, a keypoint at (0, 0) is not labeled."""
    points = []
    for at in range(0, len(shares), size):
        x, y = shares[at : at + 2]
        visibility = shares[at + 2] if size == 3 else (0.0 if x == y == 0 else 2.0)
        points += [x * width, y * height, visibility]
    return points
