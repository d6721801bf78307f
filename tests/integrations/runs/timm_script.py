# SPDX-License-Identifier: Apache-2.0
"""The loop of timm's train.py with timm's Mixup, loss and schedule: batches are (input, target), in two lines.

timm imports torchvision wherever a model is near. The files that are used here do not, so they also run without it:
`timm_packages` registers timm's packages without running their `__init__`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import torch
import torch.distributed as dist
from tests.integrations.runs.job import CLASSES, SIZE, TRANSFORM, Job, main
from torch.nn.parallel import DistributedDataParallel

from headrace.transforms import PerBatch


def timm_packages() -> None:
    """Let files of timm be imported although torchvision is missing."""
    with contextlib.suppress(ImportError):
        import timm  # noqa: F401, PLC0415

        return
    folder = Path(importlib.util.find_spec("timm").submodule_search_locations[0])
    for name in ("timm", "timm.data", "timm.utils"):
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [str(folder.joinpath(*name.split(".")[1:]))]


def train(job: Job) -> None:
    timm_packages()
    from timm.data.mixup import Mixup  # noqa: PLC0415
    from timm.loss import SoftTargetCrossEntropy  # noqa: PLC0415
    from timm.scheduler import CosineLRScheduler  # noqa: PLC0415
    from timm.utils.metrics import AverageMeter  # noqa: PLC0415

    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if distributed:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if distributed else 0
    # Instead of timm.data.create_loader.
    pair = PerBatch(lambda batch: (batch["image"], batch["label"]))
    loader_train = job.loader(transform=[*TRANSFORM, pair])
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(SIZE, CLASSES))
    model = DistributedDataParallel(model) if distributed else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = CosineLRScheduler(optimizer, job.epochs * len(loader_train), t_in_epochs=False)
    mixup, loss_fn, losses = Mixup(num_classes=CLASSES, cutmix_alpha=1.0), SoftTargetCrossEntropy(), AverageMeter()
    path = Path(job.path("recovery.pth.tar"))
    start_epoch = 0
    if job.resumes:
        checkpoint = torch.load(path, weights_only=True)
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        loader_train.load_state_dict(checkpoint["loader"])
        start_epoch = loader_train.epoch
    log, steps = job.log(rank), 0
    for epoch in range(start_epoch, job.epochs):
        if distributed and hasattr(loader_train.sampler, "set_epoch"):
            loader_train.sampler.set_epoch(epoch)
        for inputs, target in loader_train:
            log.received(inputs, target)
            mixed, soft_target = mixup(inputs, target)
            optimizer.zero_grad()
            loss = loss_fn(model(mixed), soft_target)
            loss.backward()
            optimizer.step()
            losses.update(loss.item(), inputs.size(0))
            steps += 1
            scheduler.step_update(num_updates=steps, metric=losses.avg)
            if steps % job.save_every == 0 and rank == 0:
                saved = {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**saved, "loader": loader_train.state_dict()}, path)
            log.after_step()
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(train)
