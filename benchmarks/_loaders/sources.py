# SPDX-License-Identifier: Apache-2.0
"""The images that the loaders are measured on, made from folders of photographs; the same on every run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]

WIDTH, HEIGHT = 2048, 1024
SMALL = 64
CLASSES = 4


def photos(folder: Path) -> list[Pixels]:
    """Return the photographs that are at least 2048x1024; portrait ones are rotated."""
    found = []
    for path in sorted(folder.iterdir()):
        image = Image.open(path).convert("RGB")
        if image.height > image.width:
            image = image.transpose(Image.Transpose.ROTATE_90)
        if image.width >= WIDTH and image.height >= HEIGHT:
            found.append(np.asarray(image))
    if not found:
        raise ValueError(f"{folder} must hold photographs of at least {WIDTH}x{HEIGHT}; found none")
    return found


def crops(originals: list[Pixels], distinct: int) -> Iterator[Pixels]:
    """Yield `distinct` crops of 2048x1024, from the top of each photograph to its bottom, every other one mirrored."""
    passes = -(-distinct // len(originals))
    for number in range(distinct):
        number_of_pass, which = divmod(number, len(originals))
        original = originals[which]
        top = round((original.shape[0] - HEIGHT) * number_of_pass / max(1, passes - 1))
        left = (original.shape[1] - WIDTH) // 2
        crop = original[top : top + HEIGHT, left : left + WIDTH]
        yield crop[:, ::-1] if number_of_pass % 2 else crop


def make_photos(folder: Path, dest: Path, *, images: int, distinct: int) -> None:
    """Store `images` PNGs in class folders, at Pillow's default level; after `distinct` they repeat, as hard links."""

    def save(numbered: tuple[int, Pixels]) -> Path:
        number, pixels = numbered
        path = dest / f"class-{number % CLASSES}" / f"{number:06d}.png"
        Image.fromarray(pixels).save(path, compress_level=6)
        return path

    for label in range(CLASSES):
        (dest / f"class-{label}").mkdir(parents=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        files = list(pool.map(save, enumerate(crops(photos(folder), distinct))))
    for number in range(distinct, images):
        file = files[number % distinct]
        os.link(file, file.with_name(f"{number:06d}.png"))


def make_small(folder: Path, dest: Path, *, images: int) -> None:
    """Store `images` random crops of 64x64 in one array, `images.npy`, and their labels in `labels.npy`."""
    originals = photos(folder)
    rng = np.random.default_rng(0)
    dest.mkdir(parents=True)
    shape = (images, SMALL, SMALL, 3)
    out = np.lib.format.open_memmap(dest / "images.npy", mode="w+", dtype=np.uint8, shape=shape)
    for number in range(images):
        original = originals[number % len(originals)]
        top, left = (int(rng.integers(0, length - SMALL + 1)) for length in original.shape[:2])
        out[number] = original[top : top + SMALL, left : left + SMALL]
    out.flush()
    np.save(dest / "labels.npy", np.arange(images) % CLASSES)


def take_classes(folder: Path, dest: Path) -> None:
    """Copy class folders of JPEGs as they are."""
    for path in sorted(folder.glob("*/*")):
        if path.suffix.lower() not in {".jpg", ".jpeg"}:
            continue
        target = dest / path.parent.name / f"{path.stem}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    if not dest.exists():
        raise ValueError(f"{folder} must hold class folders of JPEGs; found none")
