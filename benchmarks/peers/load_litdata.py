# SPDX-License-Identifier: Apache-2.0
"""LitData over its chunks of the images as they are, decoded by Pillow (antialiased) in its DataLoader's workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litdata
import numpy as np
import pictures
import protocol
import torch


def read(sample: tuple[str, int]) -> dict[str, Any]:
    path, label = sample
    return {"image": Path(path).read_bytes(), "label": label}


def prepare(source: Path, dest: Path, _variant: str, workers: int) -> None:
    files, labels = protocol.files_of(source)
    inputs = list(zip(files, labels, strict=True))
    litdata.optimize(fn=read, inputs=inputs, output_dir=str(dest), chunk_bytes="64MB", num_workers=workers)


class Dataset(litdata.StreamingDataset):
    """Its samples as normalised crops."""

    def __init__(self, job: protocol.Job) -> None:
        super().__init__(str(job.data), shuffle=True, seed=job.seed)
        self.step = pictures.with_pillow(job.crop, job.size)

    def __getitem__(self, index: Any) -> tuple[torch.Tensor, int]:
        sample = super().__getitem__(index)
        rng = np.random.default_rng(torch.randint(2**63 - 1, ()).item())
        return torch.from_numpy(self.step(sample["image"], rng)), sample["label"]


def load(job: protocol.Job) -> Iterator[protocol.Batches]:
    torch.manual_seed(job.seed)
    loader = litdata.StreamingDataLoader(
        Dataset(job), batch_size=job.batch_size, num_workers=job.workers, persistent_workers=True
    )
    for _ in range(job.epochs):
        yield loader


if __name__ == "__main__":
    protocol.main(load, libraries=("litdata", "torch", "numpy", "pillow"), prepare=prepare)
