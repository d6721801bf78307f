# SPDX-License-Identifier: Apache-2.0
"""Small sources, and bottlenecks to put into a pipeline: each slower than all the rest by far, by sleeping."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import headrace

COUNT = 48
EDGE = 64
BATCH = 8
SLOW = 0.05
"""Seconds that a slow part takes for a batch; the others take a few milliseconds at most."""


def picture(number: int, edge: int = EDGE) -> Any:
    """A smooth picture with some noise, the same for the same number."""
    rng = np.random.default_rng(number)
    ramp = np.add.outer(np.arange(edge), np.arange(edge))[..., None] + rng.integers(0, 8, (edge, edge, 3))
    return (ramp + 40 * number).astype(np.uint8)


def write_dataset(path: Path, count: int = COUNT, edge: int = EDGE, **options: Any) -> Path:
    options = {"format": "hri:fast", "workers": 1, **options}
    with headrace.Writer(path, fields={"image": "image", "label": "int64"}, **options) as writer:
        for number in range(count):
            writer.write({"image": picture(number, edge), "label": number % 3})
    return path


def write_folder(path: Path, count: int = COUNT, edge: int = EDGE) -> Path:
    """Class folders of PNG files."""
    from PIL import Image  # noqa: PLC0415

    for number in range(count):
        place = path / f"class{number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(number, edge)).save(place / f"{number:03}.png", compress_level=1)
    return path


def slow_function(sample: Any) -> Any:
    time.sleep(SLOW / BATCH * 2)
    return sample


def slow_collate(samples: list[Any]) -> Any:
    time.sleep(SLOW)
    return {"image": np.stack([np.asarray(sample["image"]) for sample in samples])}


def slow_step(_: Any) -> None:
    time.sleep(SLOW)


def fast_step(_: Any) -> None:
    time.sleep(SLOW / 50)


class Samples:
    """A map-style dataset for PyTorch's DataLoader, with a transform of its own, and slow where asked to be."""

    def __init__(self, *, read: float = 0.0, work: float = 0.0, transform: Any = None, count: int = 20 * BATCH) -> None:
        self.read, self.work, self.transform, self._count = read, work, transform, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Any:
        time.sleep(self.read)
        end = time.thread_time() + self.work
        while time.thread_time() < end:
            pass
        sample = {"image": picture(number, 16)}
        return sample if self.transform is None else self.transform(sample)
