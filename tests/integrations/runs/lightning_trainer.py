# SPDX-License-Identifier: Apache-2.0
"""Lightning's Trainer: it saves and loads the state of the loader itself."""

from __future__ import annotations

import os

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from tests.integrations.runs.job import CLASSES, SIZE, Job, Log, main
from torch.nn.functional import cross_entropy


class Model(LightningModule):
    """A linear layer that logs what it is trained on."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(SIZE, CLASSES))
        self.job = job

    def on_train_start(self) -> None:
        self.record: Log = self.job.log(self.global_rank)

    def training_step(self, batch):
        self.record.received(batch["image"], batch["label"], batch.get("_repeat"))
        return cross_entropy(self.layers(batch["image"]), batch["label"])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class End(Callback):
    """Comes after the checkpoint."""

    def on_train_batch_end(self, trainer, module, *_) -> None:  # noqa: ARG002
        module.record.after_step()


def train(job: Job) -> None:
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    save = ModelCheckpoint(
        job.folder, filename="last", every_n_train_steps=job.save_every, enable_version_counter=False
    )
    trainer = Trainer(
        max_epochs=job.epochs,
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        callbacks=[save],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=job.folder,
    )
    trainer.callbacks.append(End())
    trainer.fit(Model(job), job.loader(), ckpt_path=job.path("last.ckpt") if job.resumes else None)


if __name__ == "__main__":
    main(train)
