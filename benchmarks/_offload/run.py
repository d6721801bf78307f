# SPDX-License-Identifier: Apache-2.0
"""One measurement in its own process: a loader on one core feeds a trainer for some seconds.

Called by `benchmarks/offload.py` with a JSON object as its only argument; prints another one.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

import headrace
from benchmarks import machine
from benchmarks._offload.product import Counts, counts, open_loader
from benchmarks._offload.sources import SOURCES
from benchmarks.trainer import Trainer

HOST = "host alone"
WORKER = "worker alone"

_WARM_UP_SECONDS = 1.0
_WARM_UP_STEPS = 20  # a loader beside a slow trainer first fills its queue: 8 batches, some of them prepared
_WORKER_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Order:
    """What to measure."""

    source: str
    dataset: str
    exchange: str | None
    strategy: str
    """HOST, WORKER, or how the loader uses the worker."""
    step_seconds: float
    """Of the trainer, per batch; 0 for one that takes batches as fast as they come."""
    seconds: float
    batches: int
    """Per epoch."""
    core: int


@dataclass(frozen=True)
class Measured:
    """What was measured."""

    seconds: float
    batches: int
    offloaded: int = 0
    """Of these, batches that the worker prepared."""
    ready_before: int = 0
    """Of these, batches that lay in the exchange when the measurement began."""
    host_cpu_seconds: float = 0.0


def run(order: Order) -> Measured:
    """Load the first epoch in part, so that the strategy learns both rates; measure in the second.

    `mte` takes its batches in two blocks, first the host's and then the worker's, so whole epochs are measured.
    """
    machine.pin([order.core])
    exchange = None if order.exchange is None else Path(order.exchange)
    strategy = "mte" if order.strategy == WORKER else order.strategy
    with open_loader(SOURCES[order.source], Path(order.dataset), order.batches, exchange, strategy) as loader:
        trainer, whole = Trainer(order.step_seconds), order.strategy == "mte"
        if exchange is not None:
            batches = iter(loader)
            trainer.take(next(batches))
            _wait_for_worker(loader, 2)
            if order.strategy == WORKER:
                return _worker_alone(loader, order.seconds)
            _take(batches, trainer, float("inf") if whole else order.seconds)
        return _whole_epochs(loader, trainer, order) if whole else _part_of_epoch(loader, trainer, order)


def _take(batches: Iterable[Any], trainer: Trainer, seconds: float) -> int:
    """Train for so long, or until there are no more batches; return their number."""
    begun, n = time.perf_counter(), 0
    for batch in batches:
        trainer.take(batch)
        n += 1
        if time.perf_counter() - begun >= seconds:
            break
    return n


def _whole_epochs(loader: headrace.Loader, trainer: Trainer, order: Order) -> Measured:
    start, batches = _Start(loader), 0
    while start.seconds < order.seconds:
        batches += _take(loader, trainer, float("inf"))
    return start.measured(batches)


def _part_of_epoch(loader: headrace.Loader, trainer: Trainer, order: Order) -> Measured:
    warm_up = max(_WARM_UP_SECONDS, _WARM_UP_STEPS * order.step_seconds)
    begun, start, batches = time.perf_counter(), None, 0
    for batch in loader:
        trainer.take(batch)
        if start is None:
            if time.perf_counter() - begun >= warm_up:
                start = _Start(loader)
            continue
        batches += 1
        if start.seconds >= order.seconds:
            return start.measured(batches)
    raise RuntimeError(f"an epoch of {order.batches} batches ended within {order.seconds} s: give it more batches")


class _Start:
    """The clocks and counters at the beginning of a measurement."""

    def __init__(self, loader: headrace.Loader) -> None:
        self._loader, self._counts = loader, counts(loader)
        self._cpu, self._begun = time.process_time(), time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._begun

    def measured(self, batches: int) -> Measured:
        seconds, cpu = self.seconds, time.process_time() - self._cpu
        now = counts(self._loader)
        taken = now.taken - self._counts.taken
        return Measured(seconds, batches, taken, ready_before(self._counts, now), cpu)


def ready_before(begun: Counts, ended: Counts) -> int:
    """More batches were taken than prepared meanwhile: the difference lay ready at the beginning."""
    return max(0, (ended.taken - begun.taken) - (ended.prepared - begun.prepared))


def _worker_alone(loader: headrace.Loader, seconds: float) -> Measured:
    """Take no batches and count those that the worker prepares, from one change of its counter to another."""
    begun = ended = _wait_for_worker(loader, counts(loader).prepared + 1)
    first = last = counts(loader).prepared
    while ended - begun < seconds:
        ended = _wait_for_worker(loader, last + 1)
        last = counts(loader).prepared
    return Measured(ended - begun, last - first, last - first)


def _wait_for_worker(loader: headrace.Loader, prepared: int) -> float:
    """Wait until the worker has prepared so many batches; return the time."""
    deadline = time.perf_counter() + _WORKER_TIMEOUT_SECONDS
    while counts(loader).prepared < prepared:
        if time.perf_counter() > deadline:
            raise RuntimeError(f"the offload worker prepared no batch within {_WORKER_TIMEOUT_SECONDS:.0f} s")
        time.sleep(0.005)
    return time.perf_counter()


if __name__ == "__main__":
    print(json.dumps(asdict(run(Order(**json.loads(sys.argv[1]))))))
