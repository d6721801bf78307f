# SPDX-License-Identifier: Apache-2.0
"""The training batches of DeiT, or of any recipe of timm: `python examples/recipe_deit.py DATASET`.

Everything runs in C++: crops, RandAugment, erasing after normalization, and mixing with soft labels. Any number of
threads, a resumed run and an offload worker give the same batches, bit for bit.
"""

from __future__ import annotations

import sys

import torch
from torch.nn.functional import cross_entropy

import headrace
from headrace.transforms import (
    HorizontalFlip,
    MixUpCutMix,
    Normalize,
    RandomErasing,
    RandomResizedCrop,
    TimmAugment,
    Transform,
)

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def recipe(size: int = 224) -> list[Transform]:
    """Return timm's `--aa rand-m9-mstd0.5-inc1 --reprob 0.25 --remode pixel --mixup 0.8 --cutmix 1.0`."""
    return [
        RandomResizedCrop(size, interpolation="bicubic"),
        HorizontalFlip(),
        TimmAugment("rand-m9-mstd0.5-inc1", fill=(124, 116, 104)),
        Normalize(MEAN, STD),
        RandomErasing(0.25, scale=(0.02, 1 / 3), value="random"),
        MixUpCutMix(mixup_alpha=0.8, cutmix_alpha=1.0, switch_prob=0.5, label_smoothing=0.1),
    ]


def main(path: str, size: int = 224, batch_size: int = 64) -> list[float]:
    """Train a linear classifier for an epoch; return its losses."""
    loader = headrace.Loader(
        path,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        fields=["image", "label"],
        transform=recipe(size),
    )
    torch.manual_seed(0)
    model = torch.nn.LazyLinear(len(loader.dataset.classes or []))
    losses = []
    optimizer = None
    for batch in loader:
        scores = model(batch["image"].flatten(1))
        loss = cross_entropy(scores, batch["label"])  # soft labels, [B, classes]
        optimizer = optimizer or torch.optim.AdamW(model.parameters(), 1e-3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    print(main(sys.argv[1]))
