# SPDX-License-Identifier: Apache-2.0
"""Elastic deformation as spec/recipe.md has it, in plain NumPy, and as torchvision documents it: two oracles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.transforms.erasing import normal, stream
from tests.transforms.philox import Key
from tests.transforms.warp_reference import sampled

Pixels = npt.NDArray[Any]


def smoothing(sigma: float) -> tuple[int, npt.NDArray[np.float64]]:
    """The spacing of nodes, and the weights that smooth their noise."""
    spacing = max(1, math.floor(0.8 * sigma))
    variance = (sigma / spacing) ** 2 - 1 / 3
    radius = math.ceil(4 * math.sqrt(variance))
    weights = np.exp(-(np.arange(-radius, radius + 1) ** 2) / (2 * variance))
    return spacing, weights / weights.sum()


def nodes(height: int, width: int, alpha, sigma, key: Key, operation: int = 0) -> Pixels:
    """The coefficients of the spline, [2, rows, columns]."""
    (across, weigh_across), (down, weigh_down) = map(smoothing, sigma)
    rows, columns = height // down + 4, width // across + 4
    padded = rows + len(weigh_down) - 1, columns + len(weigh_across) - 1
    length = -(-padded[1] // 4) * 4
    numbers = normal(stream(key.words(operation, 1)[:2], 2 * padded[0] * length))
    noise = numbers.reshape(2, padded[0], length)[..., : padded[1]].astype(np.float64)
    smooth = sum(w * noise[:, :, k : k + columns] for k, w in enumerate(weigh_across))
    smooth = sum(w * smooth[:, k : k + rows] for k, w in enumerate(weigh_down))
    pixels = alpha[0] * width / (2 * height), alpha[1] * height / (2 * width)
    return smooth * np.reshape(pixels, (2, 1, 1)) / math.sqrt(3 * across * down)


def displacement(coefficients: Pixels, sigma, x: Pixels, y: Pixels) -> tuple[Pixels, Pixels]:
    """The spline at positions, as a sum over all nodes around each."""
    spacings = [smoothing(each)[0] for each in sigma]
    at_x, at_y = x / spacings[0] + 1, y / spacings[1] + 1  # in nodes
    column, row = np.floor(at_x).astype(int) - 1, np.floor(at_y).astype(int) - 1
    made = np.zeros((2, *x.shape))
    for j in range(4):
        for i in range(4):
            weight = basis(at_y - row - j) * basis(at_x - column - i)
            made += weight * coefficients[:, row + j, column + i]
    return made[0], made[1]


def basis(t):
    t = np.abs(t)
    return np.where(t < 1, 2 / 3 - t**2 + t**3 / 2, np.where(t < 2, (2 - t) ** 3 / 6, 0))


def deformed(image: Pixels, coefficients: Pixels, sigma, interpolation: str, fill: int = 0) -> Pixels:
    """The image [H, W, C], in float64, and not sure where a position is close to an edge (NaN)."""
    height, width = image.shape[:2]
    y, x = np.mgrid[:height, :width] + 0.5
    across, down = displacement(coefficients, sigma, x, y)
    x, y = x + across, y + down
    shown = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    unsure = np.minimum.reduce([np.abs(x), np.abs(y), np.abs(x - width), np.abs(y - height)]) < 1e-3
    if interpolation == "nearest":
        unsure |= (np.abs(x - np.rint(x)) < 1e-3) | (np.abs(y - np.rint(y)) < 1e-3)
    levels = sampled(image, np.where(shown, x, 0), np.where(shown, y, 0), interpolation).astype(np.float64)
    limits = np.iinfo(image.dtype)
    made = np.where(shown[..., None], np.clip(levels, limits.min, limits.max), np.clip(fill, limits.min, limits.max))
    return np.where(unsure[..., None], np.nan, made)


def torchvisions(rng: np.random.Generator, height: int, width: int, alpha: float, sigma: float) -> Pixels:
    """Displacements in pixels as torchvision documents them, [2, H, W], without its mirrored margin."""
    side = int(8 * sigma + 1) | 1
    kernel = np.exp(-0.5 * ((np.arange(side) - side // 2) / sigma) ** 2)
    kernel /= kernel.sum()
    noise = rng.uniform(-1, 1, (2, height + side - 1, width + side - 1))
    noise = np.stack([sum(w * plane[k : k + height] for k, w in enumerate(kernel)) for plane in noise])
    noise = np.stack([sum(w * plane[:, k : k + width] for k, w in enumerate(kernel)) for plane in noise])
    # alpha / size in the coordinates of grid_sample, of which two are one side
    return noise * alpha / np.reshape((height, width), (2, 1, 1)) * np.reshape((width, height), (2, 1, 1)) / 2
