# SPDX-License-Identifier: Apache-2.0
"""Training batches for semantic segmentation: `python examples/recipe_segmentation.py DATASET`, with images and masks.

Scale jitter, rotation, crop and flip are one resampling of each image. Masks move alike, with nearest neighbor; what
lies outside of an image is the class 255, which the loss ignores.
"""

from __future__ import annotations

import sys

import torch
from torch.nn.functional import cross_entropy

import headrace
from headrace.transforms import (
    ColorJitter,
    HorizontalFlip,
    Normalize,
    RandomAffine,
    RandomCrop,
    ScaleJitter,
    Transform,
)

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IGNORED = 255
GRAY = 124


def recipe(size: int = 512) -> list[Transform]:
    """Return scale jitter from 0.5 to 2, rotation by up to 10 degrees, crop, flip and color changes."""
    return [
        ScaleJitter(size, (0.5, 2.0)),
        RandomAffine(10, interpolation="bilinear", fill=GRAY, mask_fill=IGNORED),
        RandomCrop(size, pad_if_needed=True, fill=GRAY, mask_fill=IGNORED),
        HorizontalFlip(),
        ColorJitter(0.4, 0.4, 0.4, 0.1),
        Normalize(MEAN, STD),
    ]


def main(path: str, size: int = 512, classes: int = 19, batch_size: int = 8) -> list[float]:
    """Train a convolution for an epoch; return its losses."""
    loader = headrace.Loader(
        path,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        fields=["image", "mask"],
        transform=recipe(size),
    )
    torch.manual_seed(0)
    model = torch.nn.Conv2d(3, classes, 3, padding=1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses = []
    for batch in loader:
        loss = cross_entropy(model(batch["image"]), batch["mask"].long(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    print(main(sys.argv[1]))
