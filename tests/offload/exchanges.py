# SPDX-License-Identifier: Apache-2.0
"""Offload workers and hosts for tests, in threads of this process, and functions that wait for them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from headrace.offload.exchange import BatchName, HostExchange, Stretch
from headrace.offload.worker import OffloadWorker

COUNT = 40
BATCH = 4
BATCHES = COUNT // BATCH
# Enough for a slow machine. A test waits this long only if it fails.
PATIENCE = 20.0


def make_loader(path: Path, **options: Any) -> headrace.Loader:
    """A loader of eight-pixel crops, four at a time."""
    options = {"transform": [headrace.transforms.RandomResizedCrop(8)], "batch_size": BATCH, "shuffle": True, **options}
    return headrace.Loader(path, fields=["image", "mask", "label"], output="numpy", num_workers=1, **options)


def wait_until(condition: Callable[[], Any]) -> Any:
    """Wait for something to become true, and give it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)
    return found


@contextmanager
def running(dataset: Path, exchange: Path, **options: Any) -> Iterator[OffloadWorker]:
    """An offload worker at work in a thread."""
    worker = OffloadWorker(dataset, exchange, **options)
    raised: list[BaseException] = []

    def work() -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join()
    if raised:
        raise raised[0]


def name_of(number: int, epoch: int = 0, rank: int = 0, stop: int = COUNT) -> BatchName:
    return BatchName(epoch, rank, 0, stop, number)


def stretch(bottom: int = 0, top: int = BATCHES, epoch: int = 0, stop: int = COUNT) -> Stretch:
    return Stretch(epoch, 0, stop, bottom, top)


def take(exchange: HostExchange, name: BatchName) -> Any:
    """Wait for a batch and copy it."""
    arrays = wait_until(lambda: exchange.read(name)).arrays
    return {field: np.array(array) for field, array in arrays.items()}


def files_in(folder: Path) -> list[str]:
    """All that is in a folder, also while others remove it."""
    found = [Path(parent, name) for parent, folders, files in os.walk(folder) for name in (*folders, *files)]
    return sorted(str(path.relative_to(folder)) for path in found)
