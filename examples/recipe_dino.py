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
    GaussianBlur,
    Grayscale,
    HorizontalFlip,
    MultiCrop,
    Normalize,
    RandomApply,
    RandomResizedCrop,
    Solarize,
    Transform,
    View,
)

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def recipe(global_size: int = 224, local_size: int = 96) -> list[Transform]:
    """Return DINO's crops with their flips, colors and blurs."""
    jitter = RandomApply([ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8)
    blur = GaussianBlur(23, (0.1, 2.0))

    def view(crop: Transform, *last: Transform) -> list[Transform]:
        return [crop, HorizontalFlip(), jitter, Grayscale(p=0.2), *last, Normalize(MEAN, STD)]

    large = RandomResizedCrop(global_size, scale=(0.4, 1.0), interpolation="bicubic")
    small = RandomResizedCrop(local_size, scale=(0.05, 0.4), interpolation="bicubic")
    first = View(1, view(large, blur))
    second = View(1, view(large, RandomApply([blur], 0.1), Solarize(128, 0.2)))
    return [MultiCrop([first, second, View(8, view(small, RandomApply([blur], 0.5)))])]


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
