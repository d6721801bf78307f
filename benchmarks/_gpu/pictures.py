# SPDX-License-Identifier: Apache-2.0
"""What is decoded: images of a folder, or smooth ones with some noise made here."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks._codec.images import Pixels, folder_set, load


def from_folder(folder: Path, count: int) -> list[Pixels]:
    """The first images of a folder that have three channels of 8 bits, which all peers can hold."""
    found: list[Pixels] = []
    for file in folder_set(folder).files:
        if len(found) == count:
            break
        pixels = load(file)
        if pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.dtype == np.uint8:
            found.append(pixels)
    if not found:
        raise ValueError(f"{folder} holds no image of three channels of 8 bits")
    return found


def made_here(count: int, height: int, width: int) -> list[Pixels]:
    """Slow waves of colour under noise of a few levels: about as compressible as a photograph."""
    y, x = np.mgrid[:height, :width]
    found: list[Pixels] = []
    for number in range(count):
        rng = np.random.default_rng(number)
        waves = [
            np.sin(x * rng.uniform(0.005, 0.05) + y * rng.uniform(0.005, 0.05) + rng.uniform(0, 6)) for _ in range(3)
        ]
        levels = 128 + 80 * np.stack(waves, axis=2) + rng.normal(0, 3, (height, width, 3))
        found.append(np.ascontiguousarray(levels.clip(0, 255).astype(np.uint8)))
    return found


def deepened(pixels: Pixels) -> Pixels:
    """The same picture with 16 bits a sample, the lower ones in use."""
    rows = np.arange(pixels.shape[0], dtype=np.uint16)[:, None, None]
    return pixels.astype(np.uint16) * 257 ^ (rows & 0xFF)
