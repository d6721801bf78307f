# SPDX-License-Identifier: Apache-2.0
"""Warps worked out plainly in float64: torchvision's matrices, and pixels one map at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[Any]


def inverse_affine(degrees, translate, scale, shear, center):
    """Return torchvision's `_get_inverse_affine_matrix`, from its documented product of matrices."""
    a, sx, sy = (math.radians(x) for x in (degrees, *shear))
    rotation_and_shear = np.array(
        [
            [math.cos(a - sy) / math.cos(sy), -math.cos(a - sy) * math.tan(sx) / math.cos(sy) - math.sin(a), 0],
            [math.sin(a - sy) / math.cos(sy), -math.sin(a - sy) * math.tan(sx) / math.cos(sy) + math.cos(a), 0],
            [0, 0, 1],
        ]
    )
    forward = (
        moved(*translate)
        @ moved(*center)
        @ rotation_and_shear
        @ np.diag([scale, scale, 1])
        @ moved(-center[0], -center[1])
    )
    return np.linalg.inv(forward)


def moved(x, y):
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1]], np.float64)


def perspective(start, end):
    """The map from the corners `end` of the canvas to the corners `start` of the picture, as torchvision solves it."""
    rows, right = [], []
    for (x, y), (u, v) in zip(end, start, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    return np.append(np.linalg.solve(np.array(rows, np.float64), np.array(right, np.float64)), 1).reshape(3, 3)


def positions(matrix: Pixels, height: int, width: int) -> tuple[Pixels, Pixels, Pixels]:
    """Where each pixel's center goes: x, y and whether it is before the horizon."""
    y, x = np.mgrid[:height, :width] + 0.5
    u, v, w = np.einsum("ij,jhw->ihw", matrix, np.stack([x, y, np.ones_like(x)]))
    with np.errstate(divide="ignore", invalid="ignore"):
        return u / w, v / w, w > 0


def sampled(image: Pixels, x: Pixels, y: Pixels, interpolation: str) -> Pixels:
    """The image at positions, its edge repeated; float64."""
    height, width = image.shape[:2]
    if interpolation == "nearest":
        return image[np.clip(np.floor(y), 0, height - 1).astype(int), np.clip(np.floor(x), 0, width - 1).astype(int)]
    taps = {"bilinear": range(2), "bicubic": range(-1, 3)}[interpolation]
    column, row = np.floor(x - 0.5), np.floor(y - 0.5)
    total = 0.0
    for j in taps:
        for i in taps:
            weight = kernel(x - 0.5 - column - i, interpolation) * kernel(y - 0.5 - row - j, interpolation)
            at = np.clip(row + j, 0, height - 1).astype(int), np.clip(column + i, 0, width - 1).astype(int)
            total = total + weight[..., None] * image[at]
    return total


def kernel(t, interpolation):
    """Triangle, or Keys' cubic with a = -1."""
    t = np.abs(t)
    if interpolation == "bilinear":
        return np.maximum(0, 1 - t)
    return np.where(t < 1, t**3 - 2 * t**2 + 1, np.where(t < 2, -(t**3) + 5 * t**2 - 8 * t + 4, 0))


def apply_warp(image: Pixels, each: Mapping[str, Any], interpolation: str) -> Pixels:
    """A pass that warps, on `[H, W, C]`, without averaging."""
    rows, columns, warp = each["rows"], each["columns"], each["warp"]
    assert image.shape[:2] == (rows["input"], columns["input"])
    part = image[rows["start"] :, columns["start"] :][: rows["size"], : columns["size"]]
    x, y, shown = positions(np.reshape(warp["map"], (3, 3)), rows["canvas"], columns["canvas"])
    shown &= (x >= 0) & (x < columns["size"]) & (y >= 0) & (y < rows["size"])
    down, across = np.mgrid[: rows["canvas"], : columns["canvas"]] + 0.5
    for a, b, c in warp["gates"]:
        shown &= a * across + b * down + c >= 0
    limits = np.iinfo(image.dtype)
    fill = np.clip([warp["fill"][min(c, 2)] for c in range(image.shape[2])], limits.min, limits.max)
    levels = sampled(part, np.where(shown, x, 0), np.where(shown, y, 0), interpolation)
    made = np.where(shown[..., None], np.clip(np.floor(levels + 0.5), limits.min, limits.max), fill)
    return made.astype(image.dtype)[:: -1 if rows["flipped"] else 1, :: -1 if columns["flipped"] else 1]
