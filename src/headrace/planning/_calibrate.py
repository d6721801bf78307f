# SPDX-License-Identifier: Apache-2.0
"""Calibration: a sample of the user's own images, stored in every format and loaded as it will be, and what that took.

Nothing is estimated from the format's name. Each format gets a small dataset, and the loader runs over it with the
recipe's transforms and batch size: once with one core at work, once with all. Formats take turns, round after round,
so that a disturbance meets them all; medians count.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace import formats as image_formats
from headrace.building import build
from headrace.loader import Loader
from headrace.planning._cost import Calibration, Cost
from headrace.planning._options import candidates, describe
from headrace.planning._options import loader_options as make_options
from headrace.planning._sample import Sample, take_sample
from headrace.records import open_dataset
from headrace.transforms import Recipe

FORMATS = ("hri:dense", "hri:fast", "raw")
"""What is tried beside the source's own format; `png` and `webp` can be asked for."""
SAMPLES = 96
QUICK_SAMPLES = 24

ProgressHook: TypeAlias = Callable[[int, int, str], None]
"""Called with the steps done, all steps, and what comes next."""

_ROUNDS, _QUICK_ROUNDS = 5, 2
_SECONDS, _QUICK_SECONDS = 0.5, 0.15
_MOST_REPEATS = 256
_LEAST_SAMPLES = 16
_LEAST_USE = 0.5
"""Of the cores: a loader that had less work than that was held up by something that is not measured here."""


def calibrate(
    source: Any,
    *,
    transform: Any = None,
    recipe: Recipe | Mapping[str, Any] | str | PathLike[str] | None = None,
    batch_size: int = 64,
    formats: Sequence[str] | None = None,
    samples: int | None = None,
    cores: int | None = None,
    direct: bool = False,
    quick: bool = False,
    loader_options: Mapping[str, Any] | None = None,
    workdir: str | PathLike[str] | None = None,
    progress: ProgressHook | None = None,
) -> Calibration:
    """Measure what a sample costs in each format.

    Args:
        source: A dataset or the path of one, or anything that `headrace.build` takes.
        transform: As the loader's.
        recipe: Takes the place of transform and batch size: a `Recipe`, its JSON or its file.
        batch_size: Samples a batch.
        formats: What to try; by default the source's own and the lossless formats that were made for training.
        samples: How many images to measure with.
        cores: How many to measure with beside one; all that this process may use by default.
        direct: Read past the page cache, as a loader of a dataset larger than memory does.
        quick: Fewer images and rounds: seconds instead of a minute or so, and less exact.
        loader_options: More arguments of the loader, as it will run.
        workdir: Where the small datasets are made for the time being.
        progress: Called before each step.

    """
    options = make_options(transform, recipe, batch_size) | {"direct": direct} | dict(loader_options or {})
    n = samples or (QUICK_SAMPLES if quick else SAMPLES)
    crowd = cores or usable_cores()
    sample = take_sample(source, n)
    names = candidates(sample.own_format, formats, FORMATS)
    steps = _Steps(progress)
    with tempfile.TemporaryDirectory(prefix="headrace-plan-", dir=workdir) as folder:
        steps.total = len(names) + (2 if crowd > 1 else 1) * len(names) * (1 + _rounds(quick))
        stores = [_store(sample, name, Path(folder), steps) for name in names]
        runs = [_Run(store, options, number) for number in ((1, crowd) if crowd > 1 else (1,)) for store in stores]
        try:
            _measure(runs, steps, rounds=_rounds(quick), seconds=_QUICK_SECONDS if quick else _SECONDS)
        finally:
            for run in runs:
                run.close()
        costs = tuple(_cost(store, [run for run in runs if run.store is store], crowd) for store in stores)
        consumer = statistics.median(turn.consumer for run in runs for turn in run.turns)
    return Calibration(
        costs=costs,
        images=sample.images,
        sampled=sample.sampled,
        batch_size=options["batch_size"],
        cores=crowd,
        consumer_seconds=consumer,
        source_format=sample.own_format or "mixed",
        recipe=describe(options),
        provenance={
            "cpu": _cpu_name(),
            "platform": platform.platform(),
            "direct": direct,
            "quick": quick,
            "rounds": _rounds(quick),
        },
    )


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def held_to(cores: int) -> Iterator[None]:
    """Hold this thread, and those that it starts, to so many cores, where the system can."""
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(slots=True)
class _Steps:
    """Counts the steps of a calibration for whoever shows them."""

    hook: ProgressHook | None
    total: int = 1
    done: int = 0

    def next(self, what: str) -> None:
        if self.hook is not None:
            self.hook(self.done, max(self.total, self.done + 1), what)
        self.done += 1


@dataclass(frozen=True, slots=True)
class _Store:
    """The sample in one format."""

    format: str
    path: Path
    stored_bytes: float
    encode_seconds: float


@dataclass(frozen=True, slots=True)
class _Turn:
    """What a sample took in one turn of a run: of all threads, of the consumer's, by the clock, and in bytes."""

    cpu: float
    consumer: float
    kept_waiting: float
    """How long threads that could have run were kept from a core."""
    wall: float
    read_bytes: float


@dataclass(slots=True)
class _Run:
    """A loader over a store with so many cores at work."""

    store: _Store
    options: Mapping[str, Any]
    cores: int
    turns: list[_Turn] = field(default_factory=list)
    cached_turns: list[_Turn] = field(default_factory=list)
    """Of a loader that finds all bytes in memory: cores that idle in these wait for each other, not for storage."""
    loaders: list[tuple[Loader, list[_Turn]]] = field(default_factory=list)

    def prepare(self, seconds: float) -> None:
        """Warm up, and make epochs that last long enough to be measured, and not much longer."""
        n = len(open_dataset(self.store.path))
        least = min(n, max(_LEAST_SAMPLES, self.options["batch_size"]))
        with held_to(self.cores):
            with self._make(_spread(n, least), direct=False) as once:
                begun = time.perf_counter()
                _turn(once)
                took = (time.perf_counter() - begun) / least
            wanted = math.ceil(seconds / max(took, 1e-6))
            indices = np.tile(_spread(n, max(least, min(n, wanted))), min(_MOST_REPEATS, max(1, wanted // n)))
            self.loaders.append((self._make(indices), self.turns))
            if self.options["direct"]:
                self.loaders.append((self._make(indices, direct=False), self.cached_turns))
            else:
                self.cached_turns = self.turns
            for loader, _ in self.loaders:
                _turn(loader)  # starts its threads, which stay on these cores

    def measure(self) -> None:
        with held_to(self.cores):
            for loader, turns in self.loaders:
                turns.append(_turn(loader))

    def _make(self, indices: Any, **changes: Any) -> Loader:
        options = {**self.options, **changes}
        return Loader(self.store.path, indices=indices, shuffle=True, num_workers=self.cores, **options)

    def close(self) -> None:
        for loader, _ in self.loaders:
            loader.close()


def _spread(n: int, count: int) -> npt.NDArray[np.int64]:
    """Rows from all over a sample, which lies in the order of its sizes."""
    return np.arange(count, dtype=np.int64) * n // count


def _turn(loader: Loader) -> _Turn:
    """Load an epoch and do nothing with it."""
    before, waiting = loader.stats(), _seconds_kept_waiting()
    cpu, own, wall = time.process_time(), time.thread_time(), time.perf_counter()
    for _ in loader:
        pass
    wall, own, cpu = time.perf_counter() - wall, time.thread_time() - own, time.process_time() - cpu
    after, waiting = loader.stats(), _seconds_kept_waiting() - waiting
    samples = after["samples"] - before["samples"]
    n_bytes = after.get("bytes_read", 0) - before.get("bytes_read", 0)
    return _Turn(cpu / samples, own / samples, max(waiting, 0.0) / samples, wall / samples, n_bytes / samples)


def _seconds_kept_waiting() -> float:
    """Of all threads of this process, from the scheduler's books; 0 where there are none."""
    total = 0
    for books in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # a thread may end meanwhile
            total += int(books.read_text(encoding="ascii").split()[1])
    return total / 1e9


def _measure(runs: Sequence[_Run], steps: _Steps, *, rounds: int, seconds: float) -> None:
    for run in runs:
        steps.next(f"loading {run.store.format}, {run.cores} core{'s' if run.cores > 1 else ''}")
        run.prepare(seconds)
    for _ in range(rounds):
        for run in runs:
            steps.next(f"measuring {run.store.format}, {run.cores} core{'s' if run.cores > 1 else ''}")
            run.measure()


def _cost(store: _Store, runs: Sequence[_Run], crowd: int) -> Cost:
    alone = next(run for run in runs if run.cores == 1)
    crowded = next((run for run in runs if run.cores == crowd and crowd > 1), None)
    return Cost(
        format=store.format,
        read_bytes=statistics.mean(turn.read_bytes for run in runs for turn in run.turns),
        cpu_seconds=_taken(alone),
        cpu_seconds_crowded=None if crowded is None else _taken(crowded),
        stored_bytes=store.stored_bytes,
        encode_seconds=store.encode_seconds,
        lossless=image_formats.parse(store.format)[0].lossless,
    )


def _taken(run: _Run) -> float:
    """Core seconds that a sample takes away: the CPU time, and what the cores idle between while they are in demand.

    A thread that was kept from a core did not idle: then the core was busy, with another thread or another program.
    """
    cpu = statistics.median(turn.cpu for turn in run.turns)
    if run.cores == 1:
        return cpu  # a core that idles has nothing to do
    used = statistics.median((turn.cpu + turn.kept_waiting) / (turn.wall * run.cores) for turn in run.cached_turns)
    return cpu / min(1.0, max(used, _LEAST_USE))


def _store(sample: Sample, name: str, folder: Path, steps: _Steps) -> _Store:
    steps.next(f"storing {sample.sampled} images as {name}")
    path = folder / name.replace(":", "-")
    begun = time.process_time()
    report = build(sample.source, path, format=name, workers=1)
    seconds = time.process_time() - begun
    return _Store(name, path, report.n_bytes / report.samples, seconds / report.samples)


def _rounds(quick: bool) -> int:
    return _QUICK_ROUNDS if quick else _ROUNDS


def _cpu_name() -> str:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()
