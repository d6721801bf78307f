# SPDX-License-Identifier: Apache-2.0
"""The verdict: which stage limits the run, by how much, what would be next, and what would fix it.

Pure arithmetic on the measurements (docs/concepts/verdict.md explains it): the same numbers give the same verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from headrace.profiling._measurements import Measurements, StagePlace
from headrace.profiling.judging._model import MAX_STALL, SIMILAR, Load, Rates, RunModel, rates_of
from headrace.profiling.judging._reconcile import MIN_EXPLAINED, explained_share, model_run
from headrace.profiling.judging._remedies import cores_needed, find_remedies
from headrace.profiling.judging._remedy import Remedy
from headrace.units import number_text, percent_text, rate_text

VerdictKind = Literal["stage", "trainer", "balanced", "unknown"]

MAX_UNCERTAINTY = 0.1
"""A larger uncertainty gets a caution."""
_MIN_AGREEMENT = 0.7
"""A loader and its stages that differ by more get a caution."""

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
PLACE_WORDS: dict[StagePlace, str] = {
    "storage": "storage",
    "cores": "the cores",
    "thread": "one thread",
    "link": "the link",
    "trainer": "the trainer",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The finding of a profile. Rates are images per second."""

    kind: VerdictKind
    """What limits the run: a stage of the loader, the trainer, both equally (balanced); or too little was measured."""
    stage: str | None = None
    """The bottleneck. `step` is the training step; `wait` is waiting that no stage explains."""
    place: StagePlace | None = None
    share: float | None = None
    """Share of its place's time that the stage takes."""
    equally_slow: tuple[StagePlace, ...] = ()
    """Other places that are as slow, within 10 % or the uncertainty."""
    rate: float | None = None
    """Rate of the run: measured, otherwise computed."""
    trainer: float | None = None
    """Rate with a perfect loader."""
    loader: float | None = None
    """Rate of the loader alone: measured, otherwise computed."""
    trainer_ratio: float | None = None
    """`trainer / rate`: how many times faster training could be."""
    stall: float | None = None
    """Share of the time that the trainer waits for data."""
    uncertainty: float | None = None
    """How far repeats of the measured rates differ: 0.04 is ± 4 %. None if there were too few repeats."""
    next_stage: str | None = None
    """Which stage would be the bottleneck if the current one took no time."""
    next_rate: float | None = None
    """The rate of the run then."""
    cores_needed: float | None = None
    """How many such cores would keep the trainer busy; None if cores alone would not."""
    explained: float | None = None
    """The loader's measured rate over the rate that its stages allow; 1 if the model is exact."""
    sentence: str
    cautions: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()


def judge(measurements: Measurements) -> Verdict:
    """Return the verdict on what was measured."""
    model, rates = model_run(measurements), rates_of(measurements)
    loader = model.without("step").without("wait")
    if not loader.loads:
        return _no_verdict(measurements, rates)
    slow = _slow_places(model, loader, rates)
    kind = _kind(model, rates, slow)
    # The three rates alone show that the trainer is the limit, whatever the stages are.
    is_sure = kind == "trainer" and rates.loader is not None and rates.is_stalled is False
    if measurements.missing and not is_sure:
        return _no_verdict(measurements, rates)
    bottleneck = model.bottleneck
    if kind == "trainer" and rates.trainer:
        bottleneck = Load("step", "trainer", 1 / rates.trainer)
    after = model.without(bottleneck.stage, bottleneck.place) if bottleneck else model
    following = next(iter(after.slowest), None)
    verdict = Verdict(
        kind=kind,
        stage=bottleneck.stage if bottleneck else None,
        place=bottleneck.place if bottleneck else None,
        share=min(1.0, bottleneck.seconds / model.places[bottleneck.place]) if bottleneck else None,
        equally_slow=slow if kind == "balanced" else slow[1:],
        rate=model.rate,
        trainer=rates.trainer,
        loader=rates.loader or loader.rate,
        **_against_trainer(model.rate, rates.trainer),
        uncertainty=rates.uncertainty,
        next_stage=following.stage if following else None,
        next_rate=after.rate if following else None,
        cores_needed=cores_needed(measurements, model),
        explained=explained_share(measurements),
        sentence="",
        cautions=_cautions(measurements, rates),
        remedies=() if kind == "trainer" else find_remedies(measurements, model),
    )
    sentence = {"trainer": _trainer_sentence, "balanced": _balanced_sentence, "stage": _stage_sentence}[kind]
    return replace(verdict, sentence=sentence(verdict, measurements.workers))


def _slow_places(model: RunModel, loader: RunModel, rates: Rates) -> tuple[StagePlace, ...]:
    """Return the places that are as slow as the slowest, as far as can be measured.

    Cores that only the training step uses are not a place of their own: that work is part of the trainer's rate.
    """
    threshold = min(SIMILAR, 1 - (rates.uncertainty or 0.0)) / model.rate
    return tuple(
        place
        for place, seconds in model.places.items()
        if seconds >= threshold and (place == "trainer" or place in loader.places)
    )


def _kind(model: RunModel, rates: Rates, slow: tuple[StagePlace, ...]) -> Literal["stage", "trainer", "balanced"]:
    """Decide whether a part of the loader is the bottleneck, the trainer, or both equally.

    If the trainer was measured to wait, the loader is never called fast enough. Places that are equally slow, but
    slower than a known trainer, are not balanced: the trainer waits for them.
    """
    if rates.trainer is None:
        return "balanced" if len(slow) > 1 and set(slow) == set(model.places) else "stage"
    stalled = model.rate < SIMILAR * rates.trainer if rates.is_stalled is None else rates.is_stalled
    if stalled:
        return "stage"
    return "balanced" if any(place != "trainer" for place in slow) else "trainer"


def _no_verdict(measurements: Measurements, rates: Rates) -> Verdict:
    """Say what was measured and what is missing, and name no bottleneck."""
    return Verdict(
        kind="unknown",
        rate=rates.run,
        trainer=rates.trainer,
        loader=rates.loader,
        **_against_trainer(rates.run, rates.trainer),
        uncertainty=rates.uncertainty,
        sentence=_unknown_sentence(measurements, rates),
        cautions=_cautions(measurements, rates),
    )


def _against_trainer(rate: float | None, trainer: float | None) -> dict[str, Any]:
    """Return the members of a verdict that compare a run with its trainer; none if either is unknown."""
    return {"trainer_ratio": trainer / rate, "stall": max(0.0, 1 - rate / trainer)} if rate and trainer else {}


def _unknown_sentence(measurements: Measurements, rates: Rates) -> str:
    if not measurements.missing:
        return "No verdict: neither the loader nor its stages were measured."
    reason = "the profile was interrupted before it measured" if measurements.interrupted else "it could not measure"
    sentence = f"No verdict on the bottleneck: {reason}: {'; '.join(measurements.missing)}."
    named = (("loader alone", rates.loader), ("trainer alone", rates.trainer), ("both together", rates.run))
    found = [f"{name} {rate_text(rate)}" for name, rate in named if rate]
    if found:
        sentence += f" Measured: {', '.join(found)}."
    if rates.is_stalled and rates.run and rates.trainer:
        sentence += f" The trainer waits for data {percent_text(1 - rates.run / rates.trainer)} of its time."
    return sentence + (" Run it again to the end." if measurements.interrupted else " The notes say why.")


def _cautions(measurements: Measurements, rates: Rates) -> tuple[str, ...]:
    cautions, found, explained = [], measurements.differential, explained_share(measurements)
    if not measurements.complete and not measurements.missing:
        cautions.append("Some measurements are missing; the notes say which. The numbers shown are complete.")
    if rates.uncertainty is not None and rates.uncertainty > MAX_UNCERTAINTY:
        cautions.append(
            f"Repeats of the same measurement differ by ± {percent_text(rates.uncertainty)}. Remedies that differ by "
            f"less have the same rank. Measure again on an idle machine."
        )
    if measurements.other_load:
        cautions.append(
            f"Other programs kept the machine busy during: {'; '.join(measurements.other_load)}. These rates are too "
            f"low. Measure again when the machine is idle."
        )
    if measurements.missing:
        return tuple(cautions)
    if explained is not None and explained < MIN_EXPLAINED:
        cautions.append(
            f"The stages explain only {percent_text(explained)} of the loader's time per image; the rest was inferred "
            f"from which parts of the loader were busy."
        )
    elif explained is not None and not _MIN_AGREEMENT <= explained <= 1 / _MIN_AGREEMENT:
        cautions.append(f"The loader is {explained:.1f} times as fast as its stages alone; they were scaled to it.")
    if rates.is_stalled and rates.loader and rates.trainer and rates.loader * SIMILAR > rates.trainer:
        cautions.append(
            f"The loader alone gives {rate_text(rates.loader)}, more than the trainer could process: they slow each "
            f"other down when both run."
        )
    if found is not None and found.stated:
        cautions.append("The step time was given, not measured; the trainer is a sleep of that length.")
    if measurements.machine.emulated:
        cautions.append(f"Emulated: {measurements.machine.emulated}.")
    return tuple(cautions)


def _trainer_sentence(verdict: Verdict, workers: int) -> str:
    assert verdict.trainer is not None
    assert verdict.loader is not None
    sentence = (
        f"The trainer is the limit: it could process {rate_text(verdict.trainer)}, and the loader could deliver "
        f"{rate_text(verdict.loader)}."
    )
    if verdict.stall is not None and verdict.stall > MAX_STALL:
        return (
            f"{sentence} It waits for data {percent_text(verdict.stall)} of its time, which is within the uncertainty "
            f"of ± {percent_text(verdict.uncertainty or 0.0)}."
        )
    sentence += " The loader needs no change."
    if verdict.cores_needed is not None and verdict.cores_needed < workers:
        sentence += f" {verdict.cores_needed:.1f} of the {workers} cores would be enough."
    return sentence


def _balanced_sentence(verdict: Verdict, _: int) -> str:
    assert verdict.rate is not None
    names = [PLACE_WORDS[place] for place in verdict.equally_slow]
    sentence = (
        f"The pipeline is balanced: {_joined(names)} are within {_tolerance(verdict)} of each other, at "
        f"{rate_text(verdict.rate)}. No single change to the loader would make it much faster."
    )
    if verdict.stall is not None and verdict.stall > MAX_STALL:
        sentence += f" The trainer waits for data {percent_text(verdict.stall)} of its time."
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
    sentence = f"{words[0].upper()}{words[1:]}{where} limits the run to {rate_text(verdict.rate)}."
    if verdict.trainer is not None and verdict.trainer_ratio is not None and verdict.stall is not None:
        sentence += (
            f" The trainer could process {rate_text(verdict.trainer)}, {number_text(verdict.trainer_ratio)} times as "
            f"many; it waits for data {percent_text(verdict.stall)} of its time."
        )
    if verdict.equally_slow:
        places = _joined([PLACE_WORDS[place] for place in verdict.equally_slow])
        sentence += f" As slow, within {_tolerance(verdict)}: {places}."
    if verdict.next_stage == "step":
        sentence += f" If {words} took no time, the trainer would be the limit."
    elif verdict.next_stage is not None and verdict.next_rate is not None:
        next_words = STAGE_WORDS[verdict.next_stage]
        sentence += f" If {words} took no time, {next_words} would be next, at {rate_text(verdict.next_rate)}."
    return sentence


def _tolerance(verdict: Verdict) -> str:
    """How much places that count as equally slow may differ."""
    return percent_text(max(verdict.uncertainty or 0.0, 1 - SIMILAR))


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
