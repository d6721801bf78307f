# SPDX-License-Identifier: Apache-2.0
"""What terminal and page have in common: the rows of the pipeline, facts about the run, and how it was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.profiling._measurements import Measurements, StagePlace
from headrace.profiling.judging._model import Load, stage_model
from headrace.profiling.judging._reconcile import model_run
from headrace.profiling.judging._verdict import Verdict
from headrace.units import bytes_text, cores_text, number_text, percent_text, rate_text, seconds_text

_ORDER = ("open", "read", "decode", "transform", "sample", "batch", "transfer", "step", "wait")
_TITLES = {"sample": "make a sample", "step": "training step", "wait": "wait for data"}


def as_sentence(words: str) -> str:
    """Capitalize the first letter and end with a full stop."""
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "…")) else ".")


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage in a place, as it is drawn."""

    stage: str
    title: str
    place: StagePlace
    where: str
    ceiling: float
    """Images per second if its place did nothing else."""
    shared: float
    """Images per second of the place with all its stages."""
    is_bottleneck: bool
    detail: str | None


def stage_rows(measurements: Measurements, verdict: Verdict) -> list[StageRow]:
    """Return the stages by place and in the order of the pipeline; empty without a verdict."""
    if verdict.kind == "unknown":
        return []
    model = model_run(measurements)
    where: dict[StagePlace, str] = {
        "storage": "storage",
        "cores": _workers(measurements),
        "thread": "one thread",
        "link": "link",
        "trainer": "trainer",
    }
    named = [load for load in model.loads if (load.stage, load.place) == (verdict.stage, verdict.place)]
    largest = max(named, key=lambda load: load.seconds, default=None) if verdict.kind in ("stage", "trainer") else None
    rows = [
        StageRow(
            stage=load.stage,
            title=_title(load) + (", the rest" if load.inferred and measurements.stages else ""),
            place=load.place,
            where=where[load.place],
            ceiling=load.ceiling,
            shared=1 / model.places[load.place],
            is_bottleneck=load is largest,
            detail=load.detail,
        )
        for load in model.loads
    ]
    places = list(where)
    return sorted(rows, key=lambda row: (places.index(row.place), _ORDER.index(row.stage)))


def _workers(measurements: Measurements) -> str:
    workers = measurements.workers
    return f"{workers} worker{'' if workers == 1 else 's'}"


def _title(load: Load) -> str:
    if load.stage == "read" and load.place != "storage":
        return "wait for reads" if load.waits else "copy"
    if load.stage == "step" and load.place == "cores":
        return "step's CPU"
    return _TITLES.get(load.stage, load.stage)


def facts(measurements: Measurements, verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield the name and value of what is known about the run."""
    machine, source, recipe = measurements.machine, measurements.source, measurements.recipe
    size = [f"{source.samples:,} samples"] if source.samples is not None else []
    size += [bytes_text(source.n_bytes)] if source.n_bytes is not None else []
    size += [", ".join(f"{percent_text(share)} {name}" for name, share in source.formats.items())]
    yield source.kind, ", ".join(filter(None, [source.name, *size]))
    memory = f"{bytes_text(machine.memory_bytes)} of memory free" if machine.memory_bytes else None
    hardware = (machine.processor, cores_text(machine.cores), memory, machine.storage, machine.accelerator)
    yield "machine", ", ".join(filter(None, (*hardware, machine.system)))
    batch = f"batches of {recipe.batch_size}" if recipe.batch_size else None
    reads = "reads from storage" if measurements.reads_from_storage else "reads from memory"
    yield "run", ", ".join(filter(None, (batch, _workers(measurements), *recipe.transforms, reads)))
    if verdict.cores_needed is not None:
        yield "cores that keep the trainer busy", number_text(verdict.cores_needed)
    if verdict.uncertainty is not None:
        yield "uncertainty", f"± {percent_text(verdict.uncertainty)}: repeats of the same measurement differ this much"


def overall_rates(measurements: Measurements, verdict: Verdict) -> Iterator[tuple[str, float]]:
    """Yield the measured rates of trainer and loader, with the numbers that the verdict uses."""
    found = measurements.differential
    if found is None:
        return
    for name, measured, rate in (
        ("trainer alone", found.trainer, verdict.trainer),
        ("loader alone", found.loader, verdict.loader),
        ("both together", found.together, verdict.rate),
    ):
        if measured and rate:
            yield name, rate


def method_notes(measurements: Measurements, verdict: Verdict) -> Iterator[str]:
    """Yield how it was measured, one sentence each."""
    yield (
        "Every stage was measured with its input in memory. Stages in one place take turns, so their times add up; "
        "places work at the same time, so the slowest sets the rate. The verdict is arithmetic on these numbers."
    )
    alone = stage_model(measurements).rate
    if verdict.kind != "unknown" and verdict.rate and math.isfinite(alone):
        yield (
            f"The stages alone allow {rate_text(alone)}. Their ceilings are scaled to agree with the measured rates of "
            f"the loader and of the run."
        )
    yield from map(as_sentence, measurements.notes)
    took = f" in {seconds_text(measurements.seconds)}" if measurements.seconds is not None else ""
    by = f" by Headrace {measurements.headrace}" if measurements.headrace else ""
    when = f", {measurements.started}" if measurements.started else ""
    if took or by or when:
        yield f"Measured{by}{took}{when}."
