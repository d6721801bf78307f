# SPDX-License-Identifier: Apache-2.0
"""What would make a run faster, ranked by the rate that the model predicts.

Every remedy is the model of the run with one change, so its prediction differs from today's rate by that change alone.
None exceeds the trainer's ceiling.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

from headrace.planning.commands import command_line
from headrace.profiling._measurements import Measurements
from headrace.profiling.judging import _remedies_stored as stored
from headrace.profiling.judging._model import Load, RunModel, rates_of, stage_model
from headrace.profiling.judging._reconcile import trainer_loads
from headrace.profiling.judging._remedy import (
    MIN_GAIN,
    Remedy,
    build_command,
    is_foreign,
    make_remedy,
    run_options,
    source_path,
)
from headrace.units import bytes_text, rate_text

MAX_CORES_FACTOR = 64
"""No prediction is made for more than this many times the cores of this machine."""


def find_remedies(measurements: Measurements, now: RunModel) -> tuple[Remedy, ...]:
    """Rank what would help: predictions by falling rate, then upper bounds.

    A gain smaller than the uncertainty is omitted, and rates that differ by less have the same rank.
    """
    uncertainty = rates_of(measurements).uncertainty or 0.0
    min_gain = max(MIN_GAIN, 1 + uncertainty)
    found = [remedy for find in _FINDERS for remedy in find(measurements, now)]
    useful = [remedy for remedy in found if math.isfinite(remedy.rate) and remedy.gain >= min_gain]
    bottleneck = now.bottleneck
    if bottleneck is not None and bottleneck.stage in _STORAGE_STAGES and any(r.kind in _STORAGE_KINDS for r in useful):
        useful = [remedy for remedy in useful if remedy.kind != "stage"]
    return _ranked(sorted(useful, key=lambda remedy: (remedy.at_most, -remedy.rate)), uncertainty)


def _ranked(remedies: list[Remedy], uncertainty: float) -> tuple[Remedy, ...]:
    """Give the same rank to remedies whose rates differ by less than the uncertainty."""
    ranked: list[Remedy] = []
    first: Remedy | None = None  # of the current rank
    for position, remedy in enumerate(remedies, 1):
        if first is None or remedy.at_most != first.at_most or remedy.rate < first.rate * (1 - uncertainty):
            first = replace(remedy, rank=position)
        ranked.append(replace(remedy, rank=first.rank))
    return tuple(ranked)


def next_step(measurements: Measurements, remedies: tuple[Remedy, ...], report: str | None) -> str | None:
    """Return the next command or change to the code; None if there is nothing to do.

    `report` is the folder of the saved report, if any: `headrace plan` then measures nothing again.
    """
    if measurements.interrupted:
        return "run the same command again, to its end"
    if not remedies:
        return None
    first, path = remedies[0], source_path(measurements)
    options = run_options(measurements)
    if first.kind in ("format", "plan") and path is not None:
        if report is not None and measurements.calibration is not None:
            return command_line("headrace", "plan", path, ("--report", report, "-o", "plan.json"))
        if options is not None:
            return command_line("headrace", "plan", path, options, ("-o", "plan.json"))
    if first.command:
        return " && ".join(first.command.splitlines())
    return f"pass {first.code} to your loader" if first.code else first.title


def cores_needed(measurements: Measurements, now: RunModel) -> float | None:
    """Return how many such cores would keep the trainer busy; None if no number of cores would."""
    places, workers = now.places, min(measurements.workers, measurements.machine.cores)
    trainer = rates_of(measurements).trainer
    if trainer is None or workers == 0 or "cores" not in places:
        return None
    if any(seconds > places["trainer"] * (1 + 1e-9) for place, seconds in places.items() if place != "cores"):
        return None
    needed = _cores_for(now, places["trainer"], workers)
    return needed if needed is not None and needed <= MAX_CORES_FACTOR * measurements.machine.cores else None


def _cores_for(now: RunModel, seconds: float, workers: int) -> float | None:
    """Return the cores with which the workers take `seconds` per image; more cores do not shorten waiting."""
    work = sum(load.seconds for load in now.loads if load.place == "cores" and not load.waits)
    available = seconds - (now.places["cores"] - work)
    return workers * work / available if work > 0 and available > 0 else None


def with_workers(measurements: Measurements, now: RunModel, wanted: int) -> RunModel:
    """Model the run with another number of workers: each stage follows its own scaling curve."""
    workers, cores = measurements.workers, measurements.machine.cores
    if workers == 0:
        moved = [load for load in now.loads if load.place == "trainer" and load.stage != "step"]
        return _moved_to_workers(now, moved, min(wanted, cores))
    before, after = _work_seconds(stage_model(measurements)), _work_seconds(stage_model(measurements, wanted))

    def factor(load: Load) -> float:
        key = (load.stage, load.place)
        if load.waits:
            return workers / wanted
        if key in before and key in after:
            return after[key] / before[key]
        return min(workers, cores) / min(wanted, cores) if load.place == "cores" else 1.0

    loader = now.without("step").scaled(factor)
    return loader.plus(trainer_loads(measurements, loader, wanted))


def _moved_to_workers(now: RunModel, moved: list[Load], workers: int) -> RunModel:
    """Let the workers share loads that one thread has now."""
    shared = (Load(load.stage, "cores", load.seconds / workers, load.detail) for load in moved)
    return now.only(lambda load: load not in moved).plus(shared)


def _work_seconds(model: RunModel) -> dict[tuple[str, str], float]:
    """Seconds of work per image by stage and place, without waiting."""
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for load in model.only(lambda load: not load.waits).loads:
        seconds[load.stage, load.place] += load.seconds
    return seconds


def _more_workers(measurements: Measurements, now: RunModel) -> Iterator[Remedy]:
    workers, cores = measurements.workers, measurements.machine.cores
    if workers >= cores and not any(load.waits for load in now.loads):
        return
    wanted = cores if workers < cores else 2 * workers
    yield make_remedy(
        "workers",
        f"use {wanted} workers instead of {workers}" if workers else f"use {wanted} workers",
        with_workers(measurements, now, wanted).rate,
        now=now,
        code=f"num_workers={wanted}",
        why="cores are idle while the trainer waits" if workers < cores else "a worker that waits needs no core",
    )


def _more_cores(measurements: Measurements, now: RunModel) -> Iterator[Remedy]:
    cores, places = measurements.machine.cores, now.places
    if measurements.workers < cores or next(iter(places), None) != "cores":
        return
    others = max((seconds for place, seconds in places.items() if place != "cores"), default=places["cores"] / 2)
    needed = _cores_for(now, others, cores)
    if needed is None:
        return
    wanted = max(math.ceil(min(needed, MAX_CORES_FACTOR * cores) * (1 - 1e-9)), cores + 1)
    changed = now.scaled(lambda load: cores / wanted if load.place == "cores" and not load.waits else 1.0)
    yield make_remedy(
        "cores",
        f"use a machine with {wanted} such cores instead of {cores}",
        changed.rate,
        now=now,
        command=_size_command(measurements, wanted),
        why="all cores are busy; this assumes that the work scales perfectly to more of them",
        at_most=True,
    )


def _size_command(measurements: Measurements, cores: int) -> str:
    """Return `headrace size` for machines with more cores; empty without a mix, for then SciPy is not installed."""
    path, options, found = source_path(measurements), measurements.recipe.options, measurements.differential
    if path is None or options is None or found is None or not found.step_seconds or measurements.mix is None:
        return ""
    cold = stored.storage_bandwidth(measurements) if measurements.reads_from_storage else None
    storage = f"{cold / 1e9:.4g}GB/s" if cold else "1000GB/s"
    grid = ("--cores", f"{measurements.machine.cores}..{2 * cores}", "--storage", storage)
    return command_line("headrace", "size", path, options, (*grid, "--step-ms", f"{found.step_seconds * 1e3:.6g}"))


def _keep_in_memory(measurements: Measurements, now: RunModel) -> Iterator[Remedy]:
    n_bytes, path = measurements.source.n_bytes, source_path(measurements)
    if "storage" in (measurements.machine.emulated or ""):
        return  # emulated storage is slow even for what is in memory
    if n_bytes is None or path is None or not measurements.reads_from_storage or not measurements.fits_in_memory:
        return
    yield make_remedy(
        "cache",
        f"keep the {bytes_text(n_bytes)} in memory",
        now.only(lambda load: load.place != "storage").rate,
        now=now,
        command=f"{command_line('find', path, ('-type', 'f', '-exec', 'cat'))} {{}} + > /dev/null",
        why="the page cache can hold all of it: after one read, later epochs need no storage",
    )


def _offload(measurements: Measurements, now: RunModel) -> Iterator[Remedy]:
    """Add the rate of an offload worker to that of the host's cores, if they are the bottleneck."""
    host = now.places.get("cores")
    if host is None or next(iter(now.places)) != "cores":
        return
    if measurements.source.kind == "folder" or is_foreign(measurements):
        return
    rate = 1 / (host * measurements.used_cores)
    path = source_path(measurements)
    exchange = "exchange" if path is None else f"{path.rstrip('/').removesuffix('.hr')}.exchange"
    commands = (command_line("mkdir", ("-p",), exchange), command_line("headrace", "offload", path or "", exchange))
    yield make_remedy(
        "offload",
        "prepare batches with an offload worker as well",
        now.scaled(lambda load: (1 / host) / (1 / host + rate) if load.place == "cores" else 1.0).rate,
        now=now,
        command="" if path is None else "\n".join(commands),
        code=f"offload={exchange!r}",
        why=f"one more core like these, on this machine or near the storage, would add {rate_text(rate)}",
        at_most=True,
    )


def _out_of_one_thread(measurements: Measurements, now: RunModel) -> Iterator[Remedy]:
    """Let the workers do what one thread does for all of them."""
    alone = [load for load in now.loads if load.place == "thread"]
    if not alone:
        return
    slowest = max(alone, key=lambda load: load.seconds)
    function = slowest.detail if slowest.detail and slowest.detail.isidentifier() else "the function"
    batching = slowest.stage == "batch"
    if is_foreign(measurements):
        how = "do the work per sample in the dataset's __getitem__, which the workers call"
    elif batching:
        how = "without a collate_fn the workers write each sample directly into the batch"
    else:
        how = f"operations of headrace.transforms instead of {function} run in the workers"
    yield make_remedy(
        "collate",
        f"move {'batching' if batching else function} from the one thread to the workers",
        _moved_to_workers(now, alone, measurements.used_cores).rate,
        now=now,
        code="collate_fn=None" if batching and not is_foreign(measurements) else "",
        why=f"one thread does it for all workers, and they wait for it; {how}",
    )


def _cheaper_stage(measurements: Measurements, now: RunModel) -> Iterator[Remedy]:
    """Give the upper bound of what a cheaper stage could gain."""
    bottleneck = now.bottleneck
    if bottleneck is None or bottleneck.stage == "wait":
        return
    title, how = _ADVICE[bottleneck.stage]
    ours = not is_foreign(measurements)
    yield make_remedy(
        "stage",
        title,
        now.without(bottleneck.stage, bottleneck.place).rate,
        now=now,
        command=build_command(measurements, "--format", "hri:fast") if bottleneck.stage in _STORAGE_STAGES else "",
        code='dtype="uint8"' if bottleneck.stage == "transfer" and ours else "",
        why=f"{how}; the rate assumes that the stage takes no time",
        at_most=True,
    )


_STORAGE_KINDS = {"records", "format", "plan", "cache"}
_STORAGE_STAGES = {"open", "read", "decode"}
"""Stages that depend on how the images are stored."""

_ADVICE = {
    "open": ("open fewer files", "a dataset holds thousands of images in one file"),
    "read": ("read less, or from faster storage", "smaller images, or a crop of .hri, need fewer bytes"),
    "decode": ("decode a faster format", "hri:fast is made for fast decoding"),
    "transform": (
        "make the transforms cheaper",
        "operations of headrace.transforms run fused in C++; put the crop first",
    ),
    "sample": ("make samples cheaper", "headrace.Loader reads, decodes and transforms in C++, without the GIL"),
    "batch": (
        "make batches cheaper",
        "headrace.Loader without a collate_fn writes each sample directly into the batch",
    ),
    "transfer": ("copy fewer bytes", "copy uint8 and normalize on the device"),
}

_FINDERS: tuple[Callable[[Measurements, RunModel], Iterator[Remedy]], ...] = (
    stored.other_formats,
    stored.mix_of_formats,
    stored.records,
    _more_workers,
    _keep_in_memory,
    _out_of_one_thread,
    _offload,
    _more_cores,
    _cheaper_stage,
)
