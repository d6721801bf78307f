# SPDX-License-Identifier: Apache-2.0
"""What the runs of all trainers share: a job on the command line, a loader, a small model, and a log of the batches.

A run is killed in mid-epoch and started again. Its log has one line per batch and part: samples, repeats and a checksum
of the pixels.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from headrace.transforms import HorizontalFlip, Normalize, RandomCrop

TRANSFORM = [RandomCrop(8), HorizontalFlip(), Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))]
SIZE = 3 * 8 * 8
CLASSES = 51
BATCH_SIZE = 4


class Killed(Exception):
    """Takes the place of a kill in a test that runs in one process."""


@dataclass
class Job:
    """One part of a run."""

    dataset: str
    folder: str
    part: int = 0
    epochs: int = 3
    samples: int = CLASSES
    drop_last: bool = False
    save_every: int = 5  # batches between checkpoints
    kill_after: int | None = None  # batches of this part
    kill_process: bool = True  # or raise Killed
    kill_agent: bool = False
    wrapper: str = "ddp"

    @property
    def resumes(self) -> bool:
        return self.part > 0

    def path(self, name: str) -> str:
        return str(Path(self.folder) / name)

    def loader(self, **options: Any) -> headrace.Loader:
        own = {"batch_size": BATCH_SIZE, "drop_last": self.drop_last, "indices": range(self.samples), "num_workers": 1}
        options = {"shuffle": True, "seed": 5, "transform": TRANSFORM, **own, **options}
        return headrace.Loader(self.dataset, **options)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def log(self, rank: int) -> Log:
        return Log(self, rank)


class Log:
    """Writes the batches that a rank received, and ends the run where the job says so."""

    def __init__(self, job: Job, rank: int) -> None:
        self._job, self._count = job, 0
        self._path = Path(job.path(f"part{job.part}-rank{rank}.jsonl"))

    def received(self, images: Any, labels: Any, repeat: Any = None) -> None:
        """Note a batch that the training loop received."""
        self._count += 1
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry(images, labels, repeat)) + "\n")

    def after_step(self) -> None:
        """End the run if it is time. Call it after the checkpoint of the step."""
        if self._count != self._job.kill_after:
            return
        if self._job.kill_agent:  # torchrun on one of the nodes, and its worker
            if "VICTIM" in os.environ:
                os.kill(os.getppid(), signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            return
        if self._job.kill_process:
            os.kill(os.getpid(), signal.SIGKILL)
        raise Killed


def entry(images: Any, labels: Any, repeat: Any = None) -> dict[str, Any]:
    """Return one line of a log."""
    pixels = zlib.crc32(np.ascontiguousarray(np.asarray(images)).data)
    repeats = 0 if repeat is None else int(np.asarray(repeat).sum())
    return {"labels": np.asarray(labels).tolist(), "repeats": repeats, "pixels": pixels}


def read(job: Job, part: int, rank: int) -> list[dict[str, Any]]:
    """Return the log of a rank."""
    path = Path(job.path(f"part{part}-rank{rank}.jsonl"))
    return [json.loads(line) for line in path.read_text().splitlines()]


def main(train: Callable[[Job], None]) -> None:
    """Run the job on the command line."""
    train(Job(**json.loads(sys.argv[1])))
