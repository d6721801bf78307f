# SPDX-License-Identifier: Apache-2.0
"""Small folders of images to build from, and how to compare what was built."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("ant", "bee", "cow")


def make_image(number: int, side: int = 48) -> np.ndarray:
    """A picture of its own size, the same for the same number; some rows are smooth, some are noise."""
    rng = np.random.default_rng(number)
    height, width = (int(n) for n in rng.integers(side // 2, side + 1, 2))
    ramp = np.add.outer(np.arange(height), np.arange(width))[:, :, None] + rng.integers(0, 200, 3)
    ramp[::2] += rng.integers(0, 40, ramp[::2].shape)
    return (ramp % 256).astype(np.uint8)


def make_folder(folder: Path, count: int, side: int = 48) -> Path:
    """Write PNGs in class folders."""
    for number in range(count):
        path = folder / CLASSES[number % 3] / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(make_image(number, side)).save(path, compress_level=1)
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
