# SPDX-License-Identifier: Apache-2.0
"""The verdict: the stage that bounds the run, by how much, what comes next, and what would mend it.

Arithmetic on the measurements and nothing else (docs/concepts/verdict.md has it in words): the same figures give the
same verdict on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from headrace.profiling._figures import number_text, percent_text, rate_text
from headrace.profiling._measurements import Measurements, Place
from headrace.profiling.judging._pipeline import UNEXPLAINED, Load, Pipeline, run_pipeline, stage_pipeline, worker_count
from headrace.profiling.judging._remedies import binding_load, find_remedies
from headrace.profiling.judging._remedy import Remedy

NEAR = 0.9
"""Places whose times differ by less than this are level: mending one of them gains nothing."""
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
    """The stage that binds; `step` is the trainer's."""
    place: Place | None = None
    share: float | None = None
    """Of its place's time that the stage takes."""
    level: tuple[Place, ...] = ()
    """Places that are as slow, within a tenth."""
    rate: float | None = None
    """Of the run: measured where it was, otherwise as the arithmetic has it."""
    trainer: float | None = None
    """What a perfect loader would give."""
    loader: float | None = None
    """What the loader gives with nobody to wait for."""
    lack: float | None = None
    """Times that the trainer could be faster than the run is."""
    stall: float | None = None
    """Share of the time that the trainer waits for data."""
    next_stage: str | None = None
    """Which stage would bind if the one that does cost nothing,"""
    next_rate: float | None = None
    """and the rate then."""
    cores_needed: float | None = None
    """Cores of this machine's kind that would keep the trainer busy."""
    explained: float | None = None
    """The loader's measured rate over what its stages allow: 1 where the arithmetic is exact."""
    sentence: str
    cautions: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()


def judge(measurements: Measurements) -> Verdict:
    """Give the verdict on what was measured."""
    pipeline = run_pipeline(measurements)
    trainer = _trainer_rate(measurements)
    loader = Pipeline(tuple(load for load in pipeline.loads if load.stage != "step"))
    if not loader.loads:
        return Verdict(kind="unknown", trainer=trainer, sentence=_UNKNOWN, cautions=_cautions(measurements, None))
    found = measurements.differential
    rate = found.together if found is not None and found.together else pipeline.rate
    level = tuple(place for place, seconds in pipeline.places.items() if seconds >= NEAR / pipeline.rate)
    kind = _kind(pipeline, trainer, level)
    binding = Load("step", "trainer", 1 / trainer) if kind == "trainer" and trainer else binding_load(pipeline)
    after = pipeline.without(stage=binding.stage, place=binding.place) if binding else pipeline
    following = after.binding
    explained = _explained(measurements)
    verdict = Verdict(
        kind=kind,
        stage=binding.stage if binding else None,
        place=binding.place if binding else None,
        share=binding.seconds / pipeline.places[binding.place] if binding else None,
        level=level[1:] if kind != "balanced" else level,
        rate=rate,
        trainer=trainer,
        loader=loader.rate,
        lack=trainer / rate if trainer else None,
        stall=_stall(measurements, rate, trainer),
        next_stage=following.stage if following else None,
        next_rate=after.rate if following else None,
        cores_needed=_cores_needed(measurements, loader, trainer),
        explained=explained,
        sentence="",
        cautions=_cautions(measurements, explained),
        remedies=() if kind == "trainer" else find_remedies(measurements, pipeline, rate),
    )
    return _with_sentence(verdict, worker_count(measurements))


_UNKNOWN = "No verdict: neither the stages nor the loader as a whole were measured."


def _kind(
    pipeline: Pipeline, trainer: float | None, level: tuple[Place, ...]
) -> Literal["stage", "trainer", "balanced"]:
    """Tell whether a part of the loader binds, or the trainer, or all alike.

    Places that are level with each other but not with a known trainer are no balance: it starves all the same.
    """
    if trainer is None:
        return "balanced" if len(level) > 1 and set(level) == set(pipeline.places) else "stage"
    if pipeline.rate < NEAR * trainer:
        return "stage"
    return "balanced" if any(place != "trainer" for place in level) else "trainer"


def _trainer_rate(measurements: Measurements) -> float | None:
    return measurements.differential.trainer or None if measurements.differential is not None else None


def _stall(measurements: Measurements, rate: float, trainer: float | None) -> float | None:
    """Take the measured stall, or the one that follows from the rates."""
    found = measurements.differential
    if found is not None and found.stall is not None:
        return found.stall
    return max(0.0, 1 - rate / trainer) if trainer else None


def _cores_needed(measurements: Measurements, loader: Pipeline, trainer: float | None) -> float | None:
    busy = sum(load.seconds for load in loader.loads if load.place == "cores" and not load.waits)
    workers = worker_count(measurements)
    if trainer is None or busy == 0 or workers == 0:
        return None
    return trainer * busy * min(workers, measurements.machine.cores)


def _explained(measurements: Measurements) -> float | None:
    found, stages = measurements.differential, stage_pipeline(measurements)
    if found is None or not found.loader or not stages.loads:
        return None
    return found.loader / stages.rate


def _cautions(measurements: Measurements, explained: float | None) -> tuple[str, ...]:
    cautions = []
    if not measurements.complete:
        cautions.append(
            "Not everything could be measured: what is shown was measured in full, see the notes for the rest."
        )
    if measurements.disturbed:
        cautions.append(
            f"Other programs kept the machine busy while these were measured, so that their figures are too low: "
            f"{'; '.join(measurements.disturbed)}. Measure again when it rests."
        )
    if explained is not None and explained < UNEXPLAINED:
        cautions.append(
            f"The stages explain {percent_text(explained)} of the loader's time an image; the rest was told from "
            f"which of its parts were busy."
        )
    elif explained is not None and not _AS_FAST <= explained <= 1 / _AS_FAST:
        cautions.append(f"The loader is {explained:.1f} times as fast as its stages alone; they were scaled to it.")
    found = measurements.differential
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
    spare = ""
    if verdict.cores_needed is not None and verdict.cores_needed < workers:
        spare = f" {verdict.cores_needed:.1f} of the {workers} cores would do."
    return (
        f"The trainer bounds the run: it takes {rate_text(verdict.trainer)}, and the loader could give "
        f"{rate_text(verdict.loader)}. Leave the loader alone.{spare}"
    )


def _balanced_sentence(verdict: Verdict, _: int) -> str:
    assert verdict.rate is not None
    names = [PLACE_WORDS[place] for place in verdict.level]
    return (
        f"The pipeline is balanced: {_listed(names)} are within a tenth of each other, at {rate_text(verdict.rate)}. "
        f"No single change to the loader would make it much faster."
    )


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
    sentence = f"{words[0].upper()}{words[1:]}{where} bounds the run at {rate_text(verdict.rate)}"
    if verdict.trainer is not None and verdict.lack is not None:
        sentence += f"; the trainer could take {rate_text(verdict.trainer)}, {number_text(verdict.lack)} times as many"
        if verdict.stall is not None:
            sentence += f", and waits {percent_text(verdict.stall)} of its time"
    sentence += "."
    if verdict.level:
        sentence += f" Level with it, within a tenth: {_listed([PLACE_WORDS[place] for place in verdict.level])}."
    if verdict.next_stage == "step":
        sentence += f" Were {words} free, the trainer would be the limit."
    elif verdict.next_stage is not None and verdict.next_rate is not None:
        next_words = STAGE_WORDS[verdict.next_stage]
        sentence += f" Were {words} free, {next_words} would bind next, at {rate_text(verdict.next_rate)}."
    return sentence


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
