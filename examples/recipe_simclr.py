# SPDX-License-Identifier: Apache-2.0
"""The two views of SimCLR: `python examples/recipe_simclr.py DATASET`. BYOL and MoCo differ in numbers only."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

import headrace
from headrace.transforms import (
    ColorJitter,
    GaussianBlur,
    Grayscale,
    HorizontalFlip,
    RandomApply,
    RandomResizedCrop,
    Transform,
    Views,
)


def recipe(size: int = 224) -> list[Transform]:
    """Return two views with the color distortion of SimCLR at full strength."""
    jitter = RandomApply([ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8)
    blur = RandomApply([GaussianBlur(size // 20 * 2 + 1, (0.1, 2.0))], 0.5)  # a tenth of the side
    return [Views(2, [RandomResizedCrop(size), HorizontalFlip(), jitter, Grayscale(p=0.2), blur])]


def pairs(path: str, *, batch_size: int = 64, size: int = 224) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the two views of each batch, float32 [B, 3, size, size] on the scale of 0 to 1."""
    loader = headrace.Loader(
        path,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        fields=["image"],
        transform=recipe(size),
        dtype="float32",
    )
    for batch in loader:
        first, second = batch["image"].unbind(1)
        yield first, second


if __name__ == "__main__":
    for first, second in pairs(sys.argv[1]):
        print(tuple(first.shape), (first - second).abs().mean().item())
