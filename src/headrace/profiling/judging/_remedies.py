# SPDX-License-Identifier: Apache-2.0
"""What would mend a starving run, ranked by the rate that the same arithmetic predicts.

Every remedy is the run's own pipeline with something changed, so that its prediction differs from today's rate by that
change alone; those of other formats are the planner's, which measured them. None exceeds the trainer's ceiling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from headrace.profiling._figures import bytes_text, rate_text
from headrace.profiling._measurements import Measurements
from headrace.profiling.judging import _remedies_stored as stored
from headrace.profiling.judging._pipeline import (
    Load,
    Pipeline,
    fits_in_memory,
    reads_cold,
    stage_pipeline,
    trainer_loads,
    worker_count,
)
from headrace.profiling.judging._remedy import WORTHWHILE, Remedy, build_command, is_foreign, offer, source_word

_MOST_CORES = 16
"""Times as many cores as there are: further than that no prediction carries."""


def find_remedies(measurements: Measurements, now: Pipeline, rate: float) -> tuple[Remedy, ...]:
    """Rank what would help; the certain comes before the possible where rates are equal.

    What is worthwhile is told from the arithmetic alone; gains are over `rate`, which the run was measured to have.
    """
    found = [remedy for find in _FINDERS for remedy in find(measurements, now)]
    gainful = [remedy for remedy in found if math.isfinite(remedy.rate) and remedy.gain >= WORTHWHILE]
    worth = [replace(remedy, gain=remedy.rate / rate) for remedy in gainful if remedy.rate >= WORTHWHILE * rate]
    binding = binding_load(now)
    if binding is not None and binding.stage in _OF_STORAGE and any(remedy.kind in _STORED for remedy in worth):
        worth = [remedy for remedy in worth if remedy.kind != "stage"]
    return tuple(sorted(worth, key=lambda remedy: (-round(remedy.rate, 6), remedy.at_most)))


def binding_load(pipeline: Pipeline) -> Load | None:
    """The largest load of the slowest place, the step itself left out."""
    slowest = next(iter(pipeline.places), None)
    loads = [load for load in pipeline.loads if load.place == slowest and load.stage != "step"]
    return max(loads, key=lambda load: load.seconds, default=None)


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
    name = "DataLoader" if is_foreign(measurements) else "headrace.Loader"
    yield offer(
        "workers",
        f"use {wanted} workers instead of {workers}" if workers else f"use {wanted} workers beside the trainer",
        with_workers(measurements, now, wanted).rate,
        now=now,
        command=f"{name}(…, num_workers={wanted})",
        why="cores are idle while the trainer waits" if workers < cores else "a worker that waits needs no core",
    )


def _cores(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    cores, places = measurements.machine.cores, now.places
    if worker_count(measurements) < cores or next(iter(places), None) != "cores":
        return
    work = sum(load.seconds for load in now.loads if load.place == "cores" and not load.waits)
    others = max((seconds for place, seconds in places.items() if place != "cores"), default=places["cores"] / 2)
    room = others - (places["cores"] - work)  # what waits leave of the time that the next place needs
    if room <= 0:
        return
    wanted = min(max(math.ceil(cores * work / room), cores + 1), _MOST_CORES * cores)

    def spread(load: Load) -> Load:
        return replace(load, seconds=load.seconds * cores / wanted)

    changed = tuple(spread(load) if load.place == "cores" and not load.waits else load for load in now.loads)
    yield offer(
        "cores",
        f"a machine with {wanted} such cores instead of {cores}",
        Pipeline(changed).rate,
        now=now,
        command=f"headrace plan {source_word(measurements)} --what-if cores={cores}..{2 * wanted}",
        why="all cores are busy; this assumes that the work divides among more of them without loss",
        at_most=True,
    )


def _cache(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    n_bytes = measurements.source.n_bytes
    if n_bytes is None or not reads_cold(measurements) or not fits_in_memory(measurements):
        return
    yield offer(
        "cache",
        f"keep the {bytes_text(n_bytes)} in memory",
        now.without(place="storage").rate,
        now=now,
        command=f"find {source_word(measurements)} -type f -exec cat {{}} + > /dev/null",
        why="the page cache has room for all of it: read once, later epochs need no storage",
    )


def _near(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    """Add the rate of a second prong to that of the host's cores; of use only while they bind."""
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
    yield offer(
        "near",
        "prepare batches near the storage as well",
        now.scaled((1 / host) / (1 / host + rate), "cores").rate,
        now=now,
        command=f'headrace near {source_word(measurements)} EXCHANGE\nheadrace.Loader(…, near="EXCHANGE")',
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
    if is_foreign(measurements):
        command = "def __getitem__(self, index): …  # does the work, a sample at a time, in the workers"
    elif slowest.stage == "batch":
        command = "headrace.Loader(…, collate_fn=None)  # the workers write each sample to its place in the batch"
    else:
        command = f"headrace.Loader(…, transform=[…])  # declarative operations in place of {function}"
    yield offer(
        "collate",
        f"take {'the batching' if slowest.stage == 'batch' else function} out of the one thread",
        kept.plus(Load(load.stage, "cores", load.seconds / share, load.detail) for load in alone).rate,
        now=now,
        command=command,
        why="one thread does it for all workers, and they wait for it",
    )


def _stage(measurements: Measurements, now: Pipeline) -> Iterator[Remedy]:
    """Say what a cheaper stage would be worth at most, where no measured alternative tells."""
    binding = binding_load(now)
    if binding is None:
        return
    title, command = _ADVICE[binding.stage]
    yield offer(
        "stage",
        title,
        now.without(stage=binding.stage, place=binding.place).rate,
        now=now,
        command=command or build_command(measurements, "--format hri:fast"),
        why="the rate is what the run would give if that cost nothing",
        at_most=True,
    )


_STORED = {"records", "format", "device", "plan", "cache"}
_OF_STORAGE = {"open", "read", "decode"}
"""Stages that another way to store the images changes."""

_ADVICE = {
    "open": ("open fewer files", None),
    "read": ("read less, or from faster storage", None),
    "decode": ("decode a faster format", None),
    "transform": (
        "make the transforms cheaper",
        "headrace.Loader(…, transform=[…])  # declarative operations run fused in C++; put the crop first",
    ),
    "sample": (
        "make samples cheaper",
        "headrace.Loader(…)  # reads, decodes and transforms in C++, without the GIL",
    ),
    "batch": (
        "make batches cheaper",
        "headrace.Loader(…)  # writes each sample to its place in the batch, and collates nothing",
    ),
    "transfer": (
        "copy less, or beside the step",
        'headrace.Loader(…, dtype="uint8", device="cuda")  # normalise on the device',
    ),
}

_FINDERS: tuple[Callable[[Measurements, Pipeline], Iterator[Remedy]], ...] = (
    stored.records,
    stored.formats,
    stored.plan,
    _workers,
    _cores,
    _cache,
    _near,
    _collate,
    _stage,
)
