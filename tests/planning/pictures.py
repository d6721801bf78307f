# SPDX-License-Identifier: Apache-2.0
"""Folders of small images to calibrate and train with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def make_folder(folder: Path, n: int, *, suffix: str = ".png", edge: int = 96, classes: int = 2) -> Path:
    """Create class folders of smooth images with some noise, of several sizes."""
    rng = np.random.default_rng(5)
    for number in range(n):
        height, width = edge + 8 * (number % 4), edge + 16 * (number % 3)
        rows, columns = np.mgrid[0:height, 0:width]
        phase = rng.uniform(0, 6, 3)
        smooth = 120 + 80 * np.sin(rows[..., None] / 17 + columns[..., None] / 23 + phase)
        pixels = np.clip(smooth + rng.normal(0, 4, (height, width, 3)), 0, 255).astype(np.uint8)
        path = folder / f"class-{number % classes}" / f"{number:04d}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, **({"quality": 90} if suffix == ".jpg" else {}))
    return folder
