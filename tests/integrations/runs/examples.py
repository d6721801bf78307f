# SPDX-License-Identifier: Apache-2.0
"""The examples for trainers, on a small dataset with classes: each is started again after its first epoch."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import numpy as np
from PIL import Image
from tests.integrations.runs.job import Job

import headrace

EXAMPLES = Path(__file__).parents[3] / "examples"


def train(job: Job) -> None:
    rng = np.random.default_rng(0)
    for number in range(24):
        path = Path(job.path("photos"), f"class{number % 2}", f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (70, 90, 3), np.uint8)).save(path)
    dataset = job.path("photos.hr")
    headrace.build(job.path("photos"), dataset, workers=1)

    main = runpy.run_path(str(EXAMPLES / "train_lightning.py"))["main"]
    options = {"batch_size": 8, "save_every": 2}
    assert [main(dataset, job.path("lightning"), epochs=epochs, **options) for epochs in (1, 2)] == [3, 6]

    main = runpy.run_path(str(EXAMPLES / "train_jax.py"))["main"]
    whole = main(dataset, job.path("jax-whole"), epochs=2, **options)
    first = main(dataset, job.path("jax"), epochs=1, **options)
    rest = main(dataset, job.path("jax"), epochs=2, **options)
    assert all(map(math.isfinite, whole))
    assert first[:2] + rest == whole, "the state of step 2 continues with the same images and weights"
