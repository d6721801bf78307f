# SPDX-License-Identifier: Apache-2.0
"""Offload workers in a thread or a process for tests of loaders, and which batches the loaders gave."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.loader.datasets import assert_equal, copied

from headrace.loader import Loader
from headrace.offload.strategies._patterns import Pattern
from headrace.offload.strategies._strategies import Mte, Paced, Wrr
from headrace.offload.worker import OffloadWorker
from headrace.transforms import HorizontalFlip, Normalize, RandomResizedCrop

TRANSFORM = [RandomResizedCrop(24), HorizontalFlip(), Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))]
OPTIONS = {"batch_size": 2, "shuffle": True, "seed": 5, "transform": TRANSFORM, "output": "numpy", "num_workers": 1}
EPOCHS = 4


@dataclass(frozen=True)
class EagerWrr(Wrr):
    """A `wrr` that is never off: with a small dataset there is nothing to gain."""

    def why_off(self, times, batches):  # noqa: ARG002
        return None


def paced(near: int = 1, of: int = 3, skip: int = 2) -> Paced:
    """A given plan, because a measured one differs between machines."""
    return Paced(plans=dict.fromkeys(range(EPOCHS), Pattern(skip, near, of)))


def mte(host: int) -> Mte:
    return Mte(plans=dict.fromkeys(range(EPOCHS), Pattern(host, 1, 1)))


@contextmanager
def offload_worker(dataset: Path, exchange: Path, **options: Any) -> Iterator[OffloadWorker]:
    """An offload worker in a thread of this process."""
    exchange.mkdir(exist_ok=True)
    worker = OffloadWorker(dataset, exchange, **{"threads": 1, "ahead_bytes": 1 << 24, **options})
    thread = threading.Thread(target=worker.run, name="offload-worker")
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join()


def plain_batches(path: Path, epoch: int = 0, **options: Any) -> list[Any]:
    """What a loader without an offload worker gives."""
    with Loader(path, **{**OPTIONS, **options}) as loader:
        loader.set_epoch(epoch)
        return [copied(batch) for batch in loader]


def wait_for_prepared(loader: Loader, batches: int = 1, seconds: float = 10.0) -> None:
    """Wait until the offload worker has made some batches for an epoch that has begun."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        near = loader.stats().offload["worker"]
        if near is not None and near["batches"] >= batches:
            return
        time.sleep(0.005)
    raise AssertionError("the offload worker has made no batch")


def numbers_of(batches: list[Any], plain: list[Any]) -> list[int]:
    """Which of the plain batches these are, bit for bit."""
    first = {int(batch["label"][0]): number for number, batch in enumerate(plain)}
    numbers = [first[int(batch["label"][0])] for batch in batches]
    for number, batch in zip(numbers, batches, strict=True):
        assert_equal(batch, plain[number])
    return numbers


def slot_order(batches: int, pattern: Pattern) -> list[int]:
    """The order of a pattern, computed slot by slot."""
    head, tail, order = 0, batches, []
    for slot in range(batches):
        if pattern.is_prepared(slot):
            tail -= 1
            order.append(tail)
        else:
            order.append(head)
            head += 1
    return order


def left_behind(exchange: Path) -> list[str]:
    """All names in an exchange folder, while other processes may remove them."""
    return sorted(name for _, folders, files in os.walk(exchange) for name in folders + files)


class WorkerProcess:
    """An offload worker in a process of its own, which can be killed, frozen and started again."""

    def __init__(self, dataset: Path, exchange: Path) -> None:
        exchange.mkdir(exist_ok=True)
        self._command = [sys.executable, "-m", "headrace", "offload", str(dataset), str(exchange), "--ahead", "16MB"]
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self._process = self._started()

    def end(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


@contextmanager
def worker_process(dataset: Path, exchange: Path) -> Iterator[WorkerProcess]:
    process = WorkerProcess(dataset, exchange)
    try:
        yield process
    finally:
        process.end()


def prepared_files(exchange: Path) -> list[Path]:
    """The prepared batches in a folder, those that are read last first."""
    found = [Path(folder, name) for folder, _, names in os.walk(exchange) for name in names]
    batches = [path for path in found if path.suffix == ".safetensors"]
    return sorted(batches, key=lambda path: [int(part) for part in path.stem.split("-")])


def damage(path: Path, kind: str, rng: random.Random) -> None:
    """Damage a prepared batch in one of several ways, if it still exists."""
    with contextlib.suppress(OSError):
        content = path.read_bytes()
        if kind == "truncated":
            content = content[: rng.randrange(len(content))]
        elif kind == "flipped":
            at = rng.randrange(len(content))
            content = content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
        elif kind == "stale":
            others = [other for other in prepared_files(path.parent) if other != path]
            content = others[0].read_bytes() if others else b""
        else:
            content = rng.randbytes(len(content))
        with path.open("r+b") as file:
            file.write(content)
            file.truncate(len(content))
