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
from headrace.documents import load_json
from headrace.errors import UnsupportedImage
from headrace.measuring import SourceSample, cpu_name, take_sample
from headrace.planning._model import Calibration, Cost
from headrace.planning._runs import CalibrationRun
from headrace.transforms import HorizontalFlip, Normalize, RandomResizedCrop, Recipe, Transform
from headrace.transforms import compile as compile_transforms
from headrace.units import cores_text, usable_cores

RecipeSource: TypeAlias = Recipe | Mapping[str, Any] | str | PathLike[str]
"""A recipe, its JSON object, or the path of its JSON file."""

USUAL_CROP, USUAL_BATCH = 224, 64
FORMATS = ("hri:dense", "hri:fast", "raw")
"""Formats that are measured beside the source's own, unless others are named."""

# The usual values for photographs; they do not change the speed.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_RECIPE_OPTIONS = ("dtype", "layout", "color", "min_area", "min_visibility", "approximate_jpeg")
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
    crop: int | None = None,
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
    # Batches are NumPy arrays: a calibration needs no framework.
    options = {"direct_io": False, "output": "numpy", **batch_options(recipe, transform, crop, batch_size)}
    options |= loader_options or {}
    max_cores = cores or usable_cores()
    sample = take_sample(source, samples or (QUICK_SAMPLES if quick else SAMPLES))
    names = _formats_to_measure(sample.own_format, formats)
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
            # The start of an epoch adds to it, and least to the run with the longest epochs.
            consumer_seconds=min(run.consumer_seconds for run in runs),
            source_format=sample.own_format or "mixed",
            recipe=_describe(options),
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


def usual_transform(crop: int | None = None) -> list[Transform]:
    """Return the usual transforms for photographs: a random crop (224 pixels), a flip, and normalization."""
    return [RandomResizedCrop(crop or USUAL_CROP), HorizontalFlip(), Normalize(_MEAN, _STD)]


def batch_options(
    recipe: RecipeSource | None = None, transform: Any = None, crop: int | None = None, batch_size: int | None = None
) -> dict[str, Any]:
    """Return arguments of `Loader`: those of a recipe, or a transform (default: the usual one) and a batch size."""
    for name, value in (("crop", crop), ("batch_size", batch_size)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be >= 1; got {value}")
    if recipe is None:
        if transform is not None and crop is not None:
            raise ValueError("crop is a part of the default transform: give crop or transform, not both")
        chosen = usual_transform(crop) if transform is None else transform
        return {"transform": chosen, "batch_size": batch_size or USUAL_BATCH}
    if transform is not None or crop is not None:
        raise ValueError("a recipe has its own transforms: omit crop and transform")
    read = recipe if isinstance(recipe, Recipe) else Recipe.from_json(load_json(recipe, "recipe"))
    options = {name: getattr(read, name) for name in _RECIPE_OPTIONS}
    options |= {"transform": list(read.transforms), "fields": list(read.fields)}
    return {**options, "batch_size": batch_size or read.batch_size}


def _describe(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return loader arguments as JSON values; functions are given by name."""
    plain = {name: value for name, value in options.items() if isinstance(value, bool | int | float | str | None)}
    return {**plain, "transforms": compile_transforms(options["transform"]).to_json(callables=True)}


def _formats_to_measure(own: str | None, named: Sequence[str] | None) -> list[str]:
    """Return the formats to measure, the source's own first; a lossy format must be the source's own."""
    chosen = list(dict.fromkeys(([own] if own else []) + list(FORMATS))) if named is None else list(named)
    if not chosen:
        raise ValueError("formats must name at least one format")
    for name in chosen:
        if not image_formats.parse(name)[0].lossless and name != own:
            raise ValueError(f"formats must be lossless, or the source's own; got {name}, which would lose pixels")
    return chosen
