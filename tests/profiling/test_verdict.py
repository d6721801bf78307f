# SPDX-License-Identifier: Apache-2.0
"""The verdict names what was made slow, whichever stage that is, and nothing where nothing is."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.profiling.profiles import CORES, EVEN, STAGE_NAMES, curve, even, foreign, full, partial

from headrace.profiling import (
    Differential,
    MachineFacts,
    Measurements,
    ProfiledSource,
    Rate,
    RecipeSummary,
    Stage,
    judge,
)
from headrace.profiling.report._summary import stage_rows

PLACES = {"open": "storage", "read": "storage", "decode": "cores", "transform": "cores", "batch": "thread"}
slowness = st.floats(1.3, 100.0)
speeds = st.fixed_dictionaries({name: st.floats(1.0, 1e5) for name in STAGE_NAMES})


@given(stage=st.sampled_from(STAGE_NAMES), factor=slowness)
def test_the_stage_that_is_slow_is_the_one_named(stage, factor):
    verdict = judge(even(**{stage: EVEN / factor}))

    assert (verdict.kind, verdict.stage, verdict.place) == ("stage", stage, PLACES.get(stage, "link"))
    assert verdict.trainer_ratio >= factor * (1 - 1e-9)
    assert verdict.stall == pytest.approx(1 - 1 / verdict.trainer_ratio)
    assert verdict.next_stage == "step"
    assert verdict.next_rate == pytest.approx(EVEN)


@given(stage=st.sampled_from(STAGE_NAMES), factor=slowness)
def test_without_a_trainer_the_slow_stage_is_named_all_the_same(stage, factor):
    verdict = judge(even(trainer=None, **{stage: EVEN / factor}))

    assert (verdict.kind, verdict.stage) == ("stage", stage)
    assert (verdict.trainer, verdict.trainer_ratio, verdict.stall) == (None, None, None)
    assert verdict.next_stage not in (None, "step")
    assert verdict.next_rate > verdict.rate


@given(factor=slowness)
def test_with_a_slow_trainer_the_loader_needs_no_change(factor):
    verdict = judge(even(trainer=2 * EVEN / 1.2 / factor))

    assert (verdict.kind, verdict.stage) == ("trainer", "step")
    assert "The loader needs no change" in verdict.sentence
    assert verdict.remedies == ()
    assert verdict.cores_needed < CORES


@given(scale=st.floats(0.01, 100), wobble=st.floats(0.95, 1.0))
def test_a_balanced_pipeline_is_said_to_be_balanced(scale, wobble):
    rate = EVEN * scale
    verdict = judge(
        even(
            trainer=rate * wobble,
            open=2 * rate,
            read=2 * rate,
            decode=2 * rate * wobble,
            transform=2 * rate * wobble,
            batch=rate,
            transfer=10 * rate,
        )
    )

    assert verdict.kind == "balanced"
    assert set(verdict.equally_slow) == {"storage", "cores", "thread", "trainer"}
    assert "balanced" in verdict.sentence


def test_a_trainer_waits_for_places_that_are_equally_slow():
    verdict = judge(even(trainer=5 * EVEN, open=2 * EVEN, read=2 * EVEN, decode=1.9 * EVEN, transform=2.1 * EVEN))

    assert (verdict.kind, verdict.stage) == ("stage", "decode")
    assert verdict.equally_slow == ("storage",)
    assert "storage" in verdict.sentence


@given(rates=speeds, trainer=st.floats(1.0, 1e5), stage=st.sampled_from(STAGE_NAMES), factor=st.floats(1.0, 50.0))
def test_a_faster_stage_never_makes_a_slower_run(rates, trainer, stage, factor):
    before = judge(even(trainer=trainer, **rates))
    after = judge(even(trainer=trainer, **{**rates, stage: factor * rates[stage]}))

    assert after.rate >= before.rate * (1 - 1e-9)
    assert before.rate <= trainer * (1 + 1e-9)


@given(rates=speeds)
def test_times_add_in_a_place_and_places_work_at_once(rates):
    verdict = judge(even(trainer=None, **rates))

    storage = 1 / rates["open"] + 1 / rates["read"]
    cores = 1 / rates["decode"] + 1 / rates["transform"]
    assert verdict.rate == pytest.approx(1 / max(storage, cores, 1 / rates["batch"], 1 / rates["transfer"]))


def test_reads_count_for_storage_only_if_the_source_does_not_fit_in_memory():
    slow = even(read=100.0)
    large = replace(
        slow,
        reads_cold=None,
        machine=MachineFacts(cores=CORES, memory_bytes=8 * 10**9),
        source=ProfiledSource(kind="folder", name="photos", n_bytes=10**10),
    )
    small = replace(large, source=replace(large.source, n_bytes=10**9))

    assert judge(large).stage == "read"
    assert judge(small).kind == "trainer"


def test_one_core_is_enough_for_a_verdict():
    measurements = replace(
        even(trainer=400.0),
        machine=MachineFacts(cores=1),
        stages=(
            Stage(name="decode", rates=(Rate(cores=1, rate=60.0),), cpu_seconds=1 / 60),
            Stage(name="transform", rates=(Rate(cores=1, rate=600.0),), cpu_seconds=1 / 600),
        ),
    )

    verdict = judge(measurements)

    assert (verdict.stage, verdict.place) == ("decode", "cores")
    assert verdict.rate == pytest.approx(1 / (1 / 60 + 1 / 600))
    assert verdict.cores_needed == pytest.approx(400 / verdict.rate)
    assert "on 1 worker " in verdict.sentence


def test_a_trainer_that_needs_cores_leaves_fewer_to_the_workers():
    measurements = even(trainer=EVEN, decode=1.5 * EVEN, transform=4 * EVEN)
    greedy = replace(measurements, differential=Differential(trainer=EVEN, trainer_cores=CORES / 2))

    assert judge(measurements).kind in ("balanced", "trainer")
    assert (judge(greedy).kind, judge(greedy).stage) == ("stage", "decode")


def test_the_whole_loaders_rate_outranks_the_sum_of_its_stages():
    measurements = even(trainer=4 * EVEN, decode=1_200.0, transform=1_200.0)
    measured = replace(measurements, differential=Differential(trainer=4 * EVEN, loader=540.0))

    verdict = judge(measured)

    assert (verdict.stage, verdict.rate) == ("decode", pytest.approx(540.0))
    assert verdict.explained == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("found", "stage", "place"),
    [
        ({"thread_busy": 0.97, "loader_cores": 3.0}, "batch", "thread"),
        ({"thread_busy": 0.2, "loader_cores": 1.1}, "read", "cores"),
        ({"thread_busy": 0.2, "loader_cores": 7.9}, "sample", "cores"),
        ({"warm_loader": 2_000.0}, "read", "storage"),
        ({}, "sample", "cores"),
    ],
)
def test_of_a_foreign_loader_the_busy_part_is_named(found, stage, place):
    verdict = judge(foreign(**found))

    assert (verdict.kind, verdict.stage, verdict.place) == ("stage", stage, place)
    assert verdict.stall == pytest.approx(0.72)
    assert verdict.remedies


def test_what_no_stage_shows_is_told_from_what_was_busy():
    measurements = even(trainer=3 * EVEN)
    measured = replace(
        measurements, differential=Differential(trainer=3 * EVEN, loader=300.0, thread_busy=0.98, loader_cores=2.0)
    )

    verdict = judge(measured)

    assert (verdict.stage, verdict.place, verdict.rate) == ("batch", "thread", pytest.approx(300.0))
    assert any("15 %" in caution for caution in verdict.cautions)


def test_a_stage_that_takes_most_of_the_time_is_named_though_something_slowed_the_whole():
    measurements = even(trainer=4 * EVEN, decode=1_200.0, transform=1_200.0)
    measured = replace(
        measurements, differential=Differential(trainer=4 * EVEN, loader=350.0, thread_busy=0.2, loader_cores=1.1)
    )

    verdict = judge(measured)

    assert (verdict.stage, verdict.rate) == ("decode", pytest.approx(350.0))
    assert any("0.6 times as fast" in caution for caution in verdict.cautions)


def test_what_a_foreign_sample_waits_for_is_its_storage():
    def judged(cpu_seconds: float) -> str | None:
        sample = Stage(name="sample", rates=curve(200.0), cpu_seconds=cpu_seconds)
        return judge(replace(foreign(loader=None, together=None), stages=(sample,))).stage

    assert judged(cpu_seconds=0.95 * CORES / 200) == "sample"
    assert judged(cpu_seconds=0.1 * CORES / 200) == "read"


def test_without_workers_samples_take_turns_with_the_step():
    sample = Stage(name="sample", place="trainer", rates=(Rate(cores=1, rate=100.0),), cpu_seconds=0.01)
    measurements = replace(
        foreign(loader=None, together=None, trainer=100.0), stages=(sample,), recipe=RecipeSummary(workers=0)
    )

    verdict = judge(measurements)

    assert (verdict.stage, verdict.place) == ("sample", "trainer")
    assert verdict.rate == pytest.approx(50.0)
    assert verdict.remedies[0].kind == "workers"
    assert verdict.remedies[0].rate == pytest.approx(100.0)


def test_with_nothing_measured_there_is_no_verdict():
    verdict = judge(Measurements(machine=MachineFacts(cores=2), source=ProfiledSource(kind="loader", name="x")))

    assert (verdict.kind, verdict.stage, verdict.remedies) == ("unknown", None, ())


def test_a_run_that_was_interrupted_names_no_bottleneck_and_says_what_is_missing():
    """What was not measured is not taken for waiting, nor for anything else."""
    whole = replace(full(), stages=(), complete=False, interrupted=True, missing=("decode, one core to all", "batch"))
    for measurements in (partial(), whole):
        verdict = judge(measurements)

        assert (verdict.kind, verdict.stage, verdict.remedies) == ("unknown", None, ())
        assert "interrupted before it measured: " in verdict.sentence
        assert "; batch" in verdict.sentence
        assert stage_rows(measurements, verdict) == []
    assert "The trainer waits for data 65 % of its time" in verdict.sentence  # that was measured


def test_without_the_stages_a_slow_trainer_is_told_from_the_three_rates():
    """If trainer and loader together are as fast as the trainer alone, no stage can be the bottleneck."""
    found = Differential(trainer=100.0, loader=900.0, together=98.0)
    verdict = judge(replace(partial(), differential=found))

    assert verdict.kind == "trainer"
    assert judge(replace(partial(), differential=replace(found, together=60.0))).kind == "unknown"


def test_a_measured_stall_is_never_left_alone():
    """The loader alone is faster than the trainer, and the trainer waits all the same."""
    rates = Differential(trainer=1_000.0, loader=2_000.0, together=680.0)
    verdict = judge(replace(even(), differential=rates))

    assert verdict.kind == "stage"
    assert verdict.stall == pytest.approx(0.32)
    assert "waits for data 32 % of its time" in verdict.sentence
    assert "no change" not in verdict.sentence
    assert any("slow each other down" in caution for caution in verdict.cautions)


def test_a_stall_that_no_stage_explains_is_waiting():
    dataset = ProfiledSource(kind="dataset", name="photos.hr")
    rates = Differential(trainer=1_000.0, loader=9_000.0, together=680.0)
    verdict = judge(replace(even(), source=dataset, differential=rates))

    assert (verdict.kind, verdict.stage, verdict.place) == ("stage", "wait", "trainer")
    assert "no single stage explains" in verdict.sentence


@given(width=st.floats(0.2, 0.6))
def test_on_a_noisy_machine_the_uncertainty_is_shown_and_decides_the_ranks(width):
    quiet = replace(even(trainer=5_000.0, decode=500.0), recipe=RecipeSummary(workers=2))
    noisy = replace(quiet, differential=Differential(trainer=5_000.0, trainer_spread=width))
    verdict = judge(noisy)

    assert verdict.uncertainty == width
    assert any("±" in caution for caution in verdict.cautions)
    assert not any("±" in caution for caution in judge(quiet).cautions)
    assert all(remedy.gain >= 1 + width for remedy in verdict.remedies)
    for first, second in pairwise(verdict.remedies):
        level = first.at_most == second.at_most and second.rate >= first.rate * (1 - width)
        assert not level or first.rank == second.rank or first.rate > second.rate


def test_a_stall_within_the_uncertainty_is_reported_and_not_blamed_on_a_stage():
    rates = Differential(trainer=1_000.0, loader=9_000.0, together=900.0, together_spread=0.2)
    verdict = judge(replace(even(), differential=rates))

    assert verdict.kind in ("trainer", "balanced")
    assert "10 %" in verdict.sentence
    assert "The loader needs no change" not in verdict.sentence


def test_what_no_stage_shows_is_a_row_of_its_own_and_the_only_bottleneck():
    """Of two rows for one stage in one place only the larger is marked."""
    found = Differential(loader=100.0, warm_loader=900.0)
    read = Stage(name="read", rates=curve(9_000.0), cold_rates=(Rate(cores=1, rate=2_000.0),))
    measurements = replace(even(), stages=(read,), differential=found, reads_cold=True)
    rows = stage_rows(measurements, judge(measurements))

    assert [(row.title, row.is_bottleneck) for row in rows] == [
        ("read", False),
        ("read, the rest", True),
        ("copy", False),
    ]


def test_the_sentence_has_the_figures():
    sentence = judge(full()).sentence

    for words in ("Decoding on 8 workers", "128 images/s", "366 images/s", "2.86 times", "65 %"):
        assert words in sentence


def test_other_load_on_the_machine_is_a_caution_beside_the_verdict():
    verdict = judge(replace(full(), other_load=("loader alone", "decode")))
    assert any("loader alone; decode" in caution for caution in verdict.cautions)
    assert not any("Other programs" in caution for caution in judge(full()).cautions)
