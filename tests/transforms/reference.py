# SPDX-License-Identifier: Apache-2.0
"""Passes carried out plainly with NumPy and Pillow: what the pixels of the core are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[Any]

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "area": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


def apply_passes(image: Pixels, passes: Sequence[Mapping[str, Any]], *, mask: bool = False) -> Pixels:
    """All passes on `[H, W, C]`; colours are left out for masks and unknown to images here."""
    for each in passes:
        rows, columns = each["rows"], each["columns"]
        assert image.shape[:2] == (rows["input"], columns["input"])
        image = image[
            rows["start"] : rows["start"] + rows["size"],
            columns["start"] : columns["start"] + columns["size"],
        ]
        image = resize(image, rows["resized"], columns["resized"], "nearest" if mask else each["filter"])
        image = place(image, rows, columns, each["border"], each["fill"])
        assert mask or not each["colors"]
        image = image[:: -1 if rows["flipped"] else 1, :: -1 if columns["flipped"] else 1]
    return image


def resize(image: Pixels, height: int, width: int, interpolation: str) -> Pixels:
    """Pillow's resize, channel by channel; by way of floats for 16 bits, and for bicubic."""
    if image.shape[:2] == (height, width):
        return image
    limits = np.iinfo(image.dtype)
    planes = []
    for channel in range(image.shape[2]):
        plane = np.ascontiguousarray(image[..., channel])
        if image.dtype != np.uint8 or interpolation == "bicubic":
            plane = plane.astype(np.float32)
        if interpolation == "bicubic":
            # It overshoots and is clipped to the range of levels between the axes, so that their order shows: rows come
            # first where the height shrinks by over twice as many pixels as the width, as in Pillow since version 13.
            fewer_rows, fewer_columns = plane.shape[0] - height, plane.shape[1] - width
            rows_first = plane.shape[1] == width or fewer_rows > max(0, 2 * fewer_columns)
            between = (height, plane.shape[1]) if rows_first else (plane.shape[0], width)
            plane = np.clip(_resized(plane, *between, interpolation), limits.min, limits.max)
        plane = _resized(plane, height, width, interpolation)
        planes.append(np.clip(np.rint(plane), limits.min, limits.max).astype(image.dtype))
    return np.stack(planes, axis=-1)


def _resized(plane: Pixels, height: int, width: int, interpolation: str) -> Pixels:
    return np.asarray(Image.fromarray(plane).resize((width, height), FILTERS[interpolation]))


def place(image: Pixels, rows: Mapping[str, Any], columns: Mapping[str, Any], border: str, fill: float) -> Pixels:
    """Lay the image onto its canvas, with the border around it."""
    from_y, shows_y = _sources(rows, image.shape[0], border)
    from_x, shows_x = _sources(columns, image.shape[1], border)
    placed = image[from_y][:, from_x]
    if border == "constant":
        placed[~(shows_y[:, None] & shows_x)] = fill
    return placed


def _sources(axis: Mapping[str, Any], size: int, border: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """For each place of the canvas, the pixel that it shows, and whether that lies within the image."""
    at = np.arange(axis["canvas"]) - axis["offset"]
    if border == "reflect" and size > 1:
        folded = at % (2 * size - 2)
        source = np.minimum(folded, 2 * size - 2 - folded)
    else:
        source = np.clip(at, 0, size - 1)
    return source, (at >= 0) & (at < size)
