# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch under torchrun, with DDP or FSDP; a state on rank 0 serves any number of ranks."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist
from tests.integrations.runs.job import CLASSES, SIZE, Job, main
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

WHOLE = StateDictOptions(full_state_dict=True)


def train(job: Job) -> None:
    dist.init_process_group("gloo")
    loader = job.loader()
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(SIZE, CLASSES))
    model = fully_shard(model) if job.wrapper == "fsdp" else DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    path = Path(job.path("checkpoint.pt"))
    if path.exists():
        checkpoint = torch.load(path, weights_only=True)
        weights, moments = checkpoint["model"], checkpoint["optimizer"]
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments, options=WHOLE)
        loader.load_state_dict(checkpoint["loader"])
        job.part = max(job.part, int(os.environ["TORCHELASTIC_RESTART_COUNT"]))  # torchrun itself started it again
    log, steps = job.log(dist.get_rank()), 0
    while loader.epoch < job.epochs:
        for batch in loader:
            log.received(batch["image"], batch["label"], batch.get("_repeat"))
            optimizer.zero_grad()
            cross_entropy(model(batch["image"]), batch["label"]).backward()
            optimizer.step()
            steps += 1
            if steps % job.save_every == 0:
                weights, moments = get_state_dict(model, optimizer, options=WHOLE)
                if dist.get_rank() == 0:
                    torch.save({"model": weights, "optimizer": moments, "loader": loader.state_dict()}, f"{path}.new")
                    Path(f"{path}.new").replace(path)
                dist.barrier()
            log.after_step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(train)
