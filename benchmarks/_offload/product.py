# SPDX-License-Identifier: Apache-2.0
"""The one file in which the offload benchmark calls Headrace: the loader, the offload worker, and their counters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import headrace
from benchmarks import machine
from benchmarks._offload import throttle
from benchmarks._offload.sources import Source
from headrace.offload import Offload, Paced

STRATEGIES = ("mte", "wrr", "paced")
SPARE_HOST = "paced, spare_host"
"""`paced` that keeps the worker on even where the trainer is slower than the host alone."""


@dataclass(frozen=True)
class Counts:
    """Batches since the loader was opened."""

    taken: int = 0
    """Prepared batches that the trainer received."""
    prepared: int = 0
    """Batches that the worker has finished."""


def open_loader(source: Source, dataset: Path, batches: int, exchange: Path | None, strategy: str) -> headrace.Loader:
    """Open a loader with one thread and epochs of `batches` batches; with `exchange` it uses the offload worker."""
    opened = headrace.open(dataset)
    chosen = Paced(spare_host=True) if strategy == SPARE_HOST else strategy
    return headrace.Loader(
        opened,
        batch_size=source.batch_size,
        shuffle=True,
        indices=np.resize(np.arange(len(opened)), batches * source.batch_size),
        transform=source.transform,
        num_workers=1,
        output="numpy",
        batches_ahead=8,
        offload=None if exchange is None else Offload(exchange, strategy=chosen),
    )


def counts(loader: headrace.Loader) -> Counts:
    """Read the loader's counters; zeros if it has no offload worker."""
    stats = loader.stats().offload
    if stats is None:
        return Counts()
    return Counts(stats["offload_batches"], (stats["worker"] or {"batches": 0})["batches"])


@contextmanager
def offload_worker(dataset: Path, exchange: Path, *, share: float, core: int) -> Iterator[None]:
    """Run an offload worker on `core`, with this share of its time; raise with its output if it ends early."""
    exchange.mkdir(parents=True)
    command = [sys.executable, throttle.__file__, f"{share:g}", str(dataset), str(exchange)]
    with exchange.with_suffix(".log").open("w+b") as log:
        process = machine.start_on(core, command, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
            if process.poll() is not None:
                log.seek(0)
                raise RuntimeError(f"the offload worker has ended: {log.read().decode(errors='replace')[-2000:]}")
        finally:
            process.terminate()
            process.wait(20)
