# SPDX-License-Identifier: Apache-2.0
"""A build that is killed at any moment resumes, keeps finished shards, and makes the same bytes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from tests.building.conftest import SHARD_SIZE
from tests.building.pictures import make_folder, make_image, tree

import headrace
from headrace import files
from headrace.errors import BadSource, BuildError

# On a disk that takes its time: there must be a middle to be killed in.
BUILD = """
import os, sys, time
import headrace
real = os.fsync
os.fsync = lambda handle: (time.sleep(0.01), real(handle))
from headrace.building import _build
_build.PEEK_SAMPLES, _build.THREAD_BYTES = 1, 10**9
source, dest, workers, shard_size = sys.argv[1:]
headrace.build(source, dest, workers=int(workers), shard_size=int(shard_size))
"""
LARGE_SHARD_SIZE = 160_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("resume") / "large", 48, side=300)


@pytest.fixture(scope="module")
def large_expected(large, tmp_path_factory):
    dest = tmp_path_factory.mktemp("resume") / "large.hr"
    assert headrace.build(large, dest, workers=1, shard_size=LARGE_SHARD_SIZE).shards >= 12
    return tree(dest)


def start_build(source, dest, workers, shard_size=LARGE_SHARD_SIZE):
    command = [sys.executable, "-c", BUILD, str(source), str(dest), str(workers), str(shard_size)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def finished(dest):
    return sorted(path.stem for path in (dest / ".building").glob("*.part"))


def kill_in_the_middle(source, dest, workers, rng):
    """Kill a build after some of its shards, at a moment of chance; None if it was faster."""
    process = start_build(source, dest, workers)
    wanted = rng.randrange(1, 7)
    deadline = time.monotonic() + 60
    while len(finished(dest)) < wanted and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    time.sleep(rng.random() * 0.03)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    return None if (dest / "dataset.json").exists() else finished(dest)


def kill_and_resume(source, dest, expected, rng, workers):
    """Kill until it hits, then build again and compare."""
    for _ in range(20):
        kept = kill_in_the_middle(source, dest, workers, rng)
        if kept:
            break
        shutil.rmtree(dest, ignore_errors=True)
    assert kept
    with pytest.raises(FileNotFoundError, match="unfinished build"):
        headrace.open(dest)
    times = {name: (dest / "shards" / f"{name}.hrs").stat().st_mtime_ns for name in kept}
    report = headrace.build(source, dest, workers=rng.choice((1, 1, 2, 4)), shard_size=LARGE_SHARD_SIZE)
    assert report.kept_shards >= len(kept)
    assert {name: (dest / "shards" / f"{name}.hrs").stat().st_mtime_ns for name in kept} == times
    assert tree(dest) == expected


@pytest.mark.usefixtures("worker_kind")
@pytest.mark.parametrize("attempt", range(5))
def test_ten_kills_of_ten(large, large_expected, tmp_path, attempt):
    """Half of them resumed by threads, half by processes."""
    kill_and_resume(large, tmp_path / "a.hr", large_expected, random.Random(attempt), 1 + attempt % 2)


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("attempt", range(50))
def test_fifty_kills_of_fifty(large, large_expected, tmp_path, attempt):
    kill_and_resume(large, tmp_path / "a.hr", large_expected, random.Random(100 + attempt), (1, 2, 4)[attempt % 3])


def test_killed_again_and_again(large, large_expected, tmp_path):
    """Each run gets a little further; none spoils what the others finished."""
    rng = random.Random(5)
    for _ in range(4):
        kill_in_the_middle(large, tmp_path / "a.hr", 2, rng)
    if not (tmp_path / "a.hr" / "dataset.json").exists():
        headrace.build(large, tmp_path / "a.hr", workers=1, shard_size=LARGE_SHARD_SIZE)
    assert tree(tmp_path / "a.hr") == large_expected


class Stop(Exception):
    """Stands for a kill at one of the builder's own steps."""


def stop_after(monkeypatch, steps):
    """Let so many renames happen, and not the next."""
    real, left = files.publish, [steps]

    def publish(temporary, path):
        if left[0] == 0:
            raise Stop(path.name)
        left[0] -= 1
        real(temporary, path)

    monkeypatch.setattr(files, "publish", publish)
    monkeypatch.setattr("headrace.building._destination.publish", publish)


def test_stopped_before_every_single_rename(source, expected, tmp_path, monkeypatch):
    """Options, each shard, each part, the index, dataset.json: wherever it is stopped, it resumes."""
    steps = 0
    while True:
        dest = tmp_path / f"{steps}.hr"
        with monkeypatch.context() as patch:
            stop_after(patch, steps)
            try:
                headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE)
            except Stop:
                pass
            else:
                break
        assert not (dest / "dataset.json").exists()
        report = headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE)
        assert report.kept_shards == max(0, min(steps - 1, 2 * report.shards)) // 2
        assert tree(dest) == expected
        shutil.rmtree(dest)
        steps += 1
    assert steps == 1 + 2 * report.shards + 2


def half_built(source, dest, monkeypatch, **options):
    with monkeypatch.context() as patch:
        stop_after(patch, 7)
        with pytest.raises(Stop):
            headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE, **options)
    assert finished(dest) == ["000000", "000001", "000002"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "raw"}, r'formats was .*"hri:dense".* and is .*"raw"'),
        ({"align": 4096}, "align was 64 and is 4096"),
        ({"shard_size": 5000}, "shard_bytes was 10000 and is 5000"),
    ],
)
def test_other_options_do_not_go_on(source, expected, tmp_path, monkeypatch, options, message):
    dest = tmp_path / "a.hr"
    half_built(source, dest, monkeypatch)
    with pytest.raises(BuildError, match=rf"other options: {message}.*--no-resume"):
        headrace.build(source, dest, **{"workers": 1, "shard_size": SHARD_SIZE, **options})
    assert headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE).kept_shards == 3
    assert tree(dest) == expected


def test_no_resume_starts_over(source, expected, tmp_path, monkeypatch):
    dest = tmp_path / "a.hr"
    half_built(source, dest, monkeypatch, format="raw")
    report = headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE, resume=False)
    assert report.kept_shards == 0
    assert tree(dest) == expected


def test_a_source_that_changed_is_refused(tmp_path, monkeypatch):
    source = make_folder(tmp_path / "photos", 60)
    half_built(source, tmp_path / "a.hr", monkeypatch)
    shutil.copy(source / "ant" / "0003.png", source / "ant" / "0002.png")
    with pytest.raises(
        BuildError, match=r"the source has changed since .*shard 0 have other keys or sizes.*--no-resume"
    ):
        headrace.build(source, tmp_path / "a.hr", workers=1, shard_size=SHARD_SIZE)


def test_a_shard_that_was_lost_or_cut_is_made_again(source, expected, tmp_path, monkeypatch):
    dest = tmp_path / "a.hr"
    half_built(source, dest, monkeypatch)
    (dest / "shards" / "000001.hrs").unlink()
    shard = dest / "shards" / "000002.hrs"
    shard.write_bytes(shard.read_bytes()[:-1])
    (dest / ".building" / "000000.part").write_bytes(b"")
    assert headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE).kept_shards == 0
    assert tree(dest) == expected


def test_an_iterable_goes_on_too(tmp_path, monkeypatch):
    samples = [{"image": make_image(n)} for n in range(40)]
    headrace.build(samples, tmp_path / "whole.hr", workers=1, shard_size=SHARD_SIZE)
    half_built(samples, tmp_path / "a.hr", monkeypatch)
    assert headrace.build(samples, tmp_path / "a.hr", workers=2, shard_size=SHARD_SIZE).kept_shards == 3
    assert tree(tmp_path / "a.hr") == tree(tmp_path / "whole.hr")


def test_a_generator_that_fails_is_reported(tmp_path):
    def samples():
        yield {"image": make_image(0)}
        yield {"picture": make_image(1)}

    with pytest.raises((BuildError, BadSource), match="picture"):
        headrace.build(samples(), tmp_path / "a.hr", workers=1)
    with pytest.raises(BadSource, match="no samples"):
        headrace.build([], tmp_path / "b.hr")


def test_two_builders_on_one_destination(large, tmp_path):
    dest = tmp_path / "a.hr"
    process = start_build(large, dest, 1)
    try:
        deadline = time.monotonic() + 60
        while not (dest / ".building" / "lock").exists() or not (dest / ".building" / "lock").read_text():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(BuildError, match=rf"being built by process {process.pid} on \S+; wait for it"):
            headrace.build(large, dest, workers=1, shard_size=LARGE_SHARD_SIZE)
        with pytest.raises(BuildError, match=r"unfinished build|being built"):
            headrace.Writer(dest, fields={"image": "image"})
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_lock_of_the_dead_does_not_block(source, expected, tmp_path):
    dest = tmp_path / "a.hr"
    (dest / ".building").mkdir(parents=True)
    (dest / ".building" / "lock").write_text("process 1 on elsewhere")
    headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE)
    assert tree(dest) == expected


def test_a_finished_dataset_is_only_replaced_on_demand(source, expected, tmp_path):
    dest = tmp_path / "a.hr"
    headrace.build(source, dest, workers=1, format="raw")
    before = tree(dest)
    with pytest.raises(BuildError, match=r"finished dataset.*--force"):
        headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE)
    assert tree(dest) == before
    headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE, force=True)
    assert tree(dest) == expected


def test_killed_while_cleaning_up(source, expected, tmp_path, monkeypatch):
    """After dataset.json and before the clean-up: the same call cleans up and reports."""
    dest = tmp_path / "a.hr"

    def stop(*_):
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr("headrace.building._destination.Destination.complete", stop)
        with pytest.raises(Stop):
            headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE)
    assert (dest / "dataset.json").exists()
    report = headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE)
    assert (report.samples, report.kept_shards) == (60, report.shards)
    assert report.n_bytes == sum(map(len, expected.values()))
    assert tree(dest) == expected


def test_remains_beside_a_finished_dataset_are_no_hindrance(source, tmp_path):
    """Killed between dataset.json and the clean-up: the dataset is complete, and the same build has nothing to do."""
    dest = tmp_path / "a.hr"
    headrace.build(source, dest, workers=1)
    (dest / ".building").mkdir()
    (dest / ".building" / "000000.part").write_bytes(b"old")
    assert len(headrace.open(dest)) == 60
    assert headrace.open(dest).verify().ok
    assert headrace.build(source, dest, workers=1).was_finished
    assert not (dest / ".building").exists()
    (dest / ".building").mkdir()
    with pytest.raises(BuildError, match="finished dataset"):
        headrace.build(source, dest, workers=1, format="raw")
    assert not (dest / ".building").exists()


def test_a_folder_of_other_things_is_never_touched(source, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for options in ({}, {"force": True}, {"resume": False}):
        with pytest.raises(BuildError, match=r"contains 'thesis\.tex', which is not part of a dataset"):
            headrace.build(source, tmp_path, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    (tmp_path / "dotted").mkdir()
    (tmp_path / "dotted" / ".DS_Store").write_text("left alone")
    headrace.build(source, tmp_path / "dotted", workers=1)
    assert (tmp_path / "dotted" / ".DS_Store").read_text() == "left alone"
    with pytest.raises(BuildError, match="is a file"):
        headrace.build(source, tmp_path / "thesis.tex")


def test_interrupting_is_clean(large, large_expected, tmp_path):
    """Ctrl-C: it stops at once, says how to resume, leaves no process behind, and resumes."""
    dest = tmp_path / "a.hr"
    process = start_build(large, dest, 2)
    deadline = time.monotonic() + 60
    while not finished(dest) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    if not (dest / "dataset.json").exists():
        assert b"finished shards are kept" in errors
        assert list(dest.rglob("*.tmp")) == []
        headrace.build(large, dest, workers=1, shard_size=LARGE_SHARD_SIZE)
    assert tree(dest) == large_expected


def test_the_options_are_written_down(source, tmp_path):
    headrace.build(source, tmp_path / "a.hr", workers=1, format="png", align=128)
    tree_ = json.loads((tmp_path / "a.hr" / "dataset.json").read_bytes())
    assert tree_["options"]["align"] == 128
    assert tree_["options"]["formats"]["image"]["formats"] == ["png"]
    assert tree_["source"] == {
        "kind": "classes",
        "name": "photos",
        "samples": 60,
        "bytes": sum(path.stat().st_size for path in source.rglob("*.png")),
    }
    assert str(tmp_path).encode() not in (tmp_path / "a.hr" / "dataset.json").read_bytes()
    assert os.uname().nodename.encode() not in (tmp_path / "a.hr" / "dataset.json").read_bytes()


def test_pixels_after_a_resume(source, tmp_path, monkeypatch):
    half_built(source, tmp_path / "a.hr", monkeypatch)
    headrace.build(source, tmp_path / "a.hr", workers=1, shard_size=SHARD_SIZE)
    ds = headrace.open(tmp_path / "a.hr")
    for index in range(60):
        np.testing.assert_array_equal(ds[index]["image"], make_image(int(ds.key(index)[-8:-4])))
    assert ds.verify().ok


def test_a_finished_build_has_nothing_to_do(source, expected, tmp_path):
    """Started again after its last step, it says that it is done."""
    dest = tmp_path / "a.hr"
    first = headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE)
    again = headrace.build(source, dest, workers=2, shard_size=SHARD_SIZE)
    assert (first.was_finished, again.was_finished) == (False, True)
    assert (again.samples, again.n_bytes, again.fingerprint) == (first.samples, first.n_bytes, first.fingerprint)
    assert tree(dest) == expected
    with pytest.raises(BuildError, match=r"finished dataset.*--force"):
        headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE, resume=False)


@pytest.mark.parametrize("change", ["new file", "gone", "renamed", "other pixels of the same size"])
def test_a_finished_build_of_a_source_that_changed_is_refused(tmp_path, change):
    source = make_folder(tmp_path / "photos", 12)
    headrace.build(source, tmp_path / "a.hr", workers=1)
    path = source / "ant" / "0003.png"
    if change == "new file":
        shutil.copy(path, source / "ant" / "more.png")
    elif change == "gone":
        path.unlink()
    elif change == "renamed":
        path.rename(source / "ant" / "0003a.png")
    else:
        path.write_bytes(path.read_bytes())
    with pytest.raises(BuildError, match=r"its source has changed since.*--force"):
        headrace.build(source, tmp_path / "a.hr", workers=1)


def test_a_finished_iterable_cannot_be_compared(tmp_path):
    headrace.build([{"image": make_image(0)}], tmp_path / "a.hr", workers=1)
    with pytest.raises(BuildError, match="whether an iterable still yields the same"):
        headrace.build([{"image": make_image(0)}], tmp_path / "a.hr", workers=1)


def test_a_file_that_changed_without_changing_size_is_built_again(tmp_path, monkeypatch):
    """The modification time shows it; the other shards are kept."""
    source = make_folder(tmp_path / "photos", 60)
    half_built(source, tmp_path / "a.hr", monkeypatch)
    path = source / "ant" / "0000.png"
    data = bytearray(path.read_bytes())
    pixels = np.full_like(make_image(0), 7)
    headrace.build([{"image": pixels}], tmp_path / "other.hr", workers=1, format="png")
    path.write_bytes(headrace.formats.get("png").encode(pixels).ljust(len(data), b"\0"))
    assert headrace.build(source, tmp_path / "a.hr", workers=1, shard_size=SHARD_SIZE).kept_shards == 2
    np.testing.assert_array_equal(headrace.open(tmp_path / "a.hr")[0]["image"], pixels)


def test_an_iterable_with_other_pixels_is_refused(tmp_path, monkeypatch):
    samples = [{"image": make_image(n)} for n in range(40)]
    half_built(samples, tmp_path / "a.hr", monkeypatch)
    samples[1] = {"image": samples[1]["image"] ^ 1}
    with pytest.raises(BuildError, match=r"samples of shard 0 have other pixels.*--no-resume"):
        headrace.build(samples, tmp_path / "a.hr", workers=1, shard_size=SHARD_SIZE)


@pytest.mark.parametrize("name", ["shards/000001.hrs", ".building/000001.part"])
def test_a_finished_shard_that_changed_without_changing_size_is_made_again(
    source, expected, tmp_path, monkeypatch, name
):
    dest = tmp_path / "a.hr"
    half_built(source, dest, monkeypatch)
    data = bytearray((dest / name).read_bytes())
    data[len(data) // 2] ^= 1
    (dest / name).write_bytes(data)
    assert headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE).kept_shards == 2
    assert tree(dest) == expected


def test_skipping_can_be_chosen_later(tmp_path):
    """One bad file late in the build: what was finished before it is kept."""
    source, dest = make_folder(tmp_path / "photos", 60), tmp_path / "a.hr"
    (source / "cow" / "0059.png").write_bytes(b"no image")
    with pytest.raises(BuildError, match=r"cow/0059\.png.*--on-error skip"):
        headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE)
    kept = len(finished(dest))
    assert kept > 2
    report = headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE, on_error="skip")
    assert (report.kept_shards, report.samples, report.skipped_count) == (kept, 59, 1)
    headrace.build(source, tmp_path / "b.hr", workers=1, shard_size=SHARD_SIZE, on_error="skip")
    assert tree(dest) == tree(tmp_path / "b.hr")


def test_not_skipping_can_be_chosen_later_too(tmp_path, monkeypatch):
    """A shard that skipped a sample is made again, and stops at it."""
    source, dest = make_folder(tmp_path / "photos", 60), tmp_path / "a.hr"
    (source / "ant" / "0000.png").write_bytes(b"no image")
    half_built(source, dest, monkeypatch, on_error="skip")
    with pytest.raises(BuildError, match=r"ant/0000\.png"):
        headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE)
    shutil.copy(source / "ant" / "0003.png", source / "ant" / "0000.png")
    with pytest.raises(BuildError, match="source has changed"):
        headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE, on_error="skip")
