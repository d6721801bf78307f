# SPDX-License-Identifier: Apache-2.0
"""Grain over a folder of images, decoded by Pillow (antialiased) in its worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import grain
import numpy as np
import pictures
import protocol


class Step:
    """A file and its label to a normalised crop; Grain gives the generator."""

    def __init__(self, job: protocol.Job) -> None:
        self.step = pictures.with_pillow(job.crop, job.size)

    def __call__(self, sample: tuple[str, int], rng: np.random.Generator) -> tuple[pictures.Pixels, int]:
        path, label = sample
        return self.step(Path(path).read_bytes(), rng), label


def load(job: protocol.Job) -> Iterator[protocol.Batches]:
    files, labels = protocol.files_of(job.data)
    batches = (
        grain.MapDataset.source(list(zip(files, labels, strict=True)))
        .seed(job.seed)
        .shuffle()
        .random_map(Step(job))
        .batch(job.batch_size)
    )
    # Batches are repeated, not samples, so that an epoch ends with its last, partial batch.
    dataset = batches.repeat(job.epochs).to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2))
    loader = iter(dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=job.workers)))
    for _ in range(job.epochs):
        yield islice(loader, len(batches))
    loader.close()


if __name__ == "__main__":
    protocol.main(load, libraries=("grain", "numpy", "pillow"))
