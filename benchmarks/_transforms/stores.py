# SPDX-License-Identifier: Apache-2.0
"""The images: photographs of a folder, or synthetic ones; as files in class folders and as datasets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

import headrace
from benchmarks._loaders.sources import CLASSES, crops, photos

_JPEG = (500, 375)
_PHOTO = (2048, 1024)


def make_stores(folder: Path | None, dest: Path, source: str, images: int) -> dict[str, Path]:
    """Store the images of a source as files, and as a dataset; return the paths by the names of the stores."""
    files = dest / source / "files"
    distinct = min(images, 32)
    pictures = [*crops(photos(folder), distinct)] if folder else [_synthetic(number) for number in range(distinct)]
    for number in range(images):
        target = files / f"class-{number % CLASSES}"
        target.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(pictures[number % distinct])
        if source == "jpegs":
            image.resize(_JPEG, Image.Resampling.LANCZOS).save(target / f"{number:06d}.jpg", quality=90)
        else:
            image.save(target / f"{number:06d}.png", compress_level=6)
    name, form = ("keep", "keep") if source == "jpegs" else ("hri", "hri:fast")
    headrace.build(files, dest / source / name, kind="classes", format=form)
    return {"files": files, name: dest / source / name}


def _synthetic(number: int) -> npt.NDArray[np.uint8]:
    """Return a smooth picture with some noise, whose files have about the size of a photograph's."""
    rng = np.random.default_rng(number)
    coarse = Image.fromarray(rng.integers(0, 256, (24, 48, 3), np.uint8))
    smooth = np.asarray(coarse.resize(_PHOTO, Image.Resampling.BICUBIC), np.int16)
    noisy = smooth + rng.integers(-6, 7, smooth.shape, np.int16)
    clipped: npt.NDArray[np.uint8] = np.clip(noisy, 0, 255).astype(np.uint8)
    return clipped
