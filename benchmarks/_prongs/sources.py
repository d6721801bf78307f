# SPDX-License-Identifier: Apache-2.0
"""What is loaded: pictures of 400x320 in three formats for crops of 224, small ones of 32x32, and large photographs.

Batches are in bytes, or in float beside; `png-128` is `png` in batches four times as large.
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
from headrace.transforms import HorizontalFlip, Normalize, RandomCrop, RandomResizedCrop, Resize

Pixels = npt.NDArray[np.uint8]

WIDTH, HEIGHT = 400, 320
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp"}


@dataclass(frozen=True)
class Source:
    """A dataset of the benchmark, and how it is loaded."""

    name: str
    format: str
    width: int
    height: int
    batch_size: int
    distinct: int
    """Pictures that are stored; an epoch has them again and again."""
    normalized: bool = False
    """Batches are float32; else bytes, a quarter of that to read, to be normalized on the accelerator."""

    @property
    def transform(self) -> list[Any]:
        """Random crops of 224 pixels; small pictures are padded by four and cropped, large ones taken as a whole."""
        if self.width == self.height == 32:
            crop: Any = RandomCrop(32, padding=4)
        else:
            crop = RandomResizedCrop(224) if self.width == WIDTH else Resize((224, 224))
        return [crop, HorizontalFlip(), *([Normalize(MEAN, STD)] if self.normalized else [])]

    @property
    def headline(self) -> float:
        """The gain that DDLP reports on such images (ImageNet, CIFAR-10)."""
        return 1.276 if self.width == 32 else 1.235


SOURCES = {
    source.name: source
    for source in (
        Source("png", "png", WIDTH, HEIGHT, 32, 192),
        Source("jpeg", "jpeg:95", WIDTH, HEIGHT, 64, 192),
        Source("hri", "hri:fast", WIDTH, HEIGHT, 64, 192),
        Source("cifar", "png", 32, 32, 1024, 2048),
        Source("photos", "png", 1024, 1024, 16, 64),
        Source("png-128", "png", WIDTH, HEIGHT, 128, 192),
        Source("png-float", "png", WIDTH, HEIGHT, 16, 192, normalized=True),
        Source("jpeg-float", "jpeg:95", WIDTH, HEIGHT, 32, 192, normalized=True),
        Source("hri-float", "hri:fast", WIDTH, HEIGHT, 64, 192, normalized=True),
        Source("cifar-float", "png", 32, 32, 1024, 2048, normalized=True),
    )
}


def make_dataset(source: Source, pictures: Path | None, dest: Path) -> Path:
    """Store a source's pictures, cut from the photographs in a folder, or painted."""
    if not dest.exists():
        samples = ({"image": pixels, "label": number} for number, pixels in enumerate(_cut(source, pictures)))
        headrace.build(samples, dest, format=source.format, verify=False)
    return dest


def _cut(source: Source, folder: Path | None) -> Iterator[Pixels]:
    size = (max(2 * WIDTH, source.width), max(2 * HEIGHT, source.height))
    originals = [_painted(seed, size) for seed in range(16)] if folder is None else _photographs(folder, size)
    rng = np.random.default_rng(0)
    for number in range(source.distinct):
        original = originals[number % len(originals)]
        top = int(rng.integers(0, original.shape[0] - source.height + 1))
        left = int(rng.integers(0, original.shape[1] - source.width + 1))
        yield np.ascontiguousarray(original[top : top + source.height, left : left + source.width])


def _photographs(folder: Path, least: tuple[int, int]) -> list[Pixels]:
    """Give photographs that just hold a size: cut from larger ones, pictures would be smooth."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)[:24]:
        with Image.open(path) as image:
            rgb = image.convert("RGB")
        scale = least[1] / min(rgb.size)
        size = least if scale > 1 else (round(rgb.width * scale), round(rgb.height * scale))
        found.append(np.asarray(rgb.resize(size)))
    if not found:
        raise ValueError(f"{folder} holds no pictures: name a folder of PNG, JPEG or WebP files")
    return found


def _painted(seed: int, size: tuple[int, int]) -> Pixels:
    """A picture of soft shapes with a little noise, which compresses much as a photograph does."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (12, 15, 3), np.uint8)
    soft = np.asarray(Image.fromarray(small).resize(size, Image.Resampling.BICUBIC), np.int16)
    noise = rng.normal(0, 5, soft.shape).round().astype(np.int16)
    return np.clip(soft + noise, 0, 255).astype(np.uint8)
