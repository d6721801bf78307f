# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DataLoader over a folder of images, decoded by Pillow (antialiased) or OpenCV (not)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pictures
import protocol
import torch
from torch.utils.data import DataLoader, Dataset


class Folder(Dataset[tuple[torch.Tensor, int]]):
    """Class folders, as `torchvision.datasets.ImageFolder` has them."""

    def __init__(self, job: protocol.Job) -> None:
        self.files, self.labels = protocol.files_of(job.data)
        steps = {"": pictures.with_pillow, "cv2": pictures.with_cv2}
        self.step = steps[job.variant](job.crop, job.size)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        # torch gives each worker another seed in each epoch; NumPy's generator follows it.
        rng = np.random.default_rng(torch.randint(2**63 - 1, ()).item())
        image = self.step(Path(self.files[index]).read_bytes(), rng)
        return torch.from_numpy(image), self.labels[index]


def load(job: protocol.Job) -> Iterator[protocol.Batches]:
    torch.manual_seed(job.seed)
    loader = DataLoader(
        Folder(job),
        batch_size=job.batch_size,
        shuffle=True,
        num_workers=job.workers,
        persistent_workers=True,
    )
    for _ in range(job.epochs):
        yield loader


if __name__ == "__main__":
    protocol.main(load, libraries=("torch", "numpy", "pillow", "opencv-python-headless"))
