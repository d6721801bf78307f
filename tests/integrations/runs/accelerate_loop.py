# SPDX-License-Identifier: Apache-2.0
"""Accelerate: a loop of one's own; `save_state` and `load_state` include the prepared loader."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from tests.integrations.runs.job import CLASSES, SIZE, Job, main
from torch.nn.functional import cross_entropy

from headrace.integrations.accelerate import prepare


def train(job: Job) -> None:
    accelerator = Accelerator(cpu=True)
    loader = prepare(job.loader(device=accelerator.device), accelerator)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(SIZE, CLASSES))
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    if job.resumes:
        accelerator.load_state(job.path("checkpoint"))
    log, steps = job.log(accelerator.process_index), 0
    for _ in range(loader.iteration, job.epochs):
        for batch in loader:
            log.received(batch["image"], batch["label"], batch.get("_repeat"))
            with accelerator.accumulate(model):
                optimizer.zero_grad()
                accelerator.backward(cross_entropy(model(batch["image"]), batch["label"]))
                optimizer.step()
            steps += 1
            if steps % job.save_every == 0:
                accelerator.save_state(job.path("checkpoint"))
            log.after_step()
    accelerator.end_training()


if __name__ == "__main__":
    main(train)
