# SPDX-License-Identifier: Apache-2.0
"""Check the numbers of a report against each other from the outside, and the verdict against its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from headrace.profiling import Measurements, Verdict
from headrace.profiling.judging._model import MAX_STALL, RunModel
from headrace.profiling.judging._remedies_stored import rated_formats
from headrace.profiling.judging._remedy import MIN_GAIN
from headrace.units import number_text, percent_text

_SAME = 1e-4
"""Numbers are shown with three digits."""


def contradictions(measurements: Measurements, verdict: Verdict, model: RunModel) -> tuple[str, ...]:
    """Return one sentence per pair of numbers that cannot both be right; empty if all agree."""
    return (
        *_rates(verdict),
        *_rows(verdict, model),
        *_kind(measurements, verdict),
        *_remedies(measurements, verdict),
    )


def _rates(verdict: Verdict) -> Iterator[str]:
    rate, trainer, loader = verdict.rate, verdict.trainer, verdict.loader
    if rate is None:
        return
    for name, ceiling in (("the trainer", trainer), ("the loader", loader)):
        if ceiling is not None and rate > ceiling * (1 + _SAME):
            yield f"the run is faster ({number_text(rate)}) than {name} could be ({number_text(ceiling)})"
    if trainer is None:
        return
    if verdict.stall is None or not _same(1 - verdict.stall, rate / trainer):
        yield f"the stall is not what the run's {number_text(rate)} and the trainer's {number_text(trainer)} make"
    if verdict.trainer_ratio is None or not _same(verdict.trainer_ratio, trainer / rate):
        yield "the trainer is not as many times faster as its rate says"
    most = math.inf if verdict.stage == "step" else trainer * (1 + _SAME)
    if verdict.next_rate is not None and not rate * (1 - _SAME) <= verdict.next_rate <= most:
        yield f"the next limit ({number_text(verdict.next_rate)}) is not between the run and the trainer"


def _rows(verdict: Verdict, model: RunModel) -> Iterator[str]:
    """As drawn, the slowest place is the run, and the ceiling of the step is the trainer's rate."""
    if verdict.kind == "unknown" or verdict.rate is None:
        return
    if not _same(model.rate, verdict.rate):
        yield f"the slowest place gives {number_text(model.rate)} and the run {number_text(verdict.rate)}"
    for load in model.loads:
        if load.stage == "step" and load.place == "trainer" and not _same(load.ceiling, verdict.trainer or 0.0):
            yield "the step's ceiling is not the trainer's rate"
    if verdict.kind == "stage" and verdict.place != next(iter(model.places)):
        yield f"the bottleneck is in {verdict.place}, which is not the slowest place"


def _kind(measurements: Measurements, verdict: Verdict) -> Iterator[str]:
    stall = verdict.stall or 0.0
    if verdict.kind not in ("stage", "unknown") and stall > 0.1 + (verdict.uncertainty or 0.0):
        yield f"the trainer waits {percent_text(stall)} of its time and the verdict names no bottleneck"
    if "loader needs no change" in verdict.sentence and stall > MAX_STALL * (1 + _SAME):
        yield f"the loader is said to need no change and the trainer waits {percent_text(stall)} of its time"
    if verdict.kind == "stage" and verdict.stage == "step":
        yield "the trainer is named as a stage of the loader"
    if measurements.missing and verdict.kind not in ("unknown", "trainer"):
        yield f"a bottleneck is named without having measured {measurements.missing[0]}"
    needed, cores = verdict.cores_needed, measurements.machine.cores
    if verdict.kind == "trainer" and needed is not None and needed > cores * (1 + _SAME):
        yield f"{number_text(needed)} cores would keep the trainer busy, and the {cores} there are do"


def _remedies(measurements: Measurements, verdict: Verdict) -> Iterator[str]:
    rate, trainer = verdict.rate or 0.0, verdict.trainer or math.inf
    tables = {cost.format: shown for cost, shown in rated_formats(measurements) if cost.place == "cpu"}
    ranks = [remedy.rank for remedy in verdict.remedies]
    if ranks != sorted(ranks):
        yield "the remedies are not in the order of their ranks"
    for remedy in verdict.remedies:
        if not _same(remedy.rate, remedy.gain * rate) or remedy.gain < MIN_GAIN * (1 - _SAME):
            yield f"{remedy.title}: a gain of {number_text(remedy.gain)} is not {number_text(remedy.rate)}"
        if remedy.rate > trainer * (1 + _SAME):
            yield f"{remedy.title}: {number_text(remedy.rate)} is more than the trainer could take"
        if remedy.kind == "format" and not any(_same(remedy.rate, shown) for shown in tables.values()):
            yield f"{remedy.title}: {number_text(remedy.rate)} is not in the table of formats"
        if remedy.kind == "cores" and verdict.cores_needed is not None:
            wanted = f"{max(math.ceil(verdict.cores_needed * (1 - 1e-9)), measurements.machine.cores + 1)} such cores"
            if wanted not in remedy.title:
                yield f"{remedy.title}: {number_text(verdict.cores_needed)} cores would keep the trainer busy"


def _same(first: float, second: float) -> bool:
    return first == second or abs(first - second) <= _SAME * max(abs(first), abs(second))
