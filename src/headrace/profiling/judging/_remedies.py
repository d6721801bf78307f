# SPDX-License-Identifier: Apache-2.0
"""What would make a run faster, ranked by the rate that the same arithmetic predicts.

Every remedy is the run's own pipeline with something changed, so that its prediction differs from today's rate by that
change alone. None exceeds the trainer's ceiling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from headrace.planning.commands import command_line
from headrace.profiling._measurements import Measurements
from headrace.profiling.judging import _remedies_stored as stored
from headrace.profiling.judging._pipeline import (
    Load,
    Pipeline,
    fits_in_memory,
    reads_cold,
    stage_pipeline,
    worker_count,
)
from headrace.profiling.judging._rates import rates_of
from headrace.profiling.judging._reconcile import trainer_loads
from headrace.profiling.judging._remedy import (
    WORTHWHILE,
    Remedy,
    build_command,
    is_foreign,
    offer,
    source_path,
)
from headrace.units import bytes_text, rate_text

MOST_CORES = 64
"""Times as many cores as there are: further than that no prediction carries."""
_NOT_STAGES = ("step", "wait")


def find_remedies(measurements: Measurements, now: Pipeline) -> tuple[Remedy, ...]:
    """Rank what would help: predictions by falling rate, then what could help at most.

    A gain that is smaller than the figures are wide is left out, and rates that differ by less have the same rank.
    """
    width = rates_of(measurements).width or 0.0
    least = max(WORTHWHILE, 1 + width)
    found = [remedy for find in _FINDERS for remedy in find(measurements, now)]
    worth = [remedy for remedy in found if math.isfinite(remedy.rate) and remedy.gain >= least]
    binding = binding_load(now)
    if binding is not None and binding.stage in _OF_STORAGE and any(remedy.kind in _STORED for remedy in worth):
        worth = [remedy for remedy in worth if remedy.kind != "stage"]
    return _ranked(sorted(worth, key=lambda remedy: (remedy.at_most, -remedy.rate)), width)


def _ranked(remedies: list[Remedy], width: float) -> tuple[Remedy, ...]:
    """Give one rank to remedies whose rates differ by less than the figures are wide."""
    ranked: list[Remedy] = []
    for position, remedy in enumerate(remedies, 1):
        last = ranked[-1] if ranked else None
        first = next((each for each in ranked if last is not None and each.rank == last.rank), None)
        level = first is not None and remedy.at_most == first.at_most and remedy.rate >= first.rate * (1 - width)
        ranked.append(replace(remedy, rank=first.rank if first is not None and level else position))
    return tuple(ranked)


def binding_load(pipeline: Pipeline) -> Load | None:
    """The largest load of the slowest place that has one beside the step; what is waited without a cause comes last."""
    slowest = next(iter(pipeline.places), None)
    loads = [load for load in pipeline.loads if load.place == slowest and load.stage not in _NOT_STAGES]
    waiting = [load for load in pipeline.loads if load.place == slowest and load.stage == "wait"]
    if waiting and sum(load.seconds for load in loads) < waiting[0].seconds:
        return waiting[0]
    return max(loads, key=lambda load: load.seconds, default=None)


def cores_needed(measurements: Measurements, now: Pipeline) -> float | None:
    """Cores of this kind that would keep the trainer busy; None if no number of cores would."""
    places, workers = now.places, min(worker_count(measurements), measurements.machine.cores)
    trainer = rates_of(measurements).trainer
    if trainer is None or workers == 0 or "cores" not in places:
        return None
    if any(seconds > places["trainer"] * (1 + 1e-9) for place, seconds in places.items() if place != "cores"):
        return None
    needed = _cores_for(now, places["trainer"], workers)
    return needed if needed is not None and needed <= MOST_CORES * measurements.machine.cores else None


def _cores_for(now: Pipeline, seconds: float, workers: int) -> float | None:
    """Cores with which their place takes so many seconds per image; what workers wait, more cores do not shorten."""
    work = sum(load.seconds for load in now.loads if load.place == "cores" and not load.waits)
    room = seconds - (now.places["cores"] - work)
    return workers * work / room if work > 0 and room > 0 else None


def with_workers(measurements: Measurements, now: Pipeline, wanted: int) -> Pipeline:
    """The run with another number of workers: each stage changes as its own curve does."""
    workers, cores = worker_count(measurements), measurements.machine.cores
    if workers == 0:
        moved = [load for load in now.loads if load.place == "trainer" and load.stage != "step"]
        kept = Pipeline(tuple(load for load in now.loads if load not in moved))
        return kept.plus(Load(load.stage, "cores", load.seconds / min(wanted, cores), load.detail) for load in moved)
    before, after = _seconds(stage_pipeline(measurements)), _seconds(stage_pipeline(measurements, wanted))

    def changed(load: Load) -> Load:
        key = (load.stage, load.place)
        if load.waits:
            factor = workers / wanted
        elif key in before and key in after:
            factor = after[key] / before[key]
        else:
            factor = min(workers, cores) / min(wanted, cores) if load.place == "cores" else 1.0
        return replace(load, seconds=load.seconds * factor)

    loader = Pipeline(tuple(changed(load) for load in now.loads if load.stage != "step"))
    return loader.plus(trainer_loads(measurements, loader, wanted))


def _seconds(pipeline: Pipeline) -> dict[tuple[str, str], float]:
    """Of work, by stage and place."""
    seconds: dict[tuple[str, str], float] = {}
    for load in (load for load in pipeline.loads if not load.waits):
        seconds[load.stage, load.place] = seconds.get((load.stage, load.place), 0.0) + load.seconds
    return seconds


def _workers(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    workers, cores = worker_count(measurements), measurements.machine.cores
    if workers >= cores and not any(load.waits for load in now.loads):
        return
    wanted = cores if workers < cores else 2 * workers
    yield offer(
        "workers",
        f"use {wanted} workers instead of {workers}" if workers else f"use {wanted} workers beside the trainer",
        with_workers(measurements, now, wanted).rate,
        now=now,
        code=f"num_workers={wanted}",
        why="cores are idle while the trainer waits" if workers < cores else "a worker that waits needs no core",
    )


def _cores(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    cores, places = measurements.machine.cores, now.places
    if worker_count(measurements) < cores or next(iter(places), None) != "cores":
        return
    others = max((seconds for place, seconds in places.items() if place != "cores"), default=places["cores"] / 2)
    needed = _cores_for(now, others, cores)
    if needed is None:
        return
    wanted = max(math.ceil(min(needed, MOST_CORES * cores) * (1 - 1e-9)), cores + 1)

    def spread(load: Load) -> Load:
        return replace(load, seconds=load.seconds * cores / wanted)

    changed = tuple(spread(load) if load.place == "cores" and not load.waits else load for load in now.loads)
    yield offer(
        "cores",
        f"a machine with {wanted} such cores instead of {cores}",
        Pipeline(changed).rate,
        now=now,
        command=_size_command(measurements, wanted),
        why="all cores are busy; this assumes that the work divides among more of them without loss",
        at_most=True,
    )


def _size_command(measurements: Measurements, cores: int) -> str:
    """Plan for machines with more cores. Only where SciPy is installed, as the mix shows: the command needs it."""
    path, options, found = source_path(measurements), measurements.recipe.options, measurements.differential
    if path is None or options is None or found is None or not found.step_seconds or measurements.mix is None:
        return ""
    cold = stored.storage_bandwidth(measurements) if reads_cold(measurements) else None
    storage = f"{cold / 1e9:.4g}GB/s" if cold else "1000GB/s"
    grid = ("--cores", f"{measurements.machine.cores}..{2 * cores}", "--storage", storage)
    step = ("--step-ms", f"{found.step_seconds * 1e3:.6g}")
    return command_line("headrace", "size", path, options, (*grid, *step))


def _cache(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    n_bytes = measurements.source.n_bytes
    path = source_path(measurements)
    if "storage" in (measurements.machine.emulated or ""):
        return  # an emulated storage is as slow for what lies in memory
    if n_bytes is None or path is None or not reads_cold(measurements) or not fits_in_memory(measurements):
        return
    yield offer(
        "cache",
        f"keep the {bytes_text(n_bytes)} in memory",
        now.without(place="storage").rate,
        now=now,
        command=f"{command_line('find', path, ('-type', 'f', '-exec', 'cat'))} {{}} + > /dev/null",
        why="the page cache has room for all of it: read once, later epochs need no storage",
    )


def _near(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    """Add the rate of an offload worker to that of the host's cores; useful only while they are the bottleneck."""
    host = now.places.get("cores")
    if host is None or next(iter(now.places)) != "cores":
        return
    if measurements.source.kind == "folder" or is_foreign(measurements):
        return
    if measurements.near is not None:
        rate, why = measurements.near.rate, f"it prepares {rate_text(measurements.near.rate)} beside the host"
    else:
        rate = 1 / (host * max(min(worker_count(measurements), measurements.machine.cores), 1))
        why = f"one core like these, near the storage, would add {rate_text(rate)}"
    path = source_path(measurements)
    exchange = "exchange" if path is None else f"{path.rstrip('/').removesuffix('.hr')}.exchange"
    yield offer(
        "near",
        "prepare batches with an offload worker as well",
        now.scaled((1 / host) / (1 / host + rate), "cores").rate,
        now=now,
        command=""
        if path is None
        else command_line("mkdir", ("-p",), exchange) + "\n" + command_line("headrace", "offload", path, exchange),
        code=f"offload={exchange!r}",
        why=why,
        at_most=measurements.near is None,
    )


def _collate(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    """Give to the workers what one thread does for all of them."""
    alone = [load for load in now.loads if load.place == "thread"]
    if not alone:
        return
    share = max(min(worker_count(measurements), measurements.machine.cores), 1)
    kept = Pipeline(tuple(load for load in now.loads if load not in alone))
    slowest = max(alone, key=lambda load: load.seconds)
    function = slowest.detail if slowest.detail and slowest.detail.isidentifier() else "the function"
    batching = slowest.stage == "batch"
    why = "one thread does it for all workers, and they wait for it"
    if is_foreign(measurements):
        why += "; do the work in the dataset's __getitem__, sample by sample, which the workers call"
    elif batching:
        why += "; without a collate_fn the workers write each sample to its place in the batch"
    else:
        why += f"; declarative operations of headrace.transforms in place of {function} run in the workers"
    yield offer(
        "collate",
        f"take {'the batching' if batching else function} out of the one thread",
        kept.plus(Load(load.stage, "cores", load.seconds / share, load.detail) for load in alone).rate,
        now=now,
        code="collate_fn=None" if batching and not is_foreign(measurements) else "",
        why=why,
    )


def _stage(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    """Say what a cheaper stage would be worth at most, where no measured alternative tells."""
    binding = binding_load(now)
    if binding is None or binding.stage == "wait":
        return
    title, how, code = _ADVICE[binding.stage]
    yield offer(
        "stage",
        title,
        now.without(stage=binding.stage, place=binding.place).rate,
        now=now,
        command=build_command(measurements, "--format", "hri:fast") if binding.stage in _OF_STORAGE else "",
        code="" if is_foreign(measurements) else code,
        why=f"{how}; the rate is what the run would give if that cost nothing",
        at_most=True,
    )


_STORED = {"records", "format", "device", "plan", "cache"}
_OF_STORAGE = {"open", "read", "decode"}
"""Stages that another way to store the images changes."""

_ADVICE = {
    "open": ("open fewer files", "a dataset holds thousands of images in one file", ""),
    "read": ("read less, or from faster storage", "smaller images, or a crop of .hri, need fewer bytes", ""),
    "decode": ("decode a faster format", "hri:fast was made for fast decoding", ""),
    "transform": (
        "make the transforms cheaper",
        "declarative operations of headrace.transforms run fused in C++; put the crop first",
        "",
    ),
    "sample": (
        "make samples cheaper",
        "headrace.Loader reads, decodes and transforms in C++, without the GIL",
        "",
    ),
    "batch": (
        "make batches cheaper",
        "headrace.Loader without a collate_fn writes each sample to its place in the batch",
        "",
    ),
    "transfer": ("copy less, or beside the step", "bytes can be normalised on the device", 'dtype="uint8"'),
}

_FINDERS: tuple[Callable[[Measurements, Pipeline], Iterator[Remedy]], ...] = (
    stored.formats,
    stored.plan,
    stored.records,
    _workers,
    _cache,
    _collate,
    _near,
    _cores,
    _stage,
)
