# SPDX-License-Identifier: Apache-2.0
"""What terminal and page show alike: the rows of the pipeline, the facts about the run, how it was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.profiling._measurements import Measurements, Place, Rate, WhatIf, WhatIfPoint
from headrace.profiling.judging._pipeline import Load, reads_cold, stage_pipeline, worker_count
from headrace.profiling.judging._reconcile import run_pipeline
from headrace.profiling.judging._verdict import Verdict
from headrace.units import (
    bytes_text,
    cores_text,
    number_text,
    percent_text,
    rate_text,
    seconds_text,
)

_ORDER = ("open", "read", "decode", "transform", "sample", "batch", "transfer", "step", "wait")
_BUSY = 0.95
"""An accelerator that works this share of the time is busy; the planner's word."""
_TITLES = {"sample": "make a sample", "step": "training step", "wait": "wait for data"}


def sentence_text(words: str) -> str:
    """Capitalise the first letter and end with a full stop."""
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "…")) else ".")


def printable(text: str) -> str:
    """Replace characters that a terminal or browser would obey: controls, writing direction, lone surrogates."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)


@dataclass(frozen=True, slots=True)
class Row:
    """A stage in a place, as it is drawn."""

    stage: str
    title: str
    place: Place
    where: str
    ceiling: float
    """ImageSample a second if its place did nothing else."""
    shared: float
    """ImageSample a second of the place with all its stages."""
    binds: bool
    detail: str | None


def stage_rows(measurements: Measurements, verdict: Verdict) -> list[Row]:
    """Rows in the order of the pipeline, those of one place next to each other as far as it allows.

    None without a verdict: what is not measured cannot be laid out.
    """
    if verdict.kind == "unknown":
        return []
    pipeline = run_pipeline(measurements)
    places = pipeline.places
    where: dict[Place, str] = {
        "storage": "storage",
        "cores": _workers(measurements),
        "thread": "one thread",
        "link": "link",
        "trainer": "trainer",
    }
    named = [load for load in pipeline.loads if (load.stage, load.place) == (verdict.stage, verdict.place)]
    largest = max(named, key=lambda load: load.seconds, default=None) if verdict.kind in ("stage", "trainer") else None
    rows = [
        Row(
            stage=load.stage,
            title=_title(load) + (", the rest" if load.rest and measurements.stages else ""),
            place=load.place,
            where=where[load.place],
            ceiling=load.ceiling,
            shared=1 / places[load.place],
            binds=load is largest,
            detail=load.detail,
        )
        for load in pipeline.loads
    ]
    sequence = {place: number for number, place in enumerate(where)}
    return sorted(rows, key=lambda row: (sequence[row.place], _ORDER.index(row.stage)))


def _workers(measurements: Measurements) -> str:
    workers = worker_count(measurements)
    return f"{workers} worker{'' if workers == 1 else 's'}"


def _title(load: Load) -> str:
    """Name a row: what was read from storage is copied by the workers, or they wait for it."""
    if load.stage == "read" and load.place != "storage":
        return "wait for reads" if load.waits else "copy"
    if load.stage == "step" and load.place == "cores":
        return "step's CPU"
    return _TITLES.get(load.stage, load.stage)


def facts(measurements: Measurements, verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Name and value of what the run was, as far as it is known."""
    machine, source, recipe = measurements.machine, measurements.source, measurements.recipe
    size = [f"{source.samples:,} samples"] if source.samples is not None else []
    size += [bytes_text(source.n_bytes)] if source.n_bytes is not None else []
    size += [", ".join(f"{percent_text(share)} {name}" for name, share in source.formats.items())]
    yield source.kind, ", ".join(filter(None, [source.name, *size]))
    memory = f"{bytes_text(machine.memory_bytes)} of memory free" if machine.memory_bytes else None
    hardware = [
        machine.processor,
        cores_text(machine.cores),
        memory,
        machine.storage,
        machine.accelerator,
        machine.system,
    ]
    yield "machine", ", ".join(filter(None, hardware))
    batch = f"batches of {recipe.batch_size}" if recipe.batch_size else None
    run = [batch, _workers(measurements), *recipe.transforms]
    yield "run", ", ".join(filter(None, run)) + (", reading cold" if reads_cold(measurements) else ", reading warm")
    if verdict.cores_needed is not None:
        yield "cores that keep the trainer busy", number_text(verdict.cores_needed)
    if verdict.width is not None:
        yield "figures", f"± {percent_text(verdict.width)}: repeats of the same measurement differ by that much"


def whole_rates(measurements: Measurements, verdict: Verdict) -> Iterator[tuple[str, float]]:
    """What was measured of trainer and loader, with the figures that the verdict goes by."""
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
    """How it was measured, one sentence each."""
    yield (
        "Every stage was measured alone, fed from memory. Stages in one place take turns, so their times add; "
        "places work at once, so the slowest decides. The verdict is arithmetic on these figures."
    )
    alone = stage_pipeline(measurements).rate
    if verdict.kind != "unknown" and verdict.rate and math.isfinite(alone):
        yield (
            f"The stages alone allow {rate_text(alone)}. Their ceilings are scaled so that they agree with the rates "
            f"that were measured of the loader and of the run as a whole."
        )
    yield from map(sentence_text, measurements.notes)
    took = f" in {seconds_text(measurements.seconds)}" if measurements.seconds is not None else ""
    by = f" by Headrace {measurements.headrace}" if measurements.headrace else ""
    when = f", {measurements.started}" if measurements.started else ""
    if took or by or when:
        yield f"Measured{by}{took}{when}."


def best_words(best: WhatIfPoint, grid: WhatIf) -> str:
    """The configuration that is best for the money, in a sentence."""
    currency = grid.prices.get("currency", "$")
    found = "Cheapest that keeps it busy" if best.busy >= _BUSY else "None keeps it busy; most images for the money"
    words = [
        f"{found}: {cores_text(best.cores)} and {bytes_text(best.storage_rate)}/s",
        rate_text(best.rate),
        f"{percent_text(best.busy)} busy",
    ]
    if best.dollars_per_hour:
        words.append(f"{currency}{best.dollars_per_hour:.2f} an hour")
    if best.images_per_dollar:
        words.append(f"{number_text(best.images_per_dollar)} images for {currency}1")
    return ", ".join(words) + "."


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A stage as it was measured, in words; what was not is left empty."""

    name: str
    detail: str
    place: str
    cpu: str
    n_bytes: str
    warm: str
    cold: str


def measured_rows(measurements: Measurements) -> Iterator[MeasuredRow]:
    """All stages, with their rates by number of cores."""
    for stage in measurements.stages:
        yield MeasuredRow(
            name=stage.name,
            detail=stage.detail or "",
            place=stage.place,
            cpu=seconds_text(stage.cpu_seconds) if stage.cpu_seconds else "",
            n_bytes=bytes_text(stage.n_bytes) if stage.n_bytes else "",
            warm=_curve(stage.rates),
            cold=_curve(stage.cold_rates),
        )


def _curve(points: tuple[Rate, ...]) -> str:
    return " · ".join(f"{point.cores}: {number_text(point.rate)}" for point in points)
