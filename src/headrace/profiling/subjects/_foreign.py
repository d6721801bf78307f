# SPDX-License-Identifier: Apache-2.0
"""A loader that is not ours, from inside as far as it lets us look: PyTorch's DataLoader, and what has its attributes.

Its dataset is asked for samples in this process, one by one, with clocks around the dataset's transform and the
loader's `collate_fn`. Nothing is imported: a loader that has `dataset` and `collate_fn` is taken for one of the kind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from headrace.planning.commands import new_dataset_path
from headrace.profiling._measurements import Rate, RecipeSummary, Source, Stage, StageName
from headrace.profiling.stages._loader_stages import fresh
from headrace.profiling.subjects._course import Course
from headrace.profiling.subjects._notebook import Notebook, describe_machine
from headrace.profiling.subjects._settings import Settings
from headrace.profiling.subjects._whole import add_whole
from headrace.units import rate_text, usable_cores

LEAST_SAMPLES = 4
MOST_SAMPLES = 512


def plan_foreign(course: Course, loader: Iterable[Any], settings: Settings) -> Notebook:
    """Plan the phases: the loader as a whole, and its dataset and `collate_fn` if it has them."""
    kind = type(loader)
    book = Notebook(
        machine=describe_machine(settings.cores, None, settings.emulation.text),
        source=_describe_source(loader, f"{kind.__module__}.{kind.__qualname__}"),
        recipe=summary_of(loader) if is_data_loader(loader) else RecipeSummary(),
    )
    add_whole(course, book, loader, settings)

    def stages(seconds: float) -> str | None:
        found, notes = stages_of(loader, batch_size=book.recipe.batch_size or 1, seconds=seconds)
        book.stages += found
        book.notes += notes
        return ", ".join(f"{stage.name} {rate_text(stage.rates[0].rate)} by one" for stage in found) or None

    if is_data_loader(loader):
        course.add("samples and batches, one by one", 2, stages)
    else:
        book.notes.append("the loader shows nothing of its inside: only the whole was measured")
    return book


def _describe_source(loader: Any, name: str) -> Source:
    """Name the loader, and the folder of its dataset where the dataset says it, as those of torchvision do."""
    root = getattr(_innermost(getattr(loader, "dataset", None)), "root", None)
    path = os.fspath(root) if isinstance(root, str | os.PathLike) and Path(root).is_dir() else None
    target = None if path is None else new_dataset_path(path, is_dataset=False)
    return Source(kind="loader", name=name, path=path, build_to=target, samples=_samples(loader))


def _samples(loader: Any) -> int | None:
    try:
        return len(loader.dataset)
    except (AttributeError, TypeError, NotImplementedError):
        return None


class Stopwatch:
    """Calls a function and notes how long it took: by the clock, and on a core."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._times: list[tuple[float, float]] = []

    def __call__(self, *args: Any, **options: Any) -> Any:
        begun, cpu = time.perf_counter(), time.thread_time()
        try:
            return self._function(*args, **options)
        finally:
            self._times.append((time.perf_counter() - begun, time.thread_time() - cpu))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    @property
    def calls(self) -> int:
        return len(self._times)

    @property
    def seconds(self) -> float:
        """Of a call: the median, as an interruption would weigh more than a large image."""
        return median(seconds for seconds, _ in self._times) if self._times else 0.0

    @property
    def cpu_seconds(self) -> float:
        return median(cpu for _, cpu in self._times) if self._times else 0.0


def is_data_loader(loader: Any) -> bool:
    """Whether it has what PyTorch's DataLoader has."""
    return all(hasattr(loader, name) for name in ("dataset", "collate_fn", "num_workers"))


def summary_of(loader: Any) -> RecipeSummary:
    """What the loader says of itself."""
    workers = getattr(loader, "num_workers", None)
    size = getattr(loader, "batch_size", None)
    transforms = _transforms_of(getattr(loader, "dataset", None))
    return RecipeSummary(
        batch_size=size if isinstance(size, int) else None,
        workers=workers if isinstance(workers, int) else None,
        transforms=tuple(_described(value) for _, _, value in transforms[:1]),
    )


def stages_of(loader: Any, *, batch_size: int, seconds: float) -> tuple[list[Stage], list[str]]:
    """Measure what makes samples and what makes batches of them; and say what could not be seen."""
    workers = loader.num_workers
    fetched = _fetch(loader.dataset, seconds * 0.7)
    if fetched is None:
        return [], ["the loader's dataset gives no single samples: its stages could not be told apart"]
    whole, transform = fetched.whole, fetched.transform
    stages = []
    # Some datasets transform more than one thing in a sample.
    often = transform.calls / whole.calls if transform else 0.0
    inner, inner_cpu = (transform.seconds * often, transform.cpu_seconds * often) if transform else (0.0, 0.0)
    # What a clock costs must not make a stage of nothing negative.
    rest, rest_cpu = max(0.0, whole.seconds - inner), max(0.0, whole.cpu_seconds - inner_cpu)
    stages.append(_stage("sample", workers, rest, rest_cpu, type(fetched.innermost).__name__))
    if often:
        stages.append(_stage("transform", workers, inner, inner_cpu, fetched.transform_name))
    notes = []
    if callable(loader.collate_fn):
        collated = _collate(loader.collate_fn, fetched.samples, batch_size, seconds * 0.3)
        if collated is None:
            notes.append("the loader's collate_fn could not be called by itself")
        else:
            name = getattr(loader.collate_fn, "__qualname__", type(loader.collate_fn).__name__)
            each, each_cpu = collated.seconds / batch_size, collated.cpu_seconds / batch_size
            stages.append(_stage("batch", workers, each, each_cpu, name))
    return stages, notes


@dataclass(slots=True)
class _Fetched:
    samples: list[Any]
    whole: Stopwatch
    transform: Stopwatch | None
    transform_name: str | None
    innermost: Any


def _fetch(dataset: Any, seconds: float) -> _Fetched | None:
    """Ask a dataset for samples from all over it; None if it has none to give one by one."""
    try:
        length = len(dataset)
        dataset[0]  # opens what it opens once
    except Exception:  # noqa: BLE001 - whatever a stranger's dataset raises
        return None
    step = max(1, length // MOST_SAMPLES)
    samples: list[Any] = []
    with _timed_transform(dataset) as clocks:
        whole = Stopwatch(dataset.__getitem__)
        end = time.perf_counter() + seconds
        while len(samples) < MOST_SAMPLES and (len(samples) < LEAST_SAMPLES or time.perf_counter() < end):
            samples.append(whole(len(samples) * step % length))
    # Of two that call each other the outer one has the time of both.
    transform, name = max(clocks, key=lambda pair: pair[0].seconds, default=(None, None))
    return _Fetched(samples, whole, transform, name, _innermost(dataset))


@contextmanager
def _timed_transform(dataset: Any) -> Iterator[list[tuple[Stopwatch, str]]]:
    """Put clocks around the dataset's own transforms, for a while."""
    clocks: list[tuple[Stopwatch, str]] = []
    with ExitStack() as put_back:
        for owner, attribute, value in _transforms_of(dataset):
            clock = Stopwatch(value)
            try:
                setattr(owner, attribute, clock)
            except Exception:  # noqa: BLE001, S112 - it does not let us: then its time is part of the sample's
                continue
            put_back.callback(setattr, owner, attribute, value)
            clocks.append((clock, _described(value)))
        yield clocks


def _transforms_of(dataset: Any) -> list[tuple[Any, str, Any]]:
    """Where a dataset keeps the functions that it puts images through: owner, attribute, function.

    Datasets of torchvision have both attributes and call either.
    """
    inner = _innermost(dataset)
    found = [(inner, name, getattr(inner, name, None)) for name in ("transform", "transforms")]
    return [entry for entry in found if callable(entry[2])]


def _innermost(dataset: Any) -> Any:
    """The dataset under the views of it, such as PyTorch's Subset."""
    for _ in range(8):
        inner = getattr(dataset, "dataset", None)
        if inner is None:
            break
        dataset = inner
    return dataset


def _collate(
    function: Callable[[list[Any]], Any], samples: list[Any], batch_size: int, seconds: float
) -> Stopwatch | None:
    batch = [samples[number % len(samples)] for number in range(batch_size)]
    clock = Stopwatch(function)
    try:
        function(list(map(fresh, batch)))
        end = time.perf_counter() + seconds
        while clock.calls == 0 or time.perf_counter() < end:
            clock(list(map(fresh, batch)))
    except Exception:  # noqa: BLE001 - whatever a stranger's function raises
        return None
    return clock


def _stage(name: StageName, workers: int, seconds: float, cpu: float, detail: str | None) -> Stage:
    """Without workers the trainer's own thread does it. With them, each does as much, as far as there are cores."""
    each = max(seconds, 1e-9)
    rates = [Rate(cores=1, rate=1 / each)]
    if workers > 1:
        rates.append(Rate(cores=workers, rate=min(workers / each, usable_cores() / max(cpu, 1e-9))))
    return Stage(name=name, place="cores" if workers else "trainer", rates=tuple(rates), cpu_seconds=cpu, detail=detail)


def _described(function: Any) -> str:
    """Name a function; of a composition, name its parts."""
    parts = getattr(function, "transforms", None)
    if isinstance(parts, list | tuple):
        return ", ".join(_described(part) for part in parts)
    return getattr(function, "__qualname__", None) or type(function).__name__
