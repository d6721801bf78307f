# SPDX-License-Identifier: Apache-2.0
"""Train a small network with Lightning: `python examples/train_lightning.py DATASET FOLDER`.

If it is killed, start it again: it continues with the exact next batch. With several devices, Lightning starts one
process per device, and each loads its share of every global batch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

import headrace
from headrace.transforms import HorizontalFlip, Normalize, RandomResizedCrop, Transform

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TRANSFORM: list[Transform] = [RandomResizedCrop(64), HorizontalFlip(), Normalize(MEAN, STD)]


class Classifier(LightningModule):
    """Two convolutions and a linear layer."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * 16, classes),
        )  # fmt: skip

    def training_step(self, batch: dict[str, Any]) -> torch.Tensor:
        """Return the loss of a batch."""
        return nn.functional.cross_entropy(self.layers(batch["image"]), batch["label"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main(path: str, folder: str, *, epochs: int = 2, batch_size: int = 32, save_every: int = 50) -> int:
    """Train on a dataset, continue from the checkpoint in a folder if there is one, and return the number of steps."""
    checkpoint = Path(folder, "last.ckpt")
    save = ModelCheckpoint(folder, filename="last", every_n_train_steps=save_every, enable_version_counter=False)
    trainer = Trainer(max_epochs=epochs, callbacks=[save], logger=False, default_root_dir=folder)
    with headrace.Loader(path, batch_size=batch_size, shuffle=True, seed=1, transform=TRANSFORM) as loader:
        model = Classifier(len(loader.dataset.classes or []))
        # Lightning saves and loads the state of the loader with the model.
        trainer.fit(model, loader, ckpt_path=str(checkpoint) if checkpoint.exists() else None)
    return int(trainer.global_step)


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2]), "steps")
