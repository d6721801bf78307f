# SPDX-License-Identifier: Apache-2.0
"""2-D patches of 16-bit scans with masks, augmented as nnU-Net does: `python examples/recipe_nnunet.py DATASET`.

Levels stay 16 bits wide up to the normalization. Rotation, scaling, deformation, crop and flips are one resampling, and
only the part of a scan that the patch shows is decoded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

import headrace
from headrace.transforms import (
    ColorJitter,
    ElasticTransform,
    GaussianBlur,
    GaussianNoise,
    HorizontalFlip,
    Normalize,
    RandomAffine,
    RandomApply,
    RandomCrop,
    Transform,
    VerticalFlip,
)

IGNORED = 255  # the class of mask pixels outside of a scan


def recipe(size: int = 256, mean: float = 0.5, std: float = 0.25) -> list[Transform]:
    """Return nnU-Net's transforms of a patch; `mean` and `std` are those of the dataset, on the scale of 0 to 1."""
    shape = {"interpolation": "bicubic", "mask_fill": IGNORED}
    return [
        RandomApply([ElasticTransform(alpha=600.0, sigma=11.0, **shape)], 0.2),
        RandomApply([RandomAffine(180, **shape)], 0.2),
        RandomApply([RandomAffine(0, scale=(0.7, 1.4), **shape)], 0.2),
        RandomCrop(size, pad_if_needed=True),
        HorizontalFlip(),
        VerticalFlip(),
        RandomApply([GaussianNoise(sigma=0.03)], 0.1),
        RandomApply([GaussianBlur(7, (0.5, 1.0))], 0.2),
        RandomApply([ColorJitter(brightness=0.25)], 0.15),
        RandomApply([ColorJitter(contrast=(0.75, 1.25))], 0.15),
        Normalize(mean, std),
    ]


def patches(path: str, *, batch_size: int = 12, size: int = 256) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield images, float32 [B, C, size, size], and class ids, int64 [B, size, size]."""
    loader = headrace.Loader(
        path,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        fields=["image", "mask"],
        transform=recipe(size),
        color="keep",
    )
    for batch in loader:
        yield batch["image"], batch["mask"].long()


if __name__ == "__main__":
    for image, mask in patches(sys.argv[1]):
        print(tuple(image.shape), image.std().item(), mask.unique().tolist())
