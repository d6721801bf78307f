# SPDX-License-Identifier: Apache-2.0
"""Lightning Fabric: a loop of one's own; `fabric.save` and `fabric.load` take the loader as it is."""

from __future__ import annotations

import os

import torch
from lightning.fabric import Fabric
from tests.integrations.runs.job import CLASSES, SIZE, Job, main
from torch.nn.functional import cross_entropy


def train(job: Job) -> None:
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    fabric = Fabric(accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto")
    fabric.launch()
    loader = job.loader(device=fabric.device)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(SIZE, CLASSES))
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
    state = {"model": model, "optimizer": optimizer, "loader": loader}
    if job.resumes:
        fabric.load(job.path("checkpoint.ckpt"), state)
    log, steps = job.log(fabric.global_rank), 0
    while loader.epoch < job.epochs:
        for batch in loader:
            log.received(batch["image"], batch["label"], batch.get("_repeat"))
            optimizer.zero_grad()
            fabric.backward(cross_entropy(model(batch["image"]), batch["label"]))
            optimizer.step()
            steps += 1
            if steps % job.save_every == 0:
                fabric.save(job.path("checkpoint.ckpt"), state)
            log.after_step()


if __name__ == "__main__":
    main(train)
