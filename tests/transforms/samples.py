# SPDX-License-Identifier: Apache-2.0
"""Seeded images, keys and lists of transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tests.transforms.philox import Key

from headrace.transforms import (
    CenterCrop,
    HorizontalFlip,
    Pad,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    Transform,
    VerticalFlip,
)

DTYPES = ("uint8", "uint16", "int16")
MODES = ("constant", "edge", "reflect")


def noise(rng: np.random.Generator, height: int, width: int, channels: int, dtype: str) -> npt.NDArray[Any]:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, (height, width, channels), dtype, endpoint=True)


def any_image(rng: np.random.Generator) -> npt.NDArray[Any]:
    height, width = rng.integers(1, 60, 2).tolist()
    return noise(rng, height, width, int(rng.choice([1, 3, 4])), str(rng.choice(DTYPES)))


def any_key(rng: np.random.Generator) -> Key:
    seed, epoch, sample, view = (int(rng.integers(0, 2**bits, dtype=np.uint64)) for bits in (63, 32, 48, 16))
    return Key(seed, epoch, sample, view)


def moves(rng: np.random.Generator) -> list[Transform]:
    """Up to six transforms that move pixels and leave them as they are; every crop fits."""
    return [_move(rng) for _ in range(rng.integers(0, 7))]


def _move(rng: np.random.Generator) -> Transform:
    size = tuple(rng.integers(1, 50, 2).tolist())
    padding = tuple(rng.integers(0, 12, 4).tolist())
    mode, fill = str(rng.choice(MODES)), int(rng.choice([0, 7]))
    kinds: list[Transform] = [
        CenterCrop(size),
        RandomCrop(size, pad_if_needed=True, fill=fill, padding_mode=mode),
        RandomCrop(size, padding=padding, pad_if_needed=True, fill=fill, padding_mode=mode),
        Pad(padding, fill, mode),
        HorizontalFlip(),
        VerticalFlip(),
    ]
    return kinds[rng.integers(len(kinds))]


def resizing(rng: np.random.Generator, interpolation: str) -> Transform:
    size = tuple(rng.integers(1, 50, 2).tolist())
    kinds: list[Transform] = [
        Resize(size, interpolation),
        Resize(int(size[0]), interpolation),
        RandomResizedCrop(size, interpolation=interpolation),
    ]
    return kinds[rng.integers(len(kinds))]
