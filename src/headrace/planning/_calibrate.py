# SPDX-License-Identifier: Apache-2.0
"""Calibration: store a sample of the user's images in each format, load it, and measure what that costs.

Each format gets a small temporary dataset, and the loader runs over it with the user's transforms and batch size, on
one core and on all. Repeats of all formats are interleaved, so that a slow phase of the machine meets all of them.
"""

from __future__ import annotations

import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from headrace import formats as image_formats
from headrace.building import build
from headrace.errors import UnsupportedImage
from headrace.measuring import SourceSample, cpu_name, take_sample
from headrace.planning._cost import Calibration, Cost
from headrace.planning._options import RecipeSource, describe, formats_to_measure, loader_arguments
from headrace.planning._runs import CalibrationRun
from headrace.units import cores_text, usable_cores

SAMPLES, QUICK_SAMPLES = 96, 24
_REPEATS, _QUICK_REPEATS = 6, 2
_SECONDS, _QUICK_SECONDS = 0.4, 0.15
"""Duration of a repeat."""

ProgressHook: TypeAlias = Callable[[int, int, str], None]
"""Called with the number of finished steps, the number of all steps, and a description of the next one."""


def calibrate(
    source: Any,
    *,
    transform: Any = None,
    recipe: RecipeSource | None = None,
    batch_size: int | None = None,
    formats: Sequence[str] | None = None,
    samples: int | None = None,
    cores: int | None = None,
    quick: bool = False,
    loader_options: Mapping[str, Any] | None = None,
    workdir: str | PathLike[str] | None = None,
    progress: ProgressHook | None = None,
) -> Calibration:
    """Measure the cost of a sample in each format. Takes about half a minute.

    Arguments that are not explained here are those of `headrace.plan`.

    Args:
        formats: Formats to measure. Default: the source's own, `hri:dense`, `hri:fast` and `raw`.
        samples: Number of images to measure with (default 96, or 24 if quick).
        cores: Number of cores for the measurement on many cores. Default: all that this process may use.
        loader_options: More arguments for `Loader`, such as `direct_io`.

    """
    options = {"direct_io": False, **loader_arguments(transform, recipe, batch_size), **(loader_options or {})}
    max_cores = cores or usable_cores()
    sample = take_sample(source, samples or (QUICK_SAMPLES if quick else SAMPLES))
    names = formats_to_measure(sample.own_format, formats)
    core_counts = sorted({1, max_cores})
    repeats, seconds = (_QUICK_REPEATS, _QUICK_SECONDS) if quick else (_REPEATS, _SECONDS)
    total, done = len(names) * (1 + len(core_counts) * (1 + repeats)), count()

    def announce(description: str) -> None:
        if progress is not None:
            progress(next(done), total, description)

    with tempfile.TemporaryDirectory(prefix="headrace-plan-", dir=workdir) as folder, ExitStack() as stack:
        stored = [_store(sample, name, Path(folder), announce) for name in names]
        runs = [CalibrationRun(each.format, each.path, options, number) for number in core_counts for each in stored]
        for run in runs:
            stack.callback(run.close)
            announce(f"loading {run.format}, {cores_text(run.cores)}")
            run.prepare(seconds)
        for _ in range(repeats):
            for run in runs:
                announce(f"measuring {run.format}, {cores_text(run.cores)}")
                run.measure()
        return Calibration(
            costs=tuple(_cost(each, [run for run in runs if run.format == each.format]) for each in stored),
            images=sample.images,
            sampled=sample.sampled,
            batch_size=options["batch_size"],
            cores=max_cores,
            # The start of an epoch adds to it, so the run with the longest epochs counts.
            consumer_seconds=min(run.consumer_seconds for run in runs),
            source_format=sample.own_format or "mixed",
            recipe=describe(options),
            provenance={
                "cpu": cpu_name() or platform.processor() or platform.machine(),
                "platform": platform.platform(),
                "quick": quick,
                "repeats": repeats,
                "spread": max(run.spread for run in runs),
                "left_out": len(sample.skipped),
                "left_out_such_as": sample.skipped[0] if sample.skipped else None,
            },
        )


@dataclass(frozen=True, slots=True)
class _StoredSample:
    """The sample as a dataset in one format."""

    format: str
    path: Path
    stored_bytes: float
    encode_seconds: float


def _store(sample: SourceSample, name: str, folder: Path, announce: Callable[[str], None]) -> _StoredSample:
    announce(f"storing {sample.sampled} images as {name}")
    path = folder / name.replace(":", "-")
    started = time.process_time()
    report = build(sample.source, path, format=name, workers=1, on_error="skip")
    seconds = time.process_time() - started
    for skipped in report.skipped:
        raise UnsupportedImage(f"{name} cannot store {skipped.key}: {skipped.reason}; omit {name} from the formats")
    return _StoredSample(name, path, report.n_bytes / report.samples, seconds / report.samples)


def _cost(stored: _StoredSample, runs: Sequence[CalibrationRun]) -> Cost:
    by_cores = {run.cores: run.core_seconds for run in runs}
    return Cost(
        format=stored.format,
        read_bytes=statistics.mean(run.read_bytes for run in runs),
        cpu_seconds=by_cores[1],
        cpu_seconds_crowded=by_cores[max(by_cores)] if len(by_cores) > 1 else None,
        stored_bytes=stored.stored_bytes,
        encode_seconds=stored.encode_seconds,
        lossless=image_formats.parse(stored.format)[0].lossless,
    )
