# SPDX-License-Identifier: Apache-2.0
"""Trainer alone, loader alone, both together: what any loader can be asked, also one that is not ours.

The trainer alone runs on one batch that was loaded before: its ceiling, and what a perfect loader would give. The
first batches of an epoch are not counted: workers start, and some batches were made ahead.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeAlias

from headrace.errors import ProfileError
from headrace.loader import Loader
from headrace.measuring import ResourceUse, metered
from headrace.profiling.stages._batches import count_images

Step: TypeAlias = Callable[[Any], Any]

# Steps and batches that are done before the clock starts, if there is time; and how many after it are enough.
WARM_BATCHES = 2
LEAST_BATCHES = 4
# That a short run may last longer to have as many.
MORE_SECONDS = 1.0
# A long run is looked at in parts.
PARTS = 7
# Fewer do not tell how far repeats differ.
LEAST_PARTS = 3


@dataclass(slots=True)
class Run:
    """What was seen of a loader or a trainer in some time."""

    at_once: int = 1
    """Batches that come together, since as many workers make one each."""
    marks: list[tuple[float, int]] = field(default_factory=list)
    """Seconds and images from one look at the clock to the next."""
    batches: int = 0
    thread_seconds: float = 0.0
    """CPU time of the thread that iterates."""
    cost: ResourceUse = field(default_factory=ResourceUse)
    total_images: int = 0
    """Also those of the first batches, which `cost` counts too."""
    batch: Any = None
    """The largest one: the last of an epoch may be smaller."""
    batch_images: int = 0
    epoch_batches: int | None = None
    """Of an epoch that was seen to its end, for loaders that have no length."""

    def note(self, batch: Any, images: int) -> int:
        """Count a batch's images, and keep it if it is the largest so far."""
        if images > self.batch_images:
            self.batch, self.batch_images = batch, images
        self.total_images += images
        return images

    @property
    def images(self) -> int:
        return sum(images for _, images in self.marks)

    @property
    def seconds(self) -> float:
        return sum(seconds for seconds, _ in self.marks)

    @property
    def rate(self) -> float | None:
        """ImageSample a second: of a long run the median of its parts, so that one interruption does not count."""
        return median(self._rates) if self.images else None

    @property
    def spread(self) -> float | None:
        """Half the range of the parts' rates over their median; of five or more, without the lowest and highest."""
        rates = sorted(self._rates) if self.images else []
        if len(rates) < LEAST_PARTS:
            return None
        inner = rates[1:-1] if len(rates) >= LEAST_PARTS + 2 else rates
        return (inner[-1] - inner[0]) / 2 / median(rates)

    @property
    def _rates(self) -> list[float]:
        size = max(LEAST_BATCHES, 2 * self.at_once, -(-len(self.marks) // PARTS))
        parts = [self.marks[start : start + size] for start in range(0, len(self.marks), size)]
        whole = [part for part in parts if len(part) == size] if len(parts) > 2 else [self.marks]
        return [sum(images for _, images in part) / max(sum(seconds for seconds, _ in part), 1e-9) for part in whole]

    @property
    def cores(self) -> float | None:
        """Cores that were busy."""
        return self.cost.cpu_seconds / self.cost.seconds if self.cost.seconds > 0 else None


class _Patience:
    """Says when the first batches are over, and when what was seen is enough: slow batches must not take for ever."""

    def __init__(self, seconds: float) -> None:
        now = time.perf_counter()
        self._warm_until, self._end = now + seconds / 3, now + seconds
        self._latest = now + max(1.25 * seconds, seconds + MORE_SECONDS)

    def warms(self, given: int, warm: range, now: float) -> bool:
        """Whether a batch is one of the first: `warm` says how many of them may be, at least and at most."""
        return given <= (warm.stop if now < self._warm_until else warm.start)

    def is_over(self, run: Run, now: float) -> bool:
        enough = run.batches >= max(LEAST_BATCHES, 2 * run.at_once)
        return run.batches > 0 and now >= (self._end if enough else self._latest)


def run_loader(loader: Iterable[Any], *, seconds: float, step: Step | None = None) -> Run:
    """Iterate for about so long, epoch after epoch, and train on each batch if there is a step."""
    run, patience = Run(at_once=_at_once(loader)), _Patience(seconds)
    with metered() as run.cost:
        while not patience.is_over(run, time.perf_counter()):
            _run_epoch(loader, run, step, patience)
    return run


def _run_epoch(loader: Iterable[Any], run: Run, step: Step | None, patience: _Patience) -> None:
    """Go through an epoch, or until it is enough."""
    warm, given = _warm_batches(loader, run.epoch_batches), 0
    iterator = iter(loader)
    last, thread = time.perf_counter(), time.thread_time()
    try:
        for batch in iterator:
            if step is not None:
                step(batch)
            given += 1
            is_first = patience.warms(given, warm, time.perf_counter())
            if is_first and step is not None:
                synchronise()  # so that what follows is not charged with it
            now, cpu = time.perf_counter(), time.thread_time()
            images = run.note(batch, count_images(batch, loader))
            if not is_first:
                run.marks.append((now - last, images))
                run.batches += 1
                run.thread_seconds += cpu - thread
            last, thread = now, cpu
            if patience.is_over(run, now):
                run.cost.sample_memory()  # while the loader's processes are there
                break
        else:
            run.epoch_batches = given
    finally:
        _close(iterator)
    if given == 0:
        raise ProfileError(f"{_name(loader)} gives no batches: there is nothing to measure")
    if step is not None and run.batches:
        synchronise()
        run.marks.append((time.perf_counter() - last, 0))


def run_trainer(step: Step, batch: Any, images: int, *, seconds: float) -> Run:
    """Train on the same batch for about so long."""
    run, patience = Run(batch=batch), _Patience(seconds)
    # Waiting for an accelerator after every step would make it idle in between, and show more than a step.
    steps = LEAST_BATCHES if uses_accelerator() else 1
    given = 0
    while given == 0 or patience.warms(given + 1, range(1, WARM_BATCHES), time.perf_counter()):
        step(batch)
        synchronise()
        given += 1
    with metered() as run.cost:
        while not patience.is_over(run, time.perf_counter()):
            begun = time.perf_counter()
            for _ in range(steps):
                step(batch)
            synchronise()
            run.marks.append((time.perf_counter() - begun, images * steps))
            run.batches += steps
    run.total_images = run.images
    return run


def sleeping_step(seconds: float) -> Step:
    """A trainer that takes this long per batch on average and no CPU, as the user states it.

    A sleep lasts some 0.1 ms longer than asked for. Each one is shortened by what the last one took too long, so that
    the rate is the stated one.
    """
    late = 0.0

    def step(_: Any) -> None:
        nonlocal late
        asked, begun = seconds - late, time.perf_counter()
        time.sleep(asked)
        late = min(max(0.0, time.perf_counter() - begun - asked), seconds / 2)

    return step


def uses_accelerator() -> bool:
    """Whether PyTorch is there and has begun to use one; nothing is imported to find out."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized()


def synchronise() -> None:
    """Wait for the accelerator, if one is used."""
    if uses_accelerator():
        sys.modules["torch"].cuda.synchronize()


def _warm_batches(loader: Any, epoch_batches: int | None) -> range:
    """How many batches do not count, at least and at most: as many as are made at once, never most of an epoch."""
    at_once = _at_once(loader)
    most = at_once if epoch_batches is None else epoch_batches // 2
    with suppress(TypeError):  # a DataLoader may have no length, for all that it has the method
        most = len(loader) // 2 if isinstance(loader, Sized) else most
    return range(min(at_once, most), min(max(WARM_BATCHES, at_once), most))


def _at_once(loader: Any) -> int:
    """How many batches may come together: ours are read side by side, PyTorch's workers make one each."""
    if isinstance(loader, Loader):
        return loader.batches_ahead
    workers = getattr(loader, "num_workers", 0)
    return workers if isinstance(workers, int) and workers > 1 else 1


def _close(iterator: Any) -> None:
    close = getattr(iterator, "close", None)
    if callable(close):
        close()


def _name(loader: Any) -> str:
    return f"a {type(loader).__module__}.{type(loader).__qualname__}"
