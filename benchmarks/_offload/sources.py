# SPDX-License-Identifier: Apache-2.0
"""The datasets of the offload benchmark: 400x320 photographs in three formats, and 32x32 images as in CIFAR-10.

Batches stay uint8, a quarter of the bytes of float32: the GPU normalizes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

import headrace
from headrace.transforms import HorizontalFlip, RandomCrop, RandomResizedCrop

Pixels = npt.NDArray[np.uint8]

_ORIGINAL = (800, 640)  # photographs are scaled to about this width and height before they are cut
_MAX_ORIGINALS = 24
_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp"}


@dataclass(frozen=True)
class Source:
    """A dataset, and how it is loaded."""

    format: str
    width: int
    height: int
    batch_size: int
    images: int
    """Stored images; an epoch repeats them."""

    @property
    def transform(self) -> list[Any]:
        crop = RandomCrop(32, padding=4) if self.width == 32 else RandomResizedCrop(224)
        return [crop, HorizontalFlip()]


SOURCES = {
    "png": Source("png", 400, 320, batch_size=32, images=192),
    "jpeg": Source("jpeg:95", 400, 320, batch_size=64, images=192),
    "hri": Source("hri:fast", 400, 320, batch_size=64, images=192),
    "small": Source("png", 32, 32, batch_size=1024, images=2048),
}


def make_dataset(source: Source, folder: Path | None, dest: Path) -> Path:
    """Build a source's dataset from random crops of the photographs in `folder`, or of synthetic images."""
    originals = _synthetic() if folder is None else _photographs(folder)
    samples = ({"image": pixels, "label": number} for number, pixels in enumerate(_crops(source, originals)))
    headrace.build(samples, dest, format=source.format, verify=False)
    return dest


def _crops(source: Source, originals: list[Pixels]) -> Iterator[Pixels]:
    rng = np.random.default_rng(0)
    for number in range(source.images):
        original = originals[number % len(originals)]
        top = int(rng.integers(0, original.shape[0] - source.height + 1))
        left = int(rng.integers(0, original.shape[1] - source.width + 1))
        yield np.ascontiguousarray(original[top : top + source.height, left : left + source.width])


def _photographs(folder: Path) -> list[Pixels]:
    """Scale photographs down first: crops of large ones would be smooth, and compress better than photographs do."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)[:_MAX_ORIGINALS]:
        with Image.open(path) as image:
            rgb = image.convert("RGB")
        scale = _ORIGINAL[1] / min(rgb.size)
        size = _ORIGINAL if scale > 1 else (round(rgb.width * scale), round(rgb.height * scale))
        found.append(np.asarray(rgb.resize(size)))
    if not found:
        raise ValueError(f"{folder} must hold PNG, JPEG or WebP files; found none")
    return found


def _synthetic() -> list[Pixels]:
    """Smooth shapes with a little noise, which compress about as well as photographs."""
    found = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        shapes = Image.fromarray(rng.integers(0, 256, (12, 15, 3), np.uint8))
        smooth = np.asarray(shapes.resize(_ORIGINAL, Image.Resampling.BICUBIC), np.int16)
        noise = rng.normal(0, 5, smooth.shape).round().astype(np.int16)
        found.append(np.clip(smooth + noise, 0, 255).astype(np.uint8))
    return found
