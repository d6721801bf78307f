# SPDX-License-Identifier: Apache-2.0
"""Remedies are predicted by the verdict's own arithmetic, ranked by it, and each says how to apply it."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.profiling.profiles import CORES, EVEN, STAGE_NAMES, curve, even, foreign, full

from headrace.profiling import (
    Differential,
    FormatCost,
    FormatMix,
    MachineFacts,
    Measurements,
    ProfiledSource,
    RawAndRecords,
    RecipeSummary,
    Remedy,
    Stage,
    judge,
)

rates = st.floats(10.0, 5_000.0)


def offered(measurements: Measurements) -> dict[str, Remedy]:
    return {remedy.kind: remedy for remedy in judge(measurements).remedies}


def decode_bound(**changes: object) -> Measurements:
    return replace(even(decode=250.0), **changes)


def cost(name: str, *, cpu_seconds: float, n_bytes: float = 1e6, **more: object) -> FormatCost:
    return FormatCost(format=name, read_bytes=n_bytes, stored_bytes=n_bytes, cpu_seconds=cpu_seconds, **more)


@given(stages=st.fixed_dictionaries(dict.fromkeys(STAGE_NAMES, rates)), seconds=st.floats(1e-4, 0.1))
def test_remedies_are_ranked_worthwhile_and_bounded_by_the_trainer(stages, seconds):
    measurements = replace(
        even(**stages),
        formats=(cost("hri:fast", cpu_seconds=seconds), cost("raw", cpu_seconds=seconds / 9, n_bytes=9e6)),
        raw_and_records=RawAndRecords(images=100, records_cold=3 * stages["read"], records_warm=1e5),
    )
    verdict = judge(measurements)

    order = [(remedy.at_most, -remedy.rate) for remedy in verdict.remedies]
    assert order == sorted(order)  # what could help at most comes after what is predicted
    assert all(remedy.rate <= EVEN * (1 + 1e-9) for remedy in verdict.remedies)
    assert all(remedy.gain >= 1.03 and remedy.why for remedy in verdict.remedies)


@given(seconds=st.floats(1e-4, 0.1), factor=st.floats(1.0, 20.0))
def test_a_cheaper_format_never_promises_less(seconds, factor):
    def promised(cpu_seconds: float) -> float:
        found = offered(decode_bound(formats=(cost("hri:fast", cpu_seconds=cpu_seconds),))).get("format")
        return found.rate if found else 0.0

    assert promised(seconds / factor) >= promised(seconds) * (1 - 1e-9)


def test_another_format_is_predicted_from_its_costs():
    measurements = decode_bound(formats=(cost("hri:fast", cpu_seconds=0.01, n_bytes=2e6),))

    remedy = offered(measurements)["format"]

    # 8 cores at 10 ms give 800; storage gave 4 GB/s, which is 2000 of 2 MB.
    assert remedy.rate == pytest.approx(800.0)
    assert remedy.command == "headrace build photos photos.hr --format hri:fast"


def test_a_larger_format_is_offered_only_if_its_speed_is_worth_its_size():
    """Each doubling of the size must make it 10 % faster: 3 % are not worth five times the disk."""
    small, large = cost("hri:dense", cpu_seconds=0.0103), cost("raw", cpu_seconds=0.01, n_bytes=5e6)
    dear = replace(small, cpu_seconds=0.0130, cpu_seconds_crowded=0.0130)
    measurements = decode_bound(machine=MachineFacts(cores=CORES), reads_cold=False)

    assert "hri:dense" in offered(replace(measurements, formats=(small, large)))["format"].title
    assert "raw" in offered(replace(measurements, formats=(dear, large)))["format"].title


def test_the_loader_of_a_dataset_scales_the_costs_that_were_calibrated():
    """Other formats take as much longer beside the trainer as the dataset's own does."""
    source = ProfiledSource(kind="dataset", name="photos.hr", formats={"png": 1.0})
    costs = (cost("png", cpu_seconds=CORES / 500), cost("hri:fast", cpu_seconds=CORES / 1_600))
    stages = (Stage(name="decode", rates=curve(400.0)),)
    measurements = decode_bound(source=source, formats=costs, stages=stages, reads_cold=False)

    assert offered(measurements)["format"].rate == pytest.approx(1_000.0)
    assert offered(replace(measurements, differential=None))["format"].rate == pytest.approx(1_600 * 400 / 500)


def test_a_lossy_format_is_offered_only_to_images_that_are_so_already():
    lossy = (cost("jpeg", cpu_seconds=0.001, lossless=False),)
    source = ProfiledSource(kind="folder", name="photos", formats={"png": 0.5, "jpeg": 0.5})

    assert "format" not in offered(decode_bound(formats=lossy))
    assert "format" in offered(decode_bound(formats=lossy, source=source))


def test_what_is_stored_so_already_is_kept_as_it_is():
    """A lossy file that is encoded again loses more."""
    source = ProfiledSource(kind="folder", name="photos", formats={"jpeg": 1.0})
    formats = (cost("raw", cpu_seconds=1e-5, n_bytes=1e4), cost("jpeg", cpu_seconds=1e-5, n_bytes=1e3, lossless=False))

    remedy = offered(decode_bound(formats=formats, source=source))["format"]

    assert remedy.title == "keep the images as jpeg, in records"  # as fast as the other for this trainer, and smaller
    assert remedy.command.endswith("--format keep")


def test_a_lossless_format_of_some_files_is_made_of_all():
    """To keep the files as they are would leave the slow ones."""
    source = ProfiledSource(kind="folder", name="photos", formats={"png": 0.5, "webp": 0.5})

    remedy = offered(decode_bound(formats=(cost("png", cpu_seconds=1e-5),), source=source))["format"]

    assert remedy.command.endswith("--format png")


@pytest.mark.parametrize(
    ("name", "command"),
    [(".", "build . dataset.hr"), ("..", "build .. dataset.hr"), ("/", "build / dataset.hr"), ("a b/", "'a b.hr'")],
)
def test_a_dataset_is_built_beside_its_source(name, command):
    source = ProfiledSource(kind="folder", name=name, formats={"png": 1.0})

    assert command in offered(decode_bound(formats=(cost("raw", cpu_seconds=1e-5),), source=source))["format"].command


@pytest.mark.parametrize("kind", ["dataset", "loader"])
def test_a_dataset_is_not_told_to_become_what_it_is(kind):
    source = ProfiledSource(kind=kind, name="photos.hr", formats={"hri:fast": 1.0})
    measurements = decode_bound(formats=(cost("hri:fast", cpu_seconds=0.001),), source=source)

    assert "format" not in offered(measurements)


def test_a_dataset_is_stored_anew_from_itself():
    source = ProfiledSource(kind="dataset", name="photos.hr", formats={"png": 1.0})
    measurements = decode_bound(formats=(cost("hri:fast", cpu_seconds=0.001),), source=source)

    assert offered(measurements)["format"].command == "headrace build photos.hr photos.new.hr --format hri:fast"


def test_a_mix_is_offered_where_it_beats_every_single_format():
    # The cores alone give 500 of hri:dense, storage of 4 GB/s 400 of raw: half of each gives both some rest.
    formats = (cost("hri:dense", cpu_seconds=CORES / 500), cost("raw", cpu_seconds=1e-4, n_bytes=1e7))
    options = RecipeSummary(options=("--crop", "64"))
    better = decode_bound(formats=formats, mix=FormatMix(shares={"hri:dense": 0.5, "raw": 0.5}), recipe=options)
    equal = replace(better, mix=FormatMix(shares={"hri:dense": 0.99, "raw": 0.01}))

    assert offered(better)["plan"].rate == pytest.approx(4e9 / 5.5e6)
    assert offered(better)["plan"].command.splitlines() == [
        "headrace plan photos --crop 64 -o plan.json",
        "headrace build photos photos.hr --plan plan.json",
    ]
    assert "plan" not in offered(equal)


@given(read=st.floats(50.0, 400.0), records=st.floats(500.0, 2_000.0))
def test_records_replace_open_and_read(read, records):
    pair = RawAndRecords(images=20_000, raw_cold=read, records_cold=records, records_warm=1e6)
    measurements = replace(even(trainer=None, open=2 * read, read=2 * read), raw_and_records=pair)

    verdict = judge(measurements)
    remedy = offered(measurements)["records"]

    assert verdict.rate == pytest.approx(read)
    assert remedy.rate == pytest.approx(min(records, 1 / (2 / 4_000 + 1e-6)))
    assert remedy.command == "headrace build photos photos.hr --format keep"


def test_idle_cores_are_offered_to_more_workers_as_far_as_the_curve_carries():
    slow = Stage(name="decode", rates=curve(800.0, efficiency=0.5), cpu_seconds=0.01)
    measurements = replace(even(), stages=(slow,), recipe=RecipeSummary(workers=2))

    remedy = offered(measurements)["workers"]

    assert judge(measurements).rate == pytest.approx(400.0)
    assert remedy.rate == pytest.approx(800.0)
    assert remedy.code == "num_workers=8"
    assert "workers" not in offered(replace(measurements, recipe=RecipeSummary(workers=CORES)))


def test_workers_that_wait_may_be_more_than_the_cores():
    waiting = offered(foreign(loader_cores=0.8, thread_busy=0.1))
    working = offered(foreign(loader_cores=8.0, thread_busy=0.1))

    assert waiting["workers"].rate == pytest.approx(560.0)  # twice the 280 that the run had
    assert waiting["workers"].code == "num_workers=16"
    assert "workers" not in working
    assert "cores" in working
    assert "cores" not in waiting


def test_workers_that_wait_beside_measured_stages_may_be_more_too():
    """Reads that workers wait for show in the whole loader only: storage and cores do not overlap by themselves."""
    measurements = replace(
        even(decode=800.0, read=800.0),
        differential=Differential(trainer=EVEN, loader=200.0, loader_cores=2.0, thread_busy=0.0),
    )

    verdict = judge(measurements)

    assert (verdict.stage, verdict.place) == ("read", "cores")
    assert offered(measurements)["workers"].code == "num_workers=16"
    assert 200.0 < offered(measurements)["workers"].rate < 400.0


def test_memory_ends_the_matter_if_all_of_it_fits():
    machine = MachineFacts(cores=CORES, memory_bytes=64 * 10**9)
    fits = replace(
        even(read=100.0), machine=machine, source=ProfiledSource(kind="folder", name="-my photos", n_bytes=20 * 10**9)
    )
    too_large = replace(fits, source=replace(fits.source, n_bytes=200 * 10**9))

    remedy = offered(fits)["cache"]

    assert remedy.rate == pytest.approx(EVEN)
    assert "20.0 GB" in remedy.title
    assert shlex.split(remedy.command)[1] == "./-my photos"
    assert "cache" not in offered(too_large)


def test_the_offload_workers_rate_adds_to_the_hosts_while_the_cores_are_the_bottleneck():
    dataset = ProfiledSource(kind="dataset", name="photos.hr")
    host = judge(decode_bound(source=dataset)).rate
    assert "offload" not in offered(replace(even(read=100.0), source=dataset))
    assumed = offered(decode_bound(source=dataset))["offload"]
    assert (assumed.rate, assumed.at_most) == (pytest.approx(host * (CORES + 1) / CORES), True)


def test_a_slow_collate_function_is_taken_out_of_its_thread():
    remedy = offered(even(batch=100.0))["collate"]

    # 10 ms per image, divided among eight workers that have 0.5 ms per image to do already.
    assert remedy.rate == pytest.approx(1 / (0.01 / CORES + 2 / 4_000))
    assert remedy.code == "collate_fn=None"


def test_more_cores_are_the_last_resort_and_said_to_be_a_guess():
    remedy = offered(decode_bound())["cores"]

    assert remedy.at_most
    assert remedy.rate == pytest.approx(EVEN)
    assert "a machine with 34 such cores instead of 8" in remedy.title


@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_every_bottleneck_has_some_remedy(stage):
    assert judge(even(**{stage: 100.0})).remedies


def test_a_measured_alternative_goes_before_general_advice():
    assert "stage" in offered(decode_bound())
    assert "stage" not in offered(decode_bound(formats=(cost("hri:fast", cpu_seconds=0.01),)))


def test_predictions_keep_to_what_the_loader_did_as_a_whole():
    loader = Differential(trainer=EVEN, loader=200.0)
    stages = decode_bound(recipe=RecipeSummary(workers=4), stages=(Stage(name="decode", rates=curve(500.0)),))

    exact = offered(stages)["workers"]
    measured = offered(replace(stages, differential=loader))["workers"]

    assert exact.rate == pytest.approx(500.0)
    assert measured.rate == pytest.approx(400.0)
    assert measured.gain == pytest.approx(exact.gain)


def test_the_full_profile_gets_what_is_predicted_before_what_could_help_at_most():
    remedies = judge(full()).remedies

    assert remedies[0].kind == "format"
    assert {"format", "cores"} <= {remedy.kind for remedy in remedies}
    assert [remedy.at_most for remedy in remedies] == sorted(remedy.at_most for remedy in remedies)
