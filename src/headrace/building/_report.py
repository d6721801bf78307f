# SPDX-License-Identifier: Apache-2.0
"""What a build reports: progress while it runs, and a report at the end."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from headrace.sources import Source

_INTERVAL = 0.1


@dataclass(frozen=True, slots=True)
class Skipped:
    """A sample of the source that is not in the dataset, and the reason."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class BuildReport:
    """The result of a build. Times and rates are those of this run, without shards that an earlier run finished."""

    path: Path
    samples: int
    shards: int
    kept_shards: int
    """Number of shards that an earlier, interrupted run finished."""
    source_bytes: int
    n_bytes: int
    """Size of the dataset."""
    seconds: float
    samples_per_second: float
    skipped_count: int
    skipped: tuple[Skipped, ...]
    """The first thousand."""
    fingerprint: str
    ignored: tuple[str, ...] = ()
    """Files of the source that are not samples, counted by suffix: `3 .txt (such as readme.txt)`."""
    warnings: tuple[str, ...] = ()
    """Unexpected results, such as a dataset that is much larger than its source."""
    was_finished: bool = False
    """True if an earlier run had finished the same build, so that nothing was done."""


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a running build. Totals are None until the source has been counted, and for iterables."""

    samples: int
    source_bytes: int
    n_bytes: int
    seconds: float
    samples_per_second: float
    """In this run, without shards that were kept."""
    total_samples: int | None
    total_bytes: int | None

    @property
    def seconds_left(self) -> float | None:
        if self.total_samples is None or not self.samples_per_second:
            return None
        return max(0, self.total_samples - self.samples) / self.samples_per_second


ProgressHook: TypeAlias = Callable[[Progress], None]


def check_progress(progress: object) -> None:
    """Raise TypeError unless it can be called; before anything is built."""
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function that takes a Progress, or None; got {progress!r}")


class ProgressMeter:
    """Counts samples and bytes, and calls a hook at most every 0.1 s."""

    def __init__(self, hook: ProgressHook | None, source: Source | None, total: tuple[int, int] | None = None) -> None:
        """Count toward `total` samples and bytes, or those of a source, which are counted meanwhile."""
        self._hook = hook
        self.samples = 0
        self._done = self._source_bytes = self._n_bytes = 0
        self._start = self._shown = time.perf_counter()
        self._total = total
        self._closed = threading.Event()
        if hook is not None and source is not None and not source.sequential:
            # Counted in a thread with a copy of the source, so that the build starts before the listing ends.
            copy: Source = pickle.loads(pickle.dumps(source))  # noqa: S301
            threading.Thread(target=self._count_source, args=(copy,), daemon=True).start()

    def _count_source(self, source: Source) -> None:
        samples = n_bytes = 0
        try:
            for item in source.items():
                samples, n_bytes = samples + 1, n_bytes + item.n_bytes
                if self._closed.is_set():
                    return
        except Exception:  # noqa: BLE001  # the build itself meets and reports the same error
            return
        self._total = (samples, n_bytes)

    def count(self, samples: int, source_bytes: int, n_bytes: int, *, kept: bool = False) -> None:
        """Count a chunk, or with `kept` a shard that an earlier run finished."""
        self.samples += 0 if kept else samples
        self._done += samples
        self._source_bytes += source_bytes
        self._n_bytes += n_bytes
        if self._hook is not None and time.perf_counter() - self._shown >= _INTERVAL:
            self._show(self._hook)

    def _show(self, hook: ProgressHook) -> None:
        self._shown = now = time.perf_counter()
        total_samples, total_bytes = self._total or (None, None)
        seconds = now - self._start
        rate = self.samples / max(seconds, 1e-9)
        hook(Progress(self._done, self._source_bytes, self._n_bytes, seconds, rate, total_samples, total_bytes))

    def close(self) -> None:
        self._closed.set()
        if self._hook is not None:
            self._show(self._hook)
