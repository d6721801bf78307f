# SPDX-License-Identifier: Apache-2.0
"""`headrace plan`: plans that are written, machines that are sized, and errors that say what to do."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from tests.planning.conftest import make_cost
from tests.planning.pictures import make_folder
from typer.testing import CliRunner

import headrace
from headrace import profiling
from headrace.cli import app
from headrace.planning import Calibration, Plan, Sizing, usual_transform


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in an empty folder, in a terminal that is wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(app, ["plan", *map(str, arguments)])


@pytest.fixture
def run_size(run):  # noqa: ARG001 - sets folder and terminal
    """Run `headrace size` as `run` runs `headrace plan`."""
    return lambda *arguments: CliRunner().invoke(app, ["size", *map(str, arguments)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("plan") / "photos", 12)


@pytest.fixture(scope="module")
def made(folder, tmp_path_factory):
    """A plan that was measured."""
    path = tmp_path_factory.mktemp("made") / "plan.json"
    words = ["plan", str(folder), "--quick", "--crop", "48", "--batch-size", "4", "--emulate", "storage=5MB/s,cores=1"]
    result = CliRunner().invoke(app, [*words, "--step-ms", "3", "-o", str(path)])
    assert result.exit_code == 0, result.output
    return path, result.output


def test_a_plan_is_measured_written_shown_and_built(folder, made, tmp_path):
    path, output = made
    plan = Plan.from_json(path)

    assert plan.calibration.images == 12
    assert plan.machine.storage_rate == 5e6
    assert plan.step == 0.003
    for word in ("hri:dense", "hri:fast", "raw", "png", "images/s", f"--plan {path}"):
        assert word in output.replace("\n", "")
    report = headrace.build(folder, tmp_path / "photos.hr", plan=path)
    assert report.samples == 12


def test_a_plan_is_printed_as_json_or_not_at_all(run, made):
    printed = run("--calibration", made[0], "--json")
    quiet = run("--calibration", made[0], "-q", "-o", "quiet.json")

    assert Plan.from_json(json.loads(printed.output)) == Plan.from_json("plan.json") == Plan.from_json("quiet.json")
    assert quiet.output == ""


def test_a_plan_is_made_again_from_what_was_measured(run, made):
    result = run(
        "--calibration", made[0], "--emulate", "storage=1MB/s,cores=64", "--renditions", 2, "--formats", "raw,png"
    )

    assert result.exit_code == 0, result.output
    plan = Plan.from_json("plan.json")
    assert plan.renditions == 2
    assert {each.format for each in plan.shares} == {"raw", "png"}


def test_size_shows_the_cheapest_machine_for_each_step(run_size, made, tmp_path):
    grid = ("--cores", "1..32", "--storage", "5..500MB/s", "--step-ms", "1,20", "-o", "sizes.json")
    result = run_size("--calibration", made[0], *grid, "--price", "vcpu-hour=0.04,accelerator-hour=2")

    assert result.exit_code == 0, result.output
    found = Sizing.from_json(json.loads((tmp_path / "sizes.json").read_text()))
    assert len(found.points) == 6 * 6 * 2
    assert len(found.best) == 2
    assert "20 ms" in result.output


def test_size_uses_the_plan_in_the_current_folder_and_its_step(run_size, made, tmp_path):
    (tmp_path / "plan.json").write_bytes(made[0].read_bytes())
    result = run_size("--cores", 2, "--storage", "1GB/s", "--offload-workers", "0,3", "--offload-ms", 50, "--json")

    assert result.exit_code == 0, result.output
    found = Sizing.from_json(json.loads(result.output))
    assert [(each.offload_workers, each.step) for each in found.points] == [(0, 0.003), (3, 0.003)]
    assert "offload" in run_size("--offload-workers", 1).output
    assert run_size("-q").output == ""


@pytest.fixture
def report(made, tmp_path):
    """The folder of a profile that measured costs, a trainer and storage."""
    read = profiling.Stage(
        name="read",
        place="cores",
        rates=(profiling.Rate(cores=1, rate=5000.0),),
        cold_rates=(profiling.Rate(cores=1, rate=300.0), profiling.Rate(cores=2, rate=500.0)),
        n_bytes=20_000.0,
    )
    measurements = profiling.Measurements(
        machine=profiling.MachineFacts(cores=2),
        source=profiling.ProfiledSource(kind="folder", name="photos", samples=12),
        stages=(read,),
        differential=profiling.Differential(trainer=100.0, step_seconds=0.04, trainer_cores=0.5),
        calibration=Plan.from_json(made[0]).calibration.to_json(),
        recipe=profiling.RecipeSummary(options=("--crop", "48", "--batch-size", "4")),
        reads_cold=True,
    )
    profiling.Report(measurements).save(tmp_path / "report")
    return tmp_path / "report"


def test_a_report_has_what_a_plan_needs(run, report):
    result = run("--report", report)

    assert result.exit_code == 0, result.output
    plan = Plan.from_json("plan.json")
    assert plan.machine.storage_rate == 500 * 20_000
    assert plan.machine.trainer_cores == 0.5
    assert plan.step == 0.04


def test_a_run_that_reads_from_memory_is_planned_without_a_limit_of_storage(run, report):
    """As the profile judged it: otherwise the plan would fix a bottleneck that the run does not have."""
    found = profiling.Report.load(report).measurements
    profiling.Report(dataclasses.replace(found, reads_cold=False)).save(report)

    assert run("--report", report).exit_code == 0
    assert Plan.from_json("plan.json").machine.storage_rate == math.inf


def test_a_plan_names_the_commands_that_follow_it(run, report, folder, tmp_path):
    """Build to a free path, load, and profile with the options of the run that was planned for."""
    result = run(folder, "--report", report)
    target = folder.with_name("photos.hr")
    lines = result.output.splitlines()

    assert f"next: headrace build {folder} {target} --plan plan.json" in lines
    assert f"then, in your code: headrace.Loader({str(target)!r}, plan='plan.json', batch_size=4)" in lines
    shown = f"and to measure the result: headrace profile {target} --crop 48 --batch-size 4 --step-ms 40"
    assert shown in lines
    headrace.build(folder, tmp_path / "photos.hr", plan=tmp_path / "plan.json")


def test_a_faster_format_that_is_not_worth_its_size_is_named_with_the_option_that_takes_it(run, tmp_path):
    costs = (make_cost("png", 1.0, 10.0), make_cost("raw", 5.0, 9.7))
    calibration = Calibration(costs=costs, images=100, sampled=1, batch_size=1, source_format="png")
    (tmp_path / "costs.json").write_text(json.dumps(calibration.to_json()))
    words = ("--calibration", "costs.json", "--emulate", "storage=100GB/s,cores=1")
    result = run(*words)

    assert "one format is best: png" in result.output
    assert "raw alone would be 3% faster and take 5.0x the disk" in result.output
    assert "--disk-budget 500MB" in result.output
    assert "one format is best: raw" in run(*words, "--disk-budget", "500MB").output


def test_size_uses_the_costs_and_the_trainer_of_a_report(run_size, report):
    result = run_size("--report", report, "--cores", "1,2", "--storage", "1GB/s", "--json")

    assert result.exit_code == 0, result.output
    found = Sizing.from_json(json.loads(result.output))
    assert [(point.cores, point.step) for point in found.points] == [(1, 0.04), (2, 0.04)]


def test_a_plan_made_again_is_for_the_same_machine_and_step(run, made):
    result = run("--calibration", made[0], "-o", "new/again.json")

    assert result.exit_code == 0, result.output
    first, again = Plan.from_json(made[0]), Plan.from_json("new/again.json")
    assert (again.machine.storage_rate, again.machine.cores, again.step) == (5e6, 1, 0.003)
    assert again.shares == first.shares


def test_what_was_measured_for_a_report_is_not_emulated(run, report):
    assert run("--report", report).exit_code == 0
    measured = Plan.from_json("plan.json").machine
    assert run("--report", report, "--emulate", "storage=5MB/s").exit_code == 0
    emulated = Plan.from_json("plan.json").machine

    assert (measured.cores, measured.emulated) == (2, False)
    assert (emulated.storage_rate, emulated.emulated) == (5e6, True)


def test_a_report_without_costs_says_so(run, report):
    found = profiling.Report.load(report).measurements
    profiling.Report(dataclasses.replace(found, calibration=None)).save(report)
    result = run("--report", report)

    assert result.exit_code == 2
    assert "has no costs of formats" in " ".join(result.output.replace("│", " ").split())


def test_damaged_files_do_not_count_and_are_reported(run, tmp_path):
    photos = make_folder(tmp_path / "my photos", 5, classes=1)
    (photos / "class-0" / "bad.png").write_bytes(b"no picture")
    words = ("--quick", "--crop", 32, "--batch-size", 2, "--formats", "raw", "--emulate", "storage=1MB/s,cores=1")
    result = run("my photos", *words)

    assert result.exit_code == 0, result.output
    assert "1 of 6 images could not be decoded and did not count, such as class-0/bad.png:" in result.output
    assert "headrace build 'my photos' 'my photos.hr' --plan plan.json --on-error skip" in result.output
    assert headrace.build("my photos", "photos.hr", plan="plan.json", on_error="skip").samples == 5


def test_a_plan_uses_the_same_transforms_as_a_profile(made):
    recipe = Plan.from_json(made[0]).calibration.recipe

    assert recipe["transforms"] == [step.to_json() for step in usual_transform(48)]


def test_machines_with_which_the_gpu_waits_are_named(run_size, made):
    words = ("--calibration", made[0], "--cores", 1, "--storage", "1MB/s", "--step-ms", 0.01)
    free, priced = run_size(*words, "-o", "sizes.json"), run_size(*words, "--price", "vcpu-hour=0.04")

    assert "none of these machines keeps the GPU busy with a step of 0.01 ms; the fastest" in free.output
    assert "/hour" not in free.output
    assert "most images for the money" in priced.output
    assert "$/hour" in priced.output
    assert "wrote 1 machine to sizes.json" in free.output


@pytest.mark.parametrize(
    ("verb", "default"), [("plan", "all lossless"), ("build", "from the plan"), ("offload", "all")]
)
def test_defaults_are_shown_in_the_help(verb, default, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(app, [verb, "--help"])

    assert f"[default: ({default})]" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "SOURCE_OR_DATASET"),
        (["here", "there"], "unexpected extra argument"),
        (["nowhere"], "nowhere does not exist"),
        (["photos", "--recipe", "r.json", "--crop", "8"], "omit crop"),
        (["--calibration", "PLAN", "--disk-budget", "1kB"], "the disk budget must be at least"),
        (["--calibration", "PLAN", "--disk-budget", "much"], "a size must be written as"),
        (["--calibration", "PLAN", "--emulate", "gpus=3"], "'gpus=3' cannot be emulated"),
        (["--calibration", "PLAN", "--formats", "webp"], "webp was not calibrated"),
        (["--calibration", "PLAN", "--formats", " , "], "name at least one format"),
        (["--calibration", "PLAN", "--crop", "8"], "omit recipe, transform, crop and batch_size"),
        (["--calibration", "PLAN", "--report", "r"], "give one of them"),
        (["--calibration", "PLAN", "-o", "."], "--output must be a file, such as plan.json"),
        (["--report", "nothing"], "nothing"),
    ],
)
def test_wrong_options_are_named(run, made, words, message):
    result = run(*[str(made[0]) if word == "PLAN" else word for word in words])

    assert result.exit_code in (1, 2)
    assert message in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--step-ms", "5"], "SOURCE_OR_DATASET"),
        (["photos"], "--step-ms"),
        (["--calibration", "PLAN", "--cores", "8..2"], "a range must have 0 < start"),
        (["--calibration", "PLAN", "--storage", "fast"], "a rate must be written as"),
        (["--calibration", "PLAN", "--offload-workers", "1.5"], "--offload-workers must be integers"),
        (["--calibration", "PLAN", "--price", "gpu=3"], "a price must be one of"),
        (["--calibration", "PLAN", "--cores", "0"], "must be > 0"),
    ],
)
def test_size_names_what_is_wrong(run_size, made, words, message):
    result = run_size(*[str(made[0]) if word == "PLAN" else word for word in words])

    assert result.exit_code in (1, 2)
    assert message in " ".join(result.output.replace("│", " ").split())
