# SPDX-License-Identifier: Apache-2.0
"""The verdict: the stage that limits the run, by how much, what comes next, and what would fix it.

Arithmetic on the measurements and nothing else (docs/concepts/verdict.md has it in words): the same figures give the
same verdict on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from headrace.profiling._measurements import Measurements, Place
from headrace.profiling.judging._pipeline import Load, Pipeline, worker_count
from headrace.profiling.judging._rates import NEAR, STALLED, Rates, rates_of
from headrace.profiling.judging._reconcile import UNEXPLAINED, explained_share
from headrace.profiling.judging._remedies import binding_load, cores_needed, find_remedies
from headrace.profiling.judging._remedy import Remedy
from headrace.units import number_text, percent_text, rate_text

WIDE = 0.1
"""Figures that are wider than this are worth a caution."""
_AS_FAST = 0.7  # a loader and its stages within this of each other agree

STAGE_WORDS = {
    "open": "opening files",
    "read": "reading",
    "decode": "decoding",
    "transform": "transforming",
    "sample": "making samples",
    "batch": "batching",
    "transfer": "copying to the device",
    "step": "the training step",
    "wait": "waiting for data",
}
PLACE_WORDS: dict[Place, str] = {
    "storage": "storage",
    "cores": "the cores",
    "thread": "one thread",
    "link": "the link",
    "trainer": "the trainer",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A finding. Rates are images a second."""

    kind: Literal["stage", "trainer", "balanced", "unknown"]
    """What bounds the run: a stage of the loader, the trainer, all of it alike; or too little was measured."""
    stage: str | None = None
    """The bottleneck; `step` is the trainer's, `wait` is waiting that no stage explains."""
    place: Place | None = None
    share: float | None = None
    """Of its place's time that the stage takes."""
    level: tuple[Place, ...] = ()
    """Places that are as slow, within a tenth or the width of the figures."""
    rate: float | None = None
    """Of the run: measured where it was, otherwise as the arithmetic has it."""
    trainer: float | None = None
    """What a perfect loader would give."""
    loader: float | None = None
    """What the loader gives with nobody to wait for: measured where it was, otherwise as the arithmetic has it."""
    lack: float | None = None
    """Times that the trainer could be faster than the run is."""
    stall: float | None = None
    """Share of the time that the trainer waits for data."""
    width: float | None = None
    """How far repeats of the measured rates differ: 0.04 is ± 4 %. None: too short to tell."""
    next_stage: str | None = None
    """Which stage would be the bottleneck if the one that is cost nothing,"""
    next_rate: float | None = None
    """and the rate then."""
    cores_needed: float | None = None
    """Cores of this machine's kind that would keep the trainer busy; None if cores alone would not."""
    explained: float | None = None
    """The loader's measured rate over what its stages allow: 1 where the arithmetic is exact."""
    sentence: str
    cautions: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()


def find_verdict(measurements: Measurements, pipeline: Pipeline) -> Verdict:
    """Give the verdict on what was measured, from the pipeline that `run_pipeline` made of it."""
    rates = rates_of(measurements)
    loader = Pipeline(tuple(load for load in pipeline.loads if load.stage not in ("step", "wait")))
    if not loader.loads or (measurements.missing and not _is_trainer_bound(rates)):
        return _no_verdict(measurements, rates)
    level = _level(pipeline, rates)
    kind = _kind(pipeline, rates, level)
    binding = binding_load(pipeline)
    if kind == "trainer" and rates.trainer:
        binding = Load("step", "trainer", 1 / rates.trainer)
    after = pipeline.without(stage=binding.stage, place=binding.place) if binding else pipeline
    following = after.binding
    verdict = Verdict(
        kind=kind,
        stage=binding.stage if binding else None,
        place=binding.place if binding else None,
        share=min(1.0, binding.seconds / pipeline.places[binding.place]) if binding else None,
        level=level[1:] if kind != "balanced" else level,
        rate=pipeline.rate,
        trainer=rates.trainer,
        loader=rates.loader or loader.rate,
        lack=rates.trainer / pipeline.rate if rates.trainer else None,
        stall=max(0.0, 1 - pipeline.rate / rates.trainer) if rates.trainer else None,
        width=rates.width,
        next_stage=following.stage if following else None,
        next_rate=after.rate if following else None,
        cores_needed=cores_needed(measurements, pipeline),
        explained=explained_share(measurements),
        sentence="",
        cautions=_cautions(measurements, rates),
        remedies=() if kind == "trainer" else find_remedies(measurements, pipeline),
    )
    return _with_sentence(verdict, worker_count(measurements))


def _is_trainer_bound(rates: Rates) -> bool:
    """Whether the three rates alone show that the trainer is the limit, whatever the stages are."""
    if rates.trainer is None or rates.loader is None or rates.is_stalled is not False:
        return False
    return rates.loader * NEAR >= rates.trainer


def _no_verdict(measurements: Measurements, rates: Rates) -> Verdict:
    """Say what was measured, what is missing, and name no bottleneck."""
    run, trainer = rates.run, rates.trainer
    known = run is not None and trainer is not None
    return Verdict(
        kind="unknown",
        rate=run,
        trainer=trainer,
        loader=rates.loader,
        lack=trainer / run if run and trainer else None,
        stall=max(0.0, 1 - run / trainer) if known and run and trainer else None,
        width=rates.width,
        sentence=_unknown_sentence(measurements, rates),
        cautions=_cautions(measurements, rates),
    )


def _unknown_sentence(measurements: Measurements, rates: Rates) -> str:
    missing = "; ".join(measurements.missing)
    if not missing:
        return "No verdict: neither the stages nor the loader as a whole were measured."
    ended = "the profile was interrupted before it measured" if measurements.interrupted else "it could not measure"
    sentence = f"No verdict on the bottleneck: {ended}: {missing}."
    found = [
        f"{name} {rate_text(rate)}"
        for name, rate in (("loader alone", rates.loader), ("trainer alone", rates.trainer), ("together", rates.run))
        if rate
    ]
    if found:
        sentence += f" Measured: {', '.join(found)}."
    if rates.is_stalled and rates.run and rates.trainer:
        sentence += f" The trainer waits {percent_text(1 - rates.run / rates.trainer)} of its time for data."
    ending = "Run it again to the end" if measurements.interrupted else "The notes say why"
    return f"{sentence} {ending}."


def _level(pipeline: Pipeline, rates: Rates) -> tuple[Place, ...]:
    """The places that are as slow as the slowest, as far as can be told."""
    least = min(NEAR, 1 - (rates.width or 0.0)) / pipeline.rate
    return tuple(place for place, seconds in pipeline.places.items() if seconds >= least)


def _kind(pipeline: Pipeline, rates: Rates, level: tuple[Place, ...]) -> Literal["stage", "trainer", "balanced"]:
    """Tell whether a part of the loader is the bottleneck, or the trainer, or all alike.

    A trainer that was measured to wait is never told that its loader is fast enough. Places that are level with each
    other but not with a known trainer are not balanced: it waits all the same.
    """
    if rates.trainer is None:
        return "balanced" if len(level) > 1 and set(level) == set(pipeline.places) else "stage"
    stalled = pipeline.rate < NEAR * rates.trainer if rates.is_stalled is None else rates.is_stalled
    if stalled:
        return "stage"
    return "balanced" if any(place != "trainer" for place in level) else "trainer"


def _cautions(measurements: Measurements, rates: Rates) -> tuple[str, ...]:
    cautions, found, explained = [], measurements.differential, explained_share(measurements)
    if not measurements.complete and not measurements.missing:
        cautions.append(
            "Not everything could be measured: what is shown was measured in full, see the notes for the rest."
        )
    if rates.width is not None and rates.width > WIDE:
        cautions.append(
            f"Repeats of the same measurement differ by ± {percent_text(rates.width)}: rates are shown to no better "
            f"than that, and remedies that differ by less have the same rank. Measure again on an idle machine."
        )
    if measurements.disturbed:
        cautions.append(
            f"Other programs kept the machine busy while these were measured, so that their figures are too low: "
            f"{'; '.join(measurements.disturbed)}. Measure again when the machine is idle."
        )
    if measurements.missing:
        return tuple(cautions)
    if explained is not None and explained < UNEXPLAINED:
        cautions.append(
            f"The stages explain {percent_text(explained)} of the loader's time per image; the rest was inferred from "
            f"which of its parts were busy."
        )
    elif explained is not None and not _AS_FAST <= explained <= 1 / _AS_FAST:
        cautions.append(f"The loader is {explained:.1f} times as fast as its stages alone; they were scaled to it.")
    if rates.is_stalled and rates.loader and rates.trainer and rates.loader * NEAR > rates.trainer:
        cautions.append(
            f"The loader alone gives {rate_text(rates.loader)}, more than the trainer could take: loader and trainer "
            f"slow each other down when they run together."
        )
    if found is not None and found.stated:
        cautions.append("The step's time is as stated, and the trainer a wait of that length.")
    if measurements.machine.emulated:
        cautions.append(f"Emulated: {measurements.machine.emulated}.")
    return tuple(cautions)


def _with_sentence(verdict: Verdict, workers: int) -> Verdict:
    words = {"trainer": _trainer_sentence, "balanced": _balanced_sentence, "stage": _stage_sentence}
    return replace(verdict, sentence=words[verdict.kind](verdict, workers))


def _trainer_sentence(verdict: Verdict, workers: int) -> str:
    assert verdict.trainer is not None
    assert verdict.loader is not None
    sentence = (
        f"The trainer is the limit: it could take {rate_text(verdict.trainer)}, and the loader could give "
        f"{rate_text(verdict.loader)}."
    )
    if verdict.stall is not None and verdict.stall > STALLED:
        return (
            f"{sentence} It waits {percent_text(verdict.stall)} of its time for data, which is less than the width of "
            f"these figures, ± {percent_text(verdict.width or 0.0)}."
        )
    sentence += " Leave the loader alone."
    if verdict.cores_needed is not None and verdict.cores_needed < workers:
        sentence += f" {verdict.cores_needed:.1f} of the {workers} cores would do."
    return sentence


def _balanced_sentence(verdict: Verdict, _: int) -> str:
    assert verdict.rate is not None
    names = [PLACE_WORDS[place] for place in verdict.level]
    sentence = (
        f"The pipeline is balanced: {_listed(names)} are within {_within(verdict)} of each other, at "
        f"{rate_text(verdict.rate)}. No single change to the loader would make it much faster."
    )
    if verdict.stall is not None and verdict.stall > STALLED:
        sentence += f" The trainer waits {percent_text(verdict.stall)} of its time for data."
    return sentence


def _stage_sentence(verdict: Verdict, workers: int) -> str:
    assert verdict.stage is not None
    assert verdict.place is not None
    assert verdict.rate is not None
    where = {
        "storage": " from storage",
        "cores": f" on {workers} worker{'' if workers == 1 else 's'}",
        "thread": " in one thread",
        "link": "",
        "trainer": " in the trainer's own time",
    }[verdict.place]
    words = STAGE_WORDS[verdict.stage]
    if verdict.stage == "wait":
        where = ", which no single stage explains,"
    sentence = f"{words[0].upper()}{words[1:]}{where} limits the run to {rate_text(verdict.rate)}"
    if verdict.trainer is not None and verdict.lack is not None:
        sentence += f"; the trainer could take {rate_text(verdict.trainer)}, {number_text(verdict.lack)} times as many"
        if verdict.stall is not None:
            sentence += f", and waits {percent_text(verdict.stall)} of its time"
    sentence += "."
    if verdict.level:
        places = _listed([PLACE_WORDS[place] for place in verdict.level])
        sentence += f" As slow, within {_within(verdict)}: {places}."
    if verdict.next_stage == "step":
        sentence += f" Were {words} free, the trainer would be the limit."
    elif verdict.next_stage is not None and verdict.next_rate is not None:
        next_words = STAGE_WORDS[verdict.next_stage]
        sentence += f" Were {words} free, {next_words} would be next, at {rate_text(verdict.next_rate)}."
    return sentence


def _within(verdict: Verdict) -> str:
    """How near places are that count as level."""
    return f"{percent_text(verdict.width)}" if verdict.width is not None and verdict.width > 1 - NEAR else "a tenth"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
