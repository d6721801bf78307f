# SPDX-License-Identifier: Apache-2.0
"""One measurement of a calibration: a loader over a small dataset on a fixed number of cores, repeated."""

from __future__ import annotations

import collections
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace import system
from headrace.loader import Loader
from headrace.measuring import busy_seconds, held_to
from headrace.records import open_dataset

_MAX_TILES = 256
_MIN_SAMPLES = 16
_MAX_IDLE = 1.0
"""Idle time per CPU time. Cores that idle for longer wait for something that is not a cost of the image."""
_MAX_IDLE_DIRECT = 0.1
"""With direct I/O, cores that idle for longer wait for storage, which the plan counts separately."""


class _Repeat(NamedTuple):
    """Figures per sample of one epoch."""

    cpu_seconds: float
    consumer_seconds: float
    wall_seconds: float
    idle_seconds: float
    """Time that cores were used by no program."""
    read_bytes: float


@dataclass(slots=True)
class CalibrationRun:
    """Loads a dataset with a fixed number of cores, and measures each epoch.

    Other load on the machine only ever makes an epoch slower. So the median of the faster half of the repeats counts.
    """

    format: str
    path: Path
    options: Mapping[str, Any]
    cores: int
    _repeats: list[_Repeat] = field(default_factory=list)
    _loader: Loader | None = None

    def prepare(self, seconds: float) -> None:
        """Warm up, and choose epochs that take about this many seconds."""
        n, batch_size = len(open_dataset(self.path)), self.options["batch_size"]
        fewest = min(n, max(_MIN_SAMPLES, batch_size))
        with held_to(self.cores):
            with self._make(_spread(n, fewest), direct_io=False) as once:
                per_sample = _load_epoch(once).wall_seconds
            wanted = math.ceil(seconds / max(per_sample, 1e-6))
            samples = _spread(n, max(fewest, min(n, wanted)))
            self._loader = self._make(np.tile(samples, min(_MAX_TILES, max(1, wanted // n))))
            _load_epoch(self._loader)  # starts its threads, which stay on these cores

    def measure(self) -> None:
        """Measure one epoch."""
        assert self._loader is not None, "call prepare first"
        with held_to(self.cores):
            self._repeats.append(_load_epoch(self._loader))

    def close(self) -> None:
        if self._loader is not None:
            self._loader.close()

    @property
    def core_seconds(self) -> float:
        """Core time per sample: the CPU time, and on several cores the time that some of them idle."""
        cpu = statistics.median(_faster_half([each.cpu_seconds for each in self._repeats]))
        if self.cores == 1:
            return cpu
        idle = max(0.0, statistics.mean(each.idle_seconds for each in self._repeats))
        return cpu + min(idle, cpu * (_MAX_IDLE_DIRECT if self.options["direct_io"] else _MAX_IDLE))

    @property
    def consumer_seconds(self) -> float:
        """CPU seconds per sample of the thread that receives the batches."""
        return statistics.median(_faster_half([each.consumer_seconds for each in self._repeats]))

    @property
    def read_bytes(self) -> float:
        return statistics.mean(each.read_bytes for each in self._repeats)

    @property
    def spread(self) -> float:
        """How far the faster half of the repeats lies apart, relative to the fastest."""
        counted = _faster_half([each.cpu_seconds for each in self._repeats])
        return max(counted) / min(counted) - 1

    def _make(self, indices: npt.NDArray[np.int64], **changes: Any) -> Loader:
        options = {**self.options, **changes}
        return Loader(self.path, indices=indices, shuffle=True, num_workers=self.cores, **options)


def _faster_half(seconds: Sequence[float]) -> list[float]:
    return sorted(seconds)[: (len(seconds) + 1) // 2]


def _load_epoch(loader: Loader) -> _Repeat:
    """Load one epoch, and return its figures per sample."""
    before, cores = loader.stats(), system.affinity() or set()
    busy, cpu, own, wall = busy_seconds(cores), time.process_time(), time.thread_time(), time.perf_counter()
    collections.deque(loader, maxlen=0)
    wall, own, cpu = time.perf_counter() - wall, time.thread_time() - own, time.process_time() - cpu
    busy = None if busy is None else (busy_seconds(cores) or 0.0) - busy
    done = loader.stats().since(before)
    # The kernel counts in hundredths of a second, so idle time may be negative; the mean of repeats is exact enough.
    idle = 0.0 if busy is None or not cores else wall * len(cores) - busy
    return _Repeat(*(total / done.samples for total in (cpu, own, wall, idle, done.bytes_read)))


def _spread(n: int, count: int) -> npt.NDArray[np.int64]:
    """Return `count` of `n` rows at equal distances: rows are in the order of their sizes."""
    return np.arange(count, dtype=np.int64) * n // count
