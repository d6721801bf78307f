# SPDX-License-Identifier: Apache-2.0
"""Lightning's Trainer with validation, resumed from checkpoints at the end of an epoch.

From these, Lightning does not load the state of the loader: it sets the epoch, after `iter` and before `next`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from tests.integrations.runs.job import SIZE, Job


class Model(LightningModule):
    """A number that notes the epochs and labels of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(SIZE, 1)
        self.trained: list[tuple[int, list[int]]] = []
        self.validated: list[int] = []

    def training_step(self, batch):
        self.trained.append((self.current_epoch, batch["label"].tolist()))
        return self.layer(batch["image"].flatten(1)).mean()

    def validation_step(self, batch) -> None:
        if not self.trainer.sanity_checking:
            self.validated += batch["label"].tolist()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(job: Job, checkpoint: str | None, **options) -> Model:
    save = ModelCheckpoint(job.path("epochs"), filename="{epoch}", save_top_k=-1, enable_version_counter=False)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(
        max_epochs=3, accelerator="cpu", callbacks=[save], default_root_dir=job.folder, **quiet, **options
    )
    model = Model()
    trainer.fit(model, job.loader(), job.loader(shuffle=False), ckpt_path=checkpoint)
    return model


def train(job: Job) -> None:
    for options in ({}, {"limit_train_batches": 3}):
        whole = fit(job, None, **options)
        assert whole.validated == list(range(job.samples)) * 3
        for epoch in (0, 1):
            rest = fit(job, str(Path(job.path("epochs"), f"epoch={epoch}.ckpt")), **options)
            assert rest.trained == [line for line in whole.trained if line[0] > epoch], (options, epoch)
