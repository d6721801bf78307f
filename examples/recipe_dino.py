# SPDX-License-Identifier: Apache-2.0
"""The views of DINO, 2 global and 8 local crops: `python examples/recipe_dino.py DATASET`.

Each image is read and decoded once, and all ten views are made from it. A batch has one tensor per group of views.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

import headrace
from headrace.transforms import (
    ColorJitter,
    Grayscale,
    HorizontalFlip,
    MultiCrop,
    Normalize,
    RandomResizedCrop,
    Transform,
    View,
)

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def recipe(global_size: int = 224, local_size: int = 96) -> list[Transform]:
    """Return DINO's crops with their flips and colors."""
    colors = [HorizontalFlip(), ColorJitter(0.4, 0.4, 0.2, 0.1), Grayscale(p=0.2), Normalize(MEAN, STD)]
    large = RandomResizedCrop(global_size, scale=(0.4, 1.0), interpolation="bicubic")
    small = RandomResizedCrop(local_size, scale=(0.05, 0.4), interpolation="bicubic")
    return [MultiCrop([View(2, [large, *colors]), View(8, [small, *colors])])]


def batches(path: str, *, batch_size: int = 64, sizes: tuple[int, int] = (224, 96)) -> Iterator[list[torch.Tensor]]:
    """Yield the crops as DINO's training loop takes them: ten tensors [B, 3, H, W], the global ones first."""
    loader = headrace.Loader(
        path, batch_size=batch_size, shuffle=True, drop_last=True, fields=["image"], transform=recipe(*sizes)
    )
    for batch in loader:
        yield [view for group in batch["image"] for view in group.unbind(1)]


if __name__ == "__main__":
    for crops in batches(sys.argv[1]):
        print([tuple(crop.shape) for crop in crops])
