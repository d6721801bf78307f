# SPDX-License-Identifier: Apache-2.0
"""No two figures of a report contradict each other, and the verdict does not contradict its figures."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.profiling import profiles
from tests.profiling.consistency import contradictions

from headrace.profiling import (
    Differential,
    Energy,
    FormatCost,
    FormatMix,
    MachineFacts,
    Measurements,
    ProfiledSource,
    RawAndRecords,
    RecipeSummary,
    Report,
    Stage,
    judge,
)
from headrace.profiling.judging._reconcile import model_run
from headrace.units import number_text

pytestmark = pytest.mark.alone

rates = st.floats(5.0, 20_000.0)
maybe_rates = st.none() | rates
spreads = st.none() | st.floats(0.0, 0.5)
seconds = st.floats(1e-5, 0.2)


@st.composite
def stages(draw: st.DrawFn, cores: int) -> tuple[Stage, ...]:
    """Some of the stages, each with rates of its own, in any of the places that it can be in."""
    found = []
    for name in draw(st.sets(st.sampled_from(["open", "read", "decode", "transform", "sample", "batch", "transfer"]))):
        place = {"transfer": ["link"], "batch": ["thread", "trainer", "cores"]}.get(name, ["cores"])
        cold = profiles.curve(draw(rates), cores=cores) if name in ("open", "read") and draw(st.booleans()) else ()
        found.append(
            Stage(
                name=name,
                place=draw(st.sampled_from(place)),
                rates=profiles.curve(draw(rates), cores=cores, efficiency=draw(st.floats(0.3, 1.1))),
                cold_rates=cold,
                cpu_seconds=draw(st.none() | seconds),
                n_bytes=draw(st.none() | st.floats(1e3, 1e8)),
            )
        )
    return tuple(found)


@st.composite
def measured(draw: st.DrawFn) -> Measurements:
    """A profile whose figures were drawn at random, as if every measurement had met another load on the machine."""
    cores = draw(st.sampled_from([1, 2, 8, 16]))
    names = draw(st.sets(st.sampled_from(["png", "jpeg", "hri:fast", "hri:dense", "raw"])))
    costs = tuple(
        FormatCost(
            format=name,
            read_bytes=draw(st.floats(1e3, 1e8)),
            stored_bytes=draw(st.floats(1e3, 1e8)),
            cpu_seconds=draw(seconds),
            lossless=name != "jpeg",
        )
        for name in sorted(names)
    )
    mix = (
        FormatMix(shares=dict.fromkeys(sorted(names), 1 / len(names)))
        if len(names) > 1 and draw(st.booleans())
        else None
    )
    differential = Differential(
        trainer=draw(maybe_rates),
        loader=draw(maybe_rates),
        together=draw(maybe_rates),
        stated=draw(st.booleans()),
        step_seconds=draw(st.none() | seconds),
        trainer_cores=draw(st.none() | st.floats(0.0, 16.0)),
        loader_cores=draw(st.none() | st.floats(0.0, 16.0)),
        thread_busy=draw(st.none() | st.floats(0.0, 1.0)),
        warm_loader=draw(maybe_rates),
        trainer_spread=draw(spreads),
        loader_spread=draw(spreads),
        together_spread=draw(spreads),
    )
    kind = draw(st.sampled_from(["folder", "dataset", "loader"]))
    return Measurements(
        machine=MachineFacts(cores=cores, memory_bytes=draw(st.sampled_from([None, 10**9, 10**12]))),
        source=ProfiledSource(
            kind=kind,
            name="photos",
            samples=10_000,
            n_bytes=draw(st.sampled_from([None, 10**8, 10**11])),
            formats=draw(st.sampled_from([{}, {"png": 1.0}, {"jpeg": 1.0}, {"png": 0.5, "hri:fast": 0.5}])),
        ),
        recipe=RecipeSummary(workers=draw(st.sampled_from([None, 0, 1, cores, 2 * cores])), options=("--crop", "64")),
        stages=draw(stages(cores)),
        differential=draw(st.sampled_from([None, differential])),
        reads_cold=draw(st.sampled_from([None, True, False])),
        raw_and_records=draw(st.none() | st.builds(RawAndRecords, images=st.just(9), records_cold=rates)),
        formats=costs,
        mix=mix,
        energy=draw(
            st.none()
            | st.builds(Energy, joules=seconds, estimated=st.just(True), meter=st.just("cpu time"), watts=st.just(9.0))
        ),
        missing=draw(st.sampled_from([(), (), ("read, from storage",)])),
    )


# The trainer alone keeps more cores busy than the machine is said to have, and nobody else does anything on them.
GREEDY_TRAINER = Measurements(
    machine=MachineFacts(cores=1),
    source=ProfiledSource(kind="loader", name="list"),
    recipe=RecipeSummary(workers=0),
    differential=Differential(trainer=5.0, loader=5.0, trainer_cores=3.0),
)


@settings(max_examples=400, deadline=None)
@given(measurements=measured())
@example(measurements=GREEDY_TRAINER)
@example(measurements=replace(GREEDY_TRAINER, recipe=RecipeSummary()))
def test_no_two_figures_contradict_each_other(measurements):
    verdict = judge(measurements)

    assert contradictions(measurements, verdict, model_run(measurements)) == ()


@settings(max_examples=100, deadline=None)
@given(measurements=measured())
def test_the_trainers_rate_is_one_figure_wherever_it_is_shown(measurements):
    """In the sentence, in the facts, and as the ceiling of the step and of every remedy."""
    report = Report(measurements)
    console = Console(file=io.StringIO(), width=200)
    report.show(console)
    trainer = report.verdict.trainer
    shown = re.findall(r"(?:trainer alone +|could process )([\d,.]+)", console.file.getvalue())

    assert trainer is not None or not shown
    assert {each.rstrip(".,") for each in shown} <= {number_text(trainer or 0.0)}


@pytest.mark.parametrize(
    "change",
    [
        {"rate": 500.0},
        {"trainer": 100.0},
        {"loader": 1.0},
        {"stall": 0.1},
        {"trainer_ratio": 9.0},
        {"kind": "trainer"},
        {"place": "storage"},
        {"next_rate": 1.0},
        {"cores_needed": 3.0},
        {"sentence": "The loader needs no change."},
        {"remedies": ()},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_figure_that_was_tampered_with_is_found(change):
    measurements = profiles.full()
    verdict = judge(measurements)
    if change == {"remedies": ()}:
        first = verdict.remedies[0]
        change = {"remedies": (replace(first, rate=2 * first.rate), *verdict.remedies[1:])}

    assert contradictions(measurements, replace(verdict, **change), model_run(measurements))


def test_every_line_of_the_pipeline_is_named():
    """At both widths: the run, the trainer, and the line of all stages of a place."""
    page = Report(profiles.full()).to_html()
    wide, narrow = re.findall(r"<svg.*?</svg>", page, re.DOTALL)[:2]
    for drawing in (wide, narrow):
        words = re.sub(r"<[^>]+>", " ", drawing)
        assert "the run" in words
        assert "trainer" in words
        assert "all stages of a place together" in words
    assert "perfect scaling" in page
