# SPDX-License-Identifier: Apache-2.0
"""The training batches of YOLO: `python examples/recipe_yolo.py DATASET`, a dataset with images and boxes.

Mosaic, affine and color changes run in C++. Boxes and labels move along. The canvas of a mosaic is twice as large as
the result, so that the affine transform can move it; `CenterCrop` is the part that is trained on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

import headrace
from headrace.transforms import (
    CenterCrop,
    ColorJitter,
    HorizontalFlip,
    Letterbox,
    Mosaic,
    Normalize,
    RandomAffine,
    Transform,
)


def recipe(size: int = 640) -> list[Transform]:
    """Return the augmentations of Ultralytics' defaults.

    Its jitter of hue 0.015, saturation 0.7 and value 0.4 in HSV is a jitter of hue, saturation and brightness here.
    """
    return [
        Mosaic(size),
        RandomAffine(0, translate=(0.05, 0.05), scale=(0.5, 1.5), interpolation="bilinear", fill=114),
        CenterCrop(size),
        ColorJitter(brightness=0.4, saturation=0.7, hue=0.015),
        HorizontalFlip(),
        Normalize(0, 1),
    ]


def last_epochs(size: int = 640) -> list[Transform]:
    """Return the augmentations without mosaics, for the last epochs."""
    return [Letterbox(size), *recipe(size)[3:]]


def targets(boxes: Any) -> torch.Tensor:
    """Return the rows (image, class, x0, y0, x1, y1) that detectors train with."""
    rows = [torch.column_stack([torch.full_like(each.labels, n), each.labels]) for n, each in enumerate(boxes)]
    return torch.cat([torch.cat(rows).float(), torch.cat([each.xyxy for each in boxes])], dim=1)


def batches(
    path: str, transform: list[Transform], *, size: int = 640, batch_size: int = 16
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield images [B, 3, H, W] and the targets of their objects."""
    with headrace.Loader(
        path,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        fields=["image", "boxes"],
        transform=transform,
        min_area=4,
        min_visibility=0.1,
    ) as loader:
        for batch in loader:
            assert batch["image"].shape[2:] == (size, size)
            yield batch["image"], targets(batch["boxes"])


if __name__ == "__main__":
    for images, objects in batches(sys.argv[1], recipe()):
        print(tuple(images.shape), f"{len(objects)} objects")
