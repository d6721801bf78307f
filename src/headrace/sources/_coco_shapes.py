# SPDX-License-Identifier: Apache-2.0
"""Segmentations of COCO annotations as polygons, also those that are run-length encoded; and their keypoints."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import BadSource

if TYPE_CHECKING:
    from headrace.records.keypoints import Keypoints

_MAX_RUNS = 1 << 20
_MAX_SIDE = 65535


def polygons_of(segmentation: Any, where: str) -> list[list[float]]:
    """Return the polygons of an object, x and y of each corner in turn; none if it has no segmentation.

    Polygons with fewer than three corners are left out.
    """
    if segmentation is None:
        return []
    try:
        if isinstance(segmentation, dict):
            return list(_rectangles(segmentation))
        polygons = [[float(number) for number in polygon] for polygon in segmentation]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadSource(f"{where}: a segmentation must be polygons or run-length encoded: {error}") from None
    if not all(len(polygon) % 2 == 0 and np.isfinite(polygon).all() for polygon in polygons):
        raise BadSource(f"{where}: a polygon of a segmentation must be x and y of each corner, all finite")
    return [polygon for polygon in polygons if len(polygon) >= 6]


def keypoints_of(numbers: Any, where: str) -> list[float]:
    """Return the keypoints of an object, x, y and visibility of each in turn; none if it has none."""
    try:
        keypoints = [float(number) for number in numbers or []]
    except (TypeError, ValueError, OverflowError) as error:
        raise BadSource(f"{where}: keypoints must be numbers: {error}") from None
    if len(keypoints) % 3 or not np.isfinite(keypoints).all():
        raise BadSource(f"{where}: keypoints must be x, y and visibility of each, all finite")
    return keypoints


def keypoint_names(categories: list[tuple[Any, Any]], where: str) -> dict[str, Keypoints]:
    """Return the names and the skeleton of the field `keypoints`; nothing if categories have different ones.

    COCO counts the ends of a skeleton from 1.
    """
    from headrace.records.keypoints import read_keypoints  # noqa: PLC0415 - imports pyarrow

    if any(each != categories[0] for each in categories):
        return {}
    names, skeleton = categories[0]
    try:
        edges = [[end - 1 for end in edge] for edge in skeleton]
        return {"keypoints": read_keypoints({"names": names, "skeleton": edges})}
    except (TypeError, ValueError) as error:
        raise BadSource(f"{where}: the keypoints of a category: {error}") from None


def _rectangles(encoded: dict[str, Any]) -> Iterator[list[float]]:
    """Yield the rectangles of a mask's runs: down the columns, one after the other, merged where columns are alike."""
    height, width = (int(side) for side in encoded["size"])
    counts = encoded["counts"]
    runs = list(_counts(counts)) if isinstance(counts, str) else [int(count) for count in counts]
    if not (1 <= height <= _MAX_SIDE and 1 <= width <= _MAX_SIDE):
        raise ValueError(f"sides must be 1 to {_MAX_SIDE}; got {height} and {width}")
    if len(runs) > _MAX_RUNS or min(runs, default=0) < 0 or sum(runs) != height * width:
        raise ValueError(f"the runs must add up to {height} x {width} pixels; got {sum(runs)}")
    columns: list[set[tuple[int, int]]] = [set() for _ in range(width + 1)]
    ends = list(accumulate(runs))
    for begin, end in zip(ends[::2], ends[1::2], strict=False):  # every second run is of the object
        at = begin
        while at < end:
            x, top = divmod(at, height)
            bottom = min(height, top + end - at)
            columns[x].add((top, bottom))
            at += bottom - top
    open_since: dict[tuple[int, int], int] = {}
    for x, spans in enumerate(columns):
        for span in [span for span in open_since if span not in spans]:
            left, (top, bottom) = open_since.pop(span), span
            yield [float(n) for n in (left, top, x, top, x, bottom, left, bottom)]
        for span in sorted(spans):
            open_since.setdefault(span, x)


def _counts(text: str) -> Iterator[int]:
    """Decode the compressed counts of COCO's own tools: five bits per character; from the fourth on, differences."""
    previous: list[int] = []
    position = 0
    while position < len(text):
        value = shift = 0
        more = True
        while more:
            code = ord(text[position]) - 48
            if not 0 <= code < 64:
                raise ValueError(f"counts has the character {text[position]!r}")
            value |= (code & 31) << shift
            shift += 5
            position += 1
            more = bool(code & 32)
            if more and (position == len(text) or shift > 60):
                raise ValueError("counts ends within a number")
            if not more and code & 16:
                value -= 1 << shift
        if len(previous) > 2:
            value += previous[-2]
        previous.append(value)
        yield value
