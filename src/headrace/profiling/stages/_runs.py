# SPDX-License-Identifier: Apache-2.0
"""Run a trainer, a loader or both for some seconds, and report their rates. Works with any loader.

The trainer alone runs on one batch that was loaded before: its rate is the ceiling that a perfect loader would reach.
The first batches of an epoch do not count: workers start, and some batches were made ahead.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeAlias

from headrace.errors import ProfileError
from headrace.loader import Loader
from headrace.measuring import ResourceUse, metered

Step: TypeAlias = Callable[[Any], Any]

WARM_UP_BATCHES = 2
"""Batches before the clock starts, if there is time."""
MIN_BATCHES = 4
EXTRA_SECONDS = 1.0
"""A short run may take this much longer to reach MIN_BATCHES."""
MAX_PARTS = 7
"""A long run is divided into this many parts; its rate is their median."""
MIN_PARTS = 3
"""Fewer parts give no spread."""


@dataclass(slots=True)
class TimedRun:
    """What a loader or a trainer did in some time."""

    concurrent: int = 1
    """Batches that may arrive together, because as many are made at the same time."""
    intervals: list[tuple[float, int]] = field(default_factory=list)
    """Elapsed seconds and images, batch by batch."""
    batches: int = 0
    thread_seconds: float = 0.0
    """CPU time of the iterating thread."""
    cost: ResourceUse = field(default_factory=ResourceUse)
    total_images: int = 0
    """Includes the first batches, as `cost` does."""
    batch: Any = None
    """The largest batch: the last one of an epoch may be smaller."""
    batch_images: int = 0
    epoch_batches: int | None = None
    """Length of an epoch that was iterated to its end, for loaders without `len`."""

    def count(self, batch: Any, images: int) -> None:
        """Add the images of a batch, and keep the batch if it is the largest so far."""
        if images > self.batch_images:
            self.batch, self.batch_images = batch, images
        self.total_images += images

    @property
    def images(self) -> int:
        return sum(images for _, images in self.intervals)

    @property
    def seconds(self) -> float:
        return sum(seconds for seconds, _ in self.intervals)

    @property
    def rate(self) -> float | None:
        """Images per second: the median of the parts of a long run, so that one interruption does not count."""
        return median(self._part_rates) if self.images else None

    @property
    def spread(self) -> float | None:
        """Half the range of the parts' rates over their median; of five or more, without the lowest and highest."""
        rates = sorted(self._part_rates) if self.images else []
        if len(rates) < MIN_PARTS:
            return None
        inner = rates[1:-1] if len(rates) >= MIN_PARTS + 2 else rates
        return (inner[-1] - inner[0]) / 2 / median(rates)

    @property
    def _part_rates(self) -> list[float]:
        size = max(MIN_BATCHES, 2 * self.concurrent, -(-len(self.intervals) // MAX_PARTS))
        parts = [self.intervals[start : start + size] for start in range(0, len(self.intervals), size)]
        full = [part for part in parts if len(part) == size] if len(parts) > 2 else [self.intervals]
        return [sum(images for _, images in part) / max(sum(seconds for seconds, _ in part), 1e-9) for part in full]

    @property
    def cpu_seconds_per_image(self) -> float:
        return self.cost.cpu_seconds / max(1, self.total_images)

    @property
    def cores(self) -> float | None:
        """Mean number of busy cores."""
        return self.cost.cpu_seconds / self.cost.seconds if self.cost.seconds > 0 else None


class _Deadlines:
    """Decides when the warm-up is over and when a run is long enough; slow batches must not take forever."""

    def __init__(self, seconds: float) -> None:
        now = time.perf_counter()
        self._warm_up_end, self._end = now + seconds / 3, now + seconds
        self._latest = now + max(1.25 * seconds, seconds + EXTRA_SECONDS)

    def is_warm_up(self, given: int, limits: range, now: float) -> bool:
        """Whether batch number `given` belongs to the warm-up, which has from `start` to `stop` batches."""
        return given <= (limits.stop if now < self._warm_up_end else limits.start)

    def is_over(self, run: TimedRun, now: float) -> bool:
        enough = run.batches >= max(MIN_BATCHES, 2 * run.concurrent)
        return run.batches > 0 and now >= (self._end if enough else self._latest)


def run_loader(loader: Iterable[Any], *, seconds: float, step: Step | None = None) -> TimedRun:
    """Iterate a loader for about `seconds`, epoch after epoch, and train on each batch if there is a step."""
    run, deadlines = TimedRun(concurrent=_concurrent_batches(loader)), _Deadlines(seconds)
    with metered() as run.cost:
        while not deadlines.is_over(run, time.perf_counter()):
            _run_epoch(loader, run, step, deadlines)
    return run


def _run_epoch(loader: Iterable[Any], run: TimedRun, step: Step | None, deadlines: _Deadlines) -> None:
    warm_up, given = _warm_up_limits(loader, run), 0
    iterator = iter(loader)
    last, thread = time.perf_counter(), time.thread_time()
    try:
        for batch in iterator:
            if step is not None:
                step(batch)
            given += 1
            is_warm_up = deadlines.is_warm_up(given, warm_up, time.perf_counter())
            if is_warm_up and step is not None:
                _synchronize()  # otherwise the GPU's work on this batch would count for the next one
            now, cpu = time.perf_counter(), time.thread_time()
            images = count_images(batch, loader)
            run.count(batch, images)
            if not is_warm_up:
                run.intervals.append((now - last, images))
                run.batches += 1
                run.thread_seconds += cpu - thread
            last, thread = now, cpu
            if deadlines.is_over(run, now):
                run.cost.sample_memory()  # while the loader's processes are alive
                break
        else:
            run.epoch_batches = given
    finally:
        close = getattr(iterator, "close", None)
        if callable(close):
            close()
    if given == 0:
        raise ProfileError(f"a loader must give at least one batch per epoch; {type(loader).__qualname__} gives none")
    if step is not None and run.batches:
        _synchronize()
        run.intervals.append((time.perf_counter() - last, 0))


def run_trainer(step: Step, batch: Any, images: int, *, seconds: float) -> TimedRun:
    """Train on the same batch for about `seconds`."""
    run, deadlines = TimedRun(batch=batch), _Deadlines(seconds)
    # Waiting for the GPU after every step would leave it idle in between: the step would look slower than it is.
    steps = MIN_BATCHES if _uses_gpu() else 1
    given = 0
    while given == 0 or deadlines.is_warm_up(given + 1, range(1, WARM_UP_BATCHES), time.perf_counter()):
        step(batch)
        _synchronize()
        given += 1
    with metered() as run.cost:
        while not deadlines.is_over(run, time.perf_counter()):
            begun = time.perf_counter()
            for _ in range(steps):
                step(batch)
            _synchronize()
            run.intervals.append((time.perf_counter() - begun, images * steps))
            run.batches += steps
    run.total_images = run.images
    return run


def sleeping_step(seconds: float) -> Step:
    """Return a step that takes `seconds` on average and no CPU time.

    A sleep takes some 0.1 ms longer than requested, so each one is shortened by the excess of the last one.
    """
    excess = 0.0

    def step(_: Any) -> None:
        nonlocal excess
        requested, begun = seconds - excess, time.perf_counter()
        time.sleep(requested)
        excess = min(max(0.0, time.perf_counter() - begun - requested), seconds / 2)

    return step


def _uses_gpu() -> bool:
    """Whether PyTorch was imported and has initialized a GPU; imports nothing."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized()


def _synchronize() -> None:
    if _uses_gpu():
        sys.modules["torch"].cuda.synchronize()


def _warm_up_limits(loader: Any, run: TimedRun) -> range:
    """Return how many batches do not count, at least and at most; never more than half an epoch."""
    limit = run.concurrent if run.epoch_batches is None else run.epoch_batches // 2
    with suppress(TypeError):  # a DataLoader of an iterable dataset has `__len__` and raises
        limit = len(loader) // 2 if isinstance(loader, Sized) else limit
    return range(min(run.concurrent, limit), min(max(WARM_UP_BATCHES, run.concurrent), limit))


def _concurrent_batches(loader: Any) -> int:
    """How many batches may arrive together: Headrace reads several at once, PyTorch's workers make one each."""
    if isinstance(loader, Loader):
        return loader.batches_ahead
    workers = getattr(loader, "num_workers", 0)
    return workers if isinstance(workers, int) and workers > 1 else 1


def count_images(batch: Any, loader: Any = None) -> int:
    """Return how many images a batch has.

    A list may hold images or columns, and the first axis of an array may be that of one image. If the loader has a
    batch size, the answer is the largest length on the way to the first array that does not exceed it. Otherwise the
    outermost list holds columns, unless it holds dicts.
    """
    batch_size, lengths = getattr(loader, "batch_size", None), list(_lengths(batch))
    if isinstance(batch_size, int) and batch_size >= 1:
        return max((length for length in lengths if 0 < length <= batch_size), default=batch_size)
    has_columns = isinstance(batch, list | tuple) and not (batch and isinstance(batch[0], dict))
    return next(iter(lengths[has_columns:]), 0) or 1


def _lengths(batch: Any) -> Iterator[int]:
    """Yield every length on the way to the first array: of lists, and of that array."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        yield from map(int, shape[:1])
    elif isinstance(batch, dict | list | tuple):
        if not isinstance(batch, dict):
            yield len(batch)
        inner = (list(_lengths(column)) for column in _columns(batch))
        yield from next((lengths for lengths in inner if lengths), [])


def _columns(batch: Any) -> Iterator[Any]:
    """Return the fields of a batch without those that a loader adds, such as `_repeat`."""
    if not isinstance(batch, dict):
        return iter(batch)
    return (value for name, value in batch.items() if not str(name).startswith("_"))
