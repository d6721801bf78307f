# SPDX-License-Identifier: Apache-2.0
"""WebDataset over tars of the images as they are, decoded by Pillow (antialiased) in the workers of a DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pictures
import protocol
import torch
import webdataset

SHARDS = 8


def prepare(source: Path, dest: Path, _variant: str, _workers: int) -> None:
    """Store the images in shards, in an order of their own: WebDataset shuffles only within a window."""
    files, labels = protocol.files_of(source)
    dest.mkdir()
    order = np.random.default_rng(0).permutation(len(files))
    for number, part in enumerate(np.array_split(order, SHARDS)):
        with webdataset.TarWriter(str(dest / f"{number:03d}.tar")) as tar:
            for index in part:
                suffix = Path(files[index]).suffix[1:]
                tar.write({"__key__": f"{index:06d}", suffix: Path(files[index]).read_bytes(), "cls": labels[index]})


class Step:
    """One sample of a tar to a pair of tensor and label."""

    def __init__(self, job: protocol.Job) -> None:
        self.step = pictures.with_pillow(job.crop, job.size)

    def __call__(self, sample: dict[str, Any]) -> tuple[torch.Tensor, int]:
        rng = np.random.default_rng(torch.randint(2**63 - 1, ()).item())
        contents = next(sample[suffix] for suffix in ("png", "jpg") if suffix in sample)
        return torch.from_numpy(self.step(contents, rng)), int(sample["cls"])


def load(job: protocol.Job) -> Iterator[protocol.Batches]:
    torch.manual_seed(job.seed)
    shards = [str(path) for path in sorted(job.data.glob("*.tar"))]
    dataset = (
        webdataset.WebDataset(shards, shardshuffle=len(shards), seed=job.seed)
        .shuffle(100)
        .map(Step(job))
        .batched(job.batch_size)
    )
    loader = webdataset.WebLoader(dataset, batch_size=None, num_workers=job.workers, persistent_workers=True)
    for _ in range(job.epochs):
        yield loader


if __name__ == "__main__":
    protocol.main(load, libraries=("webdataset", "torch", "numpy", "pillow"), prepare=prepare)
