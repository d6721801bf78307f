# SPDX-License-Identifier: Apache-2.0
"""Train a small network on class folders of images, however they are stored: `python examples/small_cnn.py DATASET`.

A lossless format keeps the pixels of the original files, and order and random crops depend on the seed alone. Therefore
the losses are the same, bit for bit, whether a dataset stores the original files, another format or a mix of formats.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

import headrace
from headrace.transforms import HorizontalFlip, Normalize, RandomResizedCrop, Transform

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TRANSFORM: list[Transform] = [RandomResizedCrop(64), HorizontalFlip(), Normalize(MEAN, STD)]


def make_model(classes: int) -> nn.Module:
    """Return a network of two convolutions and a linear layer, with the same weights in every run."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * 16, classes),
    )  # fmt: skip


def train(batches: Iterable[dict[str, Any]], classes: int) -> list[float]:
    """Train one step per batch and return the losses."""
    model = make_model(classes)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for batch in batches:
        loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def main(path: str, *, epochs: int = 2, batch_size: int = 32) -> list[float]:
    """Train on a dataset and return the losses of all steps."""
    with headrace.Loader(path, batch_size=batch_size, shuffle=True, seed=1, transform=TRANSFORM) as loader:
        classes = len(loader.dataset.classes or [])
        losses = train((batch for _ in range(epochs) for batch in loader), classes)
    print(f"{path}: {len(losses)} steps, first loss {losses[0]:.4f}, last loss {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main(sys.argv[1])
