# SPDX-License-Identifier: Apache-2.0
"""Headrace over a dataset of its own: threads in this process, antialiased bilinear resize.

The variant `dataloader` puts the dataset into PyTorch's DataLoader.
"""

from __future__ import annotations

from collections.abc import Iterator

import protocol
import torch
from torch.utils.data import DataLoader

import headrace
from headrace.transforms import CenterCrop, Normalize, RandomCrop, RandomResizedCrop

CROPS = {"random-resized": RandomResizedCrop, "random": RandomCrop, "center": CenterCrop}


def load(job: protocol.Job) -> Iterator[protocol.Batches]:
    transform = [CROPS[job.crop](job.size), Normalize(protocol.MEAN, protocol.STD)]
    if job.variant == "dataloader":
        yield from load_with_dataloader(job, headrace.open(job.data, transform=transform, seed=job.seed))
        return
    loader = headrace.Loader(
        job.data,
        batch_size=job.batch_size,
        shuffle=True,
        seed=job.seed,
        transform=transform,
        num_workers=job.workers,
    )
    with loader:
        for _ in range(job.epochs):
            yield ((batch["image"], batch["label"]) for batch in loader)


def load_with_dataloader(job: protocol.Job, dataset: headrace.Dataset) -> Iterator[protocol.Batches]:
    torch.manual_seed(job.seed)
    loader = DataLoader(
        dataset, batch_size=job.batch_size, shuffle=True, num_workers=job.workers, persistent_workers=True
    )
    for epoch in range(job.epochs):
        dataset.set_epoch(epoch)
        yield ((batch["image"], batch["label"]) for batch in loader)


if __name__ == "__main__":
    protocol.main(load, libraries=("headrace", "torch", "numpy"))
