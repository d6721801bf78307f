# SPDX-License-Identifier: Apache-2.0
"""Calibration: a sample of the user's own images, stored in every format and loaded as it will be, and what that took.

Nothing is estimated from the format's name. Each format gets a small dataset, and the loader runs over it with the
recipe's transforms and batch size: once with one core at work, once with all. Formats take turns, round after round,
until the best turns of each agree, and those count: a cost is of the machine as it is when it is left alone.
"""

from __future__ import annotations

import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from headrace import formats as image_formats
from headrace.building import build
from headrace.errors import UnsupportedImage
from headrace.measuring import MAX_OTHER_LOAD, SourceSample, cpu_name, take_sample
from headrace.planning._cost import Calibration, Cost
from headrace.planning._options import candidates, describe
from headrace.planning._options import loader_options as make_options
from headrace.planning._turns import Run, Store, best
from headrace.transforms import Recipe
from headrace.units import usable_cores

FORMATS = ("hri:dense", "hri:fast", "raw")
"""What is tried beside the source's own format; `png` and `webp` can be asked for."""
SAMPLES = 96
QUICK_SAMPLES = 24

ProgressHook: TypeAlias = Callable[[int, int, str], None]
"""Called with the steps done, all steps, and what comes next."""


@dataclass(frozen=True, slots=True)
class _Effort:
    """How long to measure."""

    rounds: int
    seconds: float
    """Of a turn."""
    patience: float
    """Seconds that turns may be taken again, until the best of each run agree."""


_THOROUGH, _QUICK = _Effort(6, 0.25, 60.0), _Effort(2, 0.15, 0.0)
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
    options = make_options(transform, recipe, batch_size) | {"direct_io": direct} | dict(loader_options or {})
    n = samples or (QUICK_SAMPLES if quick else SAMPLES)
    crowd = cores or usable_cores()
    sample = take_sample(source, n)
    names = candidates(sample.own_format, formats, FORMATS)
    steps = _Steps(progress)
    with tempfile.TemporaryDirectory(prefix="headrace-plan-", dir=workdir) as folder:
        effort = _QUICK if quick else _THOROUGH
        steps.total = len(names) + (2 if crowd > 1 else 1) * len(names) * (1 + effort.rounds)
        stores = [_store(sample, name, Path(folder), steps) for name in names]
        numbers = (1, crowd) if crowd > 1 else (1,)
        runs = [Run(store, options, number) for number in numbers for store in stores]
        try:
            _measure(runs, steps, effort)
        finally:
            for run in runs:
                run.close()
        costs = tuple(_cost(store, [run for run in runs if run.store is store], crowd) for store in stores)
        consumer = statistics.median(turn.consumer for run in runs for turn in best(run.turns))
        turns = [turn for run in runs for turn in run.turns]
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
            "cpu": cpu_name() or platform.processor() or platform.machine(),
            "platform": platform.platform(),
            "direct": direct,
            "quick": quick,
            "left_out": len(sample.left_out),
            "left_out_such_as": sample.left_out[0] if sample.left_out else None,
            "turns": len(turns),
            "disturbed_turns": sum(turn.others > MAX_OTHER_LOAD for turn in turns),
            "settled": all(run.settled for run in runs),
        },
    )


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


def _measure(runs: Sequence[Run], steps: _Steps, effort: _Effort) -> None:
    for run in runs:
        steps.next(f"loading {_name(run)}")
        run.prepare(effort.seconds)
    for _ in range(effort.rounds):
        for run in runs:
            steps.next(f"measuring {_name(run)}")
            run.measure()
    last = time.monotonic() + effort.patience
    while time.monotonic() < last and (wanting := [run for run in runs if not run.settled]):
        for run in wanting:
            steps.next(f"measuring {_name(run)} again: the machine is not always as fast")
            run.measure()


def _name(run: Run) -> str:
    return f"{run.store.format}, {run.cores} core{'s' if run.cores > 1 else ''}"


def _cost(store: Store, runs: Sequence[Run], crowd: int) -> Cost:
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


def _taken(run: Run) -> float:
    """Core seconds that a sample takes away: the CPU time, and what the cores idle between while they are in demand."""
    return statistics.median(turn.cpu for turn in best(run.turns)) / max(run.use, _LEAST_USE)


def _store(sample: SourceSample, name: str, folder: Path, steps: _Steps) -> Store:
    steps.next(f"storing {sample.sampled} images as {name}")
    path = folder / name.replace(":", "-")
    begun = time.process_time()
    report = build(sample.source, path, format=name, workers=1, on_error="skip")
    seconds = time.process_time() - begun
    for skipped in report.skipped:
        raise UnsupportedImage(f"{name} cannot hold {skipped.key}: {skipped.reason}; leave {name} out of the formats")
    return Store(name, path, report.n_bytes / report.samples, seconds / report.samples)
