# SPDX-License-Identifier: Apache-2.0
"""The profile of a loader that is not Headrace's: PyTorch's DataLoader and similar ones, or any iterable of batches.

Samples are requested from its dataset in this process, one by one, with stopwatches around the dataset's transform and
the loader's `collate_fn`. Nothing is imported: an object with the attributes of a DataLoader is treated as one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path
from typing import Any

from headrace.measuring import Timing, timed
from headrace.planning.commands import new_dataset_path
from headrace.profiling._measurements import Measurements, ProfiledSource, Rate, RecipeSummary, Stage, StageName
from headrace.profiling.stages._loader_stages import function_name
from headrace.profiling.subjects._phases import training_phases
from headrace.profiling.subjects._schedule import Findings, Phase, Schedule
from headrace.profiling.subjects._settings import Settings, describe_machine
from headrace.units import rate_text, usable_cores

MIN_SAMPLES, MAX_SAMPLES = 4, 512


def profile_foreign(loader: Iterable[Any], settings: Settings, schedule: Schedule) -> Measurements:
    """Measure the loader, and its dataset and `collate_fn` if it has them."""
    opaque = "the loader does not expose a dataset: only the loader as a whole was measured"
    is_data_loader = all(hasattr(loader, name) for name in ("dataset", "collate_fn", "num_workers"))
    start = Measurements(
        machine=describe_machine(settings, None),
        source=_describe_source(loader),
        recipe=_describe_recipe(loader) if is_data_loader else RecipeSummary(),
        notes=() if is_data_loader else (opaque,),
    )

    def stages(found: Findings, seconds: float) -> Findings:
        batch_size = found.measurements.recipe.batch_size or 1
        measured, notes = _measure_stages(loader, batch_size=batch_size, seconds=seconds)
        lines = [f"{stage.name} {rate_text(stage.rates[0].rate)} with one worker" for stage in measured]
        return found.add(", ".join(lines) or None, stages=measured, notes=notes)

    phases = training_phases(loader, settings, schedule)
    if is_data_loader:
        phases.append(Phase("samples and batches, one by one", 2, stages))
    return schedule.run(phases, start)


def _describe_source(loader: Any) -> ProfiledSource:
    """Name the loader, and the folder of its dataset if the dataset has a `root`, as torchvision's do."""
    root = getattr(_innermost(getattr(loader, "dataset", None)), "root", None)
    path = os.fspath(root) if isinstance(root, str | os.PathLike) and Path(root).is_dir() else None
    try:
        samples = len(loader.dataset)
    except (AttributeError, TypeError, NotImplementedError):
        samples = None
    return ProfiledSource(
        kind="loader",
        name=f"{type(loader).__module__}.{type(loader).__qualname__}",
        path=path,
        build_to=None if path is None else new_dataset_path(path, is_dataset=False),
        samples=samples,
    )


def _describe_recipe(loader: Any) -> RecipeSummary:
    workers, batch_size = loader.num_workers, getattr(loader, "batch_size", None)
    return RecipeSummary(
        batch_size=batch_size if isinstance(batch_size, int) else None,
        workers=workers if isinstance(workers, int) else None,
        transforms=tuple(function_name(value) for _, _, value in _transforms_of(loader.dataset)[:1]),
    )


class _CallTimer:
    """Calls a function, and sums the elapsed and the CPU time of the calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.seconds = self.cpu_seconds = 0.0

    def __call__(self, *args: Any, **options: Any) -> Any:
        begun, cpu = time.perf_counter(), time.thread_time()
        try:
            return self._function(*args, **options)
        finally:
            self.seconds += time.perf_counter() - begun
            self.cpu_seconds += time.thread_time() - cpu

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def _measure_stages(loader: Any, *, batch_size: int, seconds: float) -> tuple[list[Stage], list[str]]:
    """Measure what makes samples and what makes batches of them; also return notes about what failed."""
    dataset, workers, collate = loader.dataset, loader.num_workers, loader.collate_fn
    fetched = _fetch(dataset, seconds * 0.7)
    if fetched is None:
        return [], ["the loader's dataset does not return single samples: its stages were not measured"]
    samples, total, transform, name = fetched
    inner, inner_cpu = (transform.seconds, transform.cpu_seconds) if transform else (0.0, 0.0)
    # Timers take time themselves, so the difference may be slightly negative.
    rest, rest_cpu = max(0.0, total.seconds - inner), max(0.0, total.cpu_seconds - inner_cpu)
    count = len(samples)
    stages = [_stage("sample", workers, rest / count, rest_cpu / count, type(_innermost(dataset)).__name__)]
    if inner:
        stages.append(_stage("transform", workers, inner / count, inner_cpu / count, name))
    if not callable(collate):
        return stages, []
    timing = _time_collate(collate, samples, batch_size, seconds * 0.3)
    if timing is None:
        return stages, ["the loader's collate_fn could not be called alone"]
    each, each_cpu = 1 / timing.rate / batch_size, timing.cpu_seconds / batch_size
    return [*stages, _stage("batch", workers, each, each_cpu, function_name(collate))], []


def _fetch(dataset: Any, seconds: float) -> tuple[list[Any], _CallTimer, _CallTimer | None, str | None] | None:
    """Request samples from all parts of a dataset; None if it does not return single ones.

    Returns the samples, the timer of `dataset[i]`, and the timer and name of its transform.
    """
    try:
        length = len(dataset)
        dataset[0]  # opens files, which should not count
    except Exception:  # noqa: BLE001 - a user's dataset may raise anything
        return None
    step = max(1, length // MAX_SAMPLES)
    samples: list[Any] = []
    with _timed_transforms(dataset) as timers:
        total = _CallTimer(dataset.__getitem__)
        end = time.perf_counter() + seconds
        while len(samples) < MAX_SAMPLES and (len(samples) < MIN_SAMPLES or time.perf_counter() < end):
            samples.append(total(len(samples) * step % length))
    # If one transform calls the other, the outer one has the time of both.
    transform, name = max(timers, key=lambda pair: pair[0].seconds, default=(None, None))
    return samples, total, transform, name


@contextmanager
def _timed_transforms(dataset: Any) -> Iterator[list[tuple[_CallTimer, str]]]:
    """Temporarily replace the dataset's transforms by timers that call them."""
    timers: list[tuple[_CallTimer, str]] = []
    with ExitStack() as restore:
        for owner, attribute, value in _transforms_of(dataset):
            timer = _CallTimer(value)
            try:
                setattr(owner, attribute, timer)
            except Exception:  # noqa: BLE001, S112 - read-only attribute: its time counts as part of the sample
                continue
            restore.callback(setattr, owner, attribute, value)
            timers.append((timer, function_name(value)))
        yield timers


def _transforms_of(dataset: Any) -> list[tuple[Any, str, Any]]:
    """Return the dataset's transforms as (owner, attribute, function); torchvision's datasets have both."""
    inner = _innermost(dataset)
    found = [(inner, name, getattr(inner, name, None)) for name in ("transform", "transforms")]
    return [entry for entry in found if callable(entry[2])]


def _innermost(dataset: Any) -> Any:
    """Return the dataset inside of wrappers such as PyTorch's Subset."""
    for _ in range(8):
        inner = getattr(dataset, "dataset", None)
        if inner is None:
            break
        dataset = inner
    return dataset


def _time_collate(
    function: Callable[[list[Any]], Any], samples: list[Any], batch_size: int, seconds: float
) -> Timing | None:
    """Measure calls with a batch; None if one fails. The function may change its samples: each call gets copies."""
    batch = [samples[number % len(samples)] for number in range(batch_size)]

    def call(_: int) -> None:
        function([copy(sample) if isinstance(sample, dict | list) else sample for sample in batch])

    try:
        return timed(call, 1, seconds=seconds)
    except Exception:  # noqa: BLE001 - a user's function may raise anything
        return None


def _stage(name: StageName, workers: int, seconds: float, cpu: float, detail: str | None) -> Stage:
    """Make a stage of the trainer's thread, or of workers that each do the same as far as there are cores."""
    each = max(seconds, 1e-9)
    rates = [Rate(cores=1, rate=1 / each)]
    if workers > 1:
        rates.append(Rate(cores=workers, rate=min(workers / each, usable_cores() / max(cpu, 1e-9))))
    return Stage(name=name, place="cores" if workers else "trainer", rates=tuple(rates), cpu_seconds=cpu, detail=detail)
