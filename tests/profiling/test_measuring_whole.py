# SPDX-License-Identifier: Apache-2.0
"""A profile from end to end: what it measures, what it leaves as it was, how it is refused, and the command."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tests.profiling.bottlenecks import (
    BATCH,
    COUNT,
    SLOW,
    fast_step,
    slow_collate,
    slow_function,
    write_dataset,
    write_folder,
)
from typer.testing import CliRunner

import headrace
from headrace import profiling
from headrace.cli import app
from headrace.errors import HeadraceError, ProfileError
from headrace.profiling.report import _html
from headrace.transforms import CenterCrop, PerBatch

pytestmark = pytest.mark.alone

SHORT = 0.4


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("whole") / "small.hr")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("whole") / "photos", count=24)


def stage_names(report):
    return [stage.name for stage in report.measurements.stages]


def test_a_dataset_is_measured_stage_by_stage(dataset):
    updates = []
    report = headrace.profile(dataset, 0.001, batch_size=BATCH, crop=16, seconds=SHORT, progress=updates.append)
    found = report.measurements

    assert {"read", "decode", "transform", "batch"} <= set(stage_names(report))
    assert found.source.kind == "dataset"
    assert found.source.samples == COUNT
    assert found.source.formats == {"hri:fast": 1.0}
    assert found.differential.stated
    assert found.differential.trainer == pytest.approx(BATCH / 0.001)
    assert found.differential.loader > 0 < found.differential.together
    assert found.energy.estimated or found.energy.meter != "cpu time"
    assert found.memory is None or found.memory.peak_bytes > 0
    assert found.recipe.transforms[0] == "random_resized_crop 16 x 16"
    assert updates[0].doing == "loader alone"
    assert updates[-1].number == updates[-1].total
    assert profiling.Report.from_json(report.to_json()).measurements == found


def test_a_folder_is_measured_and_compared_with_records(folder, monkeypatch):
    """The temporary folder is left as it was."""
    monkeypatch.setattr("headrace.profiling.subjects._schedule.Schedule.left", 1.0)  # on a busy machine too
    before = set(Path(tempfile.gettempdir()).iterdir())
    report = headrace.profile(folder, batch_size=BATCH, crop=16, cold=True)
    found = report.measurements
    left = {path for path in set(Path(tempfile.gettempdir()).iterdir()) - before if path.name.startswith("headrace")}

    assert {"open", "read", "decode", "transform", "batch"} <= set(stage_names(report))
    assert found.source.kind == "folder"
    assert found.reads_cold
    assert found.raw_and_records.images == 24
    assert found.raw_and_records.records_cold > 0 < found.raw_and_records.raw_cold
    assert found.differential.trainer is None
    assert found.differential.warm_loader > 0
    assert left == set()


def test_a_recipe_is_obeyed(dataset, folder, tmp_path):
    """What a loader wrote down holds for the dataset, and for a folder as far as it has the fields."""
    with headrace.Loader(
        dataset, batch_size=5, fields=["image"], transform=[CenterCrop(24)], layout="HWC", output="numpy"
    ) as loader:
        (tmp_path / "recipe.json").write_text(json.dumps(loader.recipe))
    for source in (dataset, folder):
        batches = []
        report = headrace.profile(source, batches.append, recipe=tmp_path / "recipe.json", seconds=SHORT)

        assert report.measurements.recipe.batch_size == 5
        assert batches[0]["image"].shape == (5, 24, 24, 3)
        assert ("label" in batches[0]) == (source == folder)


def test_damaged_files_are_noted_and_passed_over(tmp_path):
    folder = write_folder(tmp_path / "photos", count=12)
    whole = next(folder.rglob("*.png"))
    (whole.parent / "cut.png").write_bytes(whole.read_bytes()[:-200])
    (whole.parent / "none.png").write_bytes(b"nothing")
    report = headrace.profile(folder, batch_size=4, crop=16, seconds=SHORT)

    assert report.measurements.differential.loader > 0
    assert any("2 files could not be loaded" in note for note in report.measurements.notes)
    assert {"decode", "transform", "batch"} <= set(stage_names(report))


def test_files_that_are_all_damaged_are_refused(tmp_path):
    folder = write_folder(tmp_path / "photos", count=3)
    for path in folder.rglob("*.png"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    with pytest.raises(ProfileError, match=r"none of the 3 files can be loaded; class\d/00\d.png: "):
        headrace.profile(folder, batch_size=4, crop=16, seconds=SHORT)
    for path in folder.rglob("*.png"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(HeadraceError, match=r"such as class\d/00\d.png: "):
        headrace.profile(folder, batch_size=4, crop=16, seconds=SHORT)


def test_images_in_archives_are_measured_too(tmp_path):
    """They are no files of their own, so they are read through the source, and nothing is dropped from memory."""
    files = sorted(write_folder(tmp_path / "photos", count=12).rglob("*.png"))
    with tarfile.open(tmp_path / "photos.tar", "w") as archive:
        for path in files:
            archive.add(path, path.name)
    report = headrace.profile(tmp_path / "photos.tar", batch_size=4, crop=16, seconds=SHORT)

    assert stage_names(report)[:2] == ["read", "decode"]
    assert report.measurements.source.samples == 12
    with pytest.raises(ProfileError, match="one file per image"):
        headrace.profile(tmp_path / "photos.tar", cold=True)


def test_cores_that_there_are_not_are_noted(dataset):
    report = headrace.profile(dataset, batch_size=BATCH, crop=16, seconds=SHORT, cores=(1, 4096))

    assert any("not measured with 4096 cores" in note for note in report.measurements.notes)


def test_functions_and_collate_are_measured_by_themselves(dataset):
    """Functions are a stage of the one thread that finishes batches, and so is collate; their names are given."""
    transform = [CenterCrop(16), slow_function, PerBatch(np.asarray)]
    with headrace.Loader(
        dataset, batch_size=BATCH, transform=transform, collate_fn=slow_collate, output="numpy"
    ) as loader:
        report = headrace.profile(loader, seconds=SHORT)
    stages = {stage.detail: stage for stage in report.measurements.stages if stage.place == "thread"}

    assert set(stages) == {"slow_function, asarray", "slow_collate"}
    assert stages["slow_collate"].name == "batch"
    assert stages["slow_collate"].rates[0].rate == pytest.approx(BATCH / SLOW, rel=0.2)


def test_a_loader_is_left_where_it_was(dataset):
    with headrace.Loader(dataset, batch_size=BATCH, shuffle=True, output="numpy") as loader:
        loader.set_epoch(3)
        before = loader.state_dict()
        first = next(iter(loader))["label"].tolist()
        loader.load_state_dict(before) if loader._running() is None else loader._end_iteration("to begin again")
        loader.set_epoch(3)
        headrace.profile(loader, fast_step, seconds=SHORT)

        assert next(iter(loader))["label"].tolist() == first


def test_any_iterable_can_be_profiled():
    report = headrace.profile([np.zeros((4, 3))] * 40, fast_step, seconds=SHORT)

    assert report.measurements.recipe.batch_size == 4
    assert report.verdict.stage == "step"
    assert any("does not expose" in note for note in report.measurements.notes)


def test_a_trainer_gets_tensors_and_labels_of_a_folder(folder):
    torch = pytest.importorskip("torch")
    seen = []

    def step(batch):
        seen.append(batch)
        batch["image"].float().mean()

    headrace.profile(folder, step, batch_size=BATCH, crop=16, seconds=SHORT)

    assert all(isinstance(batch["image"], torch.Tensor) for batch in seen)
    assert {int(label) for batch in seen for label in batch["label"]} == {0, 1, 2}


@pytest.mark.parametrize(
    ("subject", "options", "message"),
    [
        (3, {}, "subject must be"),
        (iter([1]), {}, "iterated repeatedly"),
        ([1], {"crop": 3}, "crop has no meaning"),
        ([1], {"cold": True}, "cold has no meaning"),
        ([1], {"emulate": "storage=1MB/s"}, "emulated storage"),
        ([1], {"emulate": "cores=4096"}, "from 1 to"),
        ([1], {"emulate": "cats=2"}, "cats"),
        ("nowhere", {}, "does not exist"),
        ([1], {"seconds": -1.0}, "seconds must be"),
        ([1], {"workdir": "nowhere"}, "must be a folder"),
    ],
    ids=["number", "iterator", "crop", "cold", "storage", "cores", "word", "path", "seconds", "workdir"],
)
def test_what_cannot_be_profiled_says_so(subject, options, message):
    with pytest.raises((HeadraceError, ValueError), match=message):
        headrace.profile(subject, **{"seconds": 0.1, **options})


def test_our_loader_says_where_its_own_options_are(dataset):
    with headrace.Loader(dataset, output="numpy") as loader:
        hints = (({"cold": True}, "direct_io=True"), ({"emulate": "storage=1MB/s"}, "profile its dataset"))
        for options, hint in hints:
            with pytest.raises(ProfileError, match=hint):
                headrace.profile(loader, **options)


def test_nothing_of_it_needs_torch(folder, dataset):
    """A folder and a dataset are profiled in a Python that has none."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import headrace\n"
        "for source in sys.argv[1:]:\n"
        "    report = headrace.profile(source, len, batch_size=8, crop=16, seconds=0.2)\n"
        "    assert report.measurements.differential.trainer > 0\n"
    )
    subprocess.run([sys.executable, "-c", code, folder, dataset], check=True)


# The live view.


def progress(number, found):
    return profiling.ProfileProgress("decode" if number < 2 else "", number, 2, 1.0, 2.0, found)


def test_a_terminal_is_shown_what_was_found():
    screen = Console(file=io.StringIO(), force_terminal=True, width=80)
    with profiling.shown(screen) as hook:
        hook(progress(0, ()))
        hook(progress(1, ("loader alone: 7 images/s",)))
        time.sleep(0.3)
    text = screen.file.getvalue()

    assert "7 images/s" in text
    assert "Ctrl-C" in text


def test_a_log_gets_each_finding_once():
    screen = Console(file=io.StringIO(), width=80)
    with profiling.shown(screen) as hook:
        hook(progress(0, ()))
        hook(progress(1, ("loader alone: 7 images/s",)))
        hook(progress(2, ("loader alone: 7 images/s", "decode: 9 images/s")))

    assert screen.file.getvalue().splitlines() == [
        "[1/2] decode …",
        "loader alone: 7 images/s",
        "[2/2] decode …",
        "decode: 9 images/s",
    ]


# The command.


def test_the_command_tells_what_is_wrong(tmp_path, monkeypatch, dataset):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("number = 3\n\ndef broken(batch):\n    return batch['cat']\n")
    for arguments, code, message in (
        (("nowhere",), 1, "does not exist"),
        ((dataset, "--step-ms", "3", "--train", "a:b"), 2, "exclude each other"),
        ((dataset, "--train", "nothing"), 2, "package.module:function"),
        ((dataset, "--train", "no.such:thing"), 2, "cannot be imported"),
        ((dataset, "--train", "mine:number"), 2, "must name a function"),
        ((dataset, "--cores", "1,x"), 2, "write 1,2,4"),
        ((dataset, "--emulate", "cats=2"), 1, "cats"),
        ((dataset, "--seconds", "1", "--train", "mine:broken"), 1, "mine:broken raised KeyError: 'cat'"),
        ((dataset, "-o", "mine.py"), 2, "is a file"),
        ((dataset, "-o", "mine.py/report"), 1, "mine.py"),
        ((dataset, "--workdir", "nowhere"), 2, "does not exist"),
    ):
        done = CliRunner().invoke(app, ["profile", *map(str, arguments)])

        assert done.exit_code == code, done.stderr
        assert message in " ".join(done.stderr.replace("│", " ").split())


def test_the_result_can_be_json_or_nothing(dataset):
    words = ["profile", str(dataset), "--crop", "16", "--batch-size", str(BATCH), "--seconds", "0.2"]
    printed = CliRunner().invoke(app, [*words, "--json"])
    silent = CliRunner().invoke(app, [*words, "-q"])

    assert profiling.Report.from_json(json.loads(printed.stdout)).measurements.source.samples == COUNT
    assert "loader alone" in printed.stderr
    assert (silent.exit_code, silent.output) == (0, "")


def test_missing_extras_are_reported_before_anything_is_measured(dataset, tmp_path, monkeypatch):
    """Jinja2 is needed for the page, SciPy for a mix: the first ends the command at once, the second is said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr(profiling, "profile", lambda *_, **__: pytest.fail("measured before it looked for extras"))
    _html.find_template.cache_clear()
    done = CliRunner().invoke(app, ["profile", str(dataset), "-o", "report"])

    assert done.exit_code == 1
    assert "pip install 'headrace[report]'" in done.stderr
    assert not (tmp_path / "report").exists()

    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    monkeypatch.setattr(profiling, "profile", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    done = CliRunner().invoke(app, ["profile", str(dataset)])
    assert done.exit_code == 130
    assert "headrace[plan]" in done.stderr


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_report_that_cannot_be_written_is_refused_before_the_measuring(dataset, tmp_path):
    (tmp_path / "report").mkdir(mode=0o555)
    done = CliRunner().invoke(app, ["profile", str(dataset), "-o", str(tmp_path / "report")])

    assert done.exit_code == 1
    assert "must be writable" in done.stderr


def run(*arguments, cwd=None):
    command = [sys.executable, "-m", "headrace", "profile", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_quick_profile_ends_within_a_minute(folder, tmp_path):
    """With a training step of the user's own, and a report that can be opened."""
    (tmp_path / "mine.py").write_text("def step(batch):\n    return batch['image'].sum()\n")
    begun = time.monotonic()
    done = run(folder, "--quick", "--train", "mine:step", "--batch-size", 8, "-o", "report", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begun < 60
    assert "images/s" in done.stdout
    assert json.loads((tmp_path / "report/report.json").read_text())
    assert "<svg" in (tmp_path / "report/index.html").read_text()


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_ends_the_command_with_what_there_is_and_no_verdict_on_the_rest(dataset, tmp_path):
    """The exit code says that it was interrupted, and no stage that was not measured is blamed."""
    command = [sys.executable, "-m", "headrace", "profile", str(dataset), "--step-ms", "2", "-o", "report"]
    command += ["--seconds", "6"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if line.startswith("trainer alone:"):
                process.send_signal(signal.SIGINT)
                break
        out, err = process.communicate(timeout=60)
    report = profiling.Report.load(tmp_path / "report")

    assert process.returncode == 130, err
    assert "No verdict on the bottleneck: the profile was interrupted before it measured: " in " ".join(
        out.replace("│", " ").split()
    )
    assert report.verdict.kind == "unknown"
    assert "decode and transform, one core to all" in report.measurements.missing
    assert "next: run the same command again" in out
    assert report.measurements.interrupted
    assert not report.measurements.complete
    assert report.measurements.differential.trainer
    assert any("interrupted" in note for note in report.measurements.notes)
