# SPDX-License-Identifier: Apache-2.0
"""A dataset that is replaced stays as it is until its successor is complete, whatever happens to the builder."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time

import pytest
from tests.building.conftest import SHARD_SIZE
from tests.building.pictures import make_folder, make_image, tree

import headrace
from headrace.building import _swap
from headrace.errors import BuildError

FORCED = """
import sys, headrace
headrace.build(sys.argv[1], sys.argv[2], workers=1, shard_size=10_000, force=True)
"""


class Stop(BaseException):
    """Stands for a kill: nothing after it runs, but for what a dead process cannot keep from happening."""


@pytest.fixture
def old(source, tmp_path):
    """A dataset that is to be replaced, and its files."""
    headrace.build(source, tmp_path / "a.hr", workers=1, format="raw")
    (tmp_path / "a.hr" / ".notes").write_text("mine")
    return tree(tmp_path / "a.hr")


@pytest.fixture(params=["exchange", "two renames"])
def way(request, monkeypatch):
    if request.param == "two renames":
        monkeypatch.setattr(_swap, "_exchange", lambda *_: False)
    return request.param


def replace(source, dest, **options):
    return headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE, force=True, **options)


def without_notes(files):
    return {name: data for name, data in files.items() if name != ".notes"}


def is_complete(folder):
    return headrace.open(folder).verify().ok


@pytest.mark.usefixtures("old", "way")
def test_the_new_dataset_takes_the_name_of_the_old(source, expected, tmp_path):
    report = replace(source, tmp_path / "a.hr")
    assert report.path == tmp_path / "a.hr"
    assert without_notes(tree(tmp_path / "a.hr")) == expected
    assert (tmp_path / "a.hr" / ".notes").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["a.hr"]


def test_a_source_that_turns_out_bad_costs_nothing(tmp_path, old):
    bad = make_folder(tmp_path / "photos", 12)
    (bad / "cow" / "0011.png").write_bytes(b"no image")
    with pytest.raises(BuildError, match=r"0011\.png"):
        replace(bad, tmp_path / "a.hr")
    assert tree(tmp_path / "a.hr") == old
    shutil.rmtree(bad)
    with pytest.raises(headrace.errors.BadSource):
        replace(bad, tmp_path / "a.hr")
    assert tree(tmp_path / "a.hr") == old


def test_a_writer_that_fails_costs_nothing(tmp_path, old):
    def write_half():
        with headrace.Writer(tmp_path / "a.hr", fields={"image": "image"}, force=True) as writer:
            writer.write({"image": make_image(0)})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert tree(tmp_path / "a.hr") == old
    with headrace.Writer(tmp_path / "a.hr", fields={"image": "image"}, force=True) as writer:
        writer.write({"image": make_image(0)})
    assert len(headrace.open(tmp_path / "a.hr")) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.hr"]


STEPS = ("rename", "replace", "unlink", "mkdir", "rmdir")


def stop_before(monkeypatch, step):
    """Let so many changes of the file system happen, and none after them."""
    left = [step]
    handle = _swap._exchange

    def counted(real):
        def call(*arguments, **options):
            if left[0] <= 0:
                raise Stop
            left[0] -= 1
            return real(*arguments, **options)

        return call

    for name in STEPS:
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    monkeypatch.setattr(shutil, "rmtree", counted(shutil.rmtree))
    monkeypatch.setattr(_swap, "_exchange", counted(handle))
    return left


def test_stopped_before_every_single_change(source, expected, tmp_path, old, way, monkeypatch):
    """One of both is complete and can be opened; the same call then finishes."""
    shutil.move(tmp_path / "a.hr", tmp_path / "kept.hr")
    between = 0
    for step in range(1000):
        work = tmp_path / f"{step}"
        shutil.copytree(tmp_path / "kept.hr", work / "a.hr")
        with monkeypatch.context() as patch:
            left = stop_before(patch, step)
            try:
                replace(source, work / "a.hr")
            except Stop:
                left[0] = 0
            else:
                break
        if (work / "a.hr").exists():
            found = without_notes(tree(work / "a.hr"))
            found = {name: data for name, data in found.items() if not name.startswith(".building")}
            assert found in (without_notes(old), expected)
        else:
            between += 1
            assert is_complete(work / ".a.hr.old")
        replace(source, work / "a.hr")
        assert without_notes(tree(work / "a.hr")) == expected
        assert (work / "a.hr" / ".notes").read_text() == "mine"
        assert [path.name for path in work.iterdir()] == ["a.hr"]
        shutil.rmtree(work)
    assert step > 20
    assert between == (1 if way == "two renames" else 0)


@pytest.mark.parametrize("attempt", range(5))
@pytest.mark.usefixtures("old")
def test_killed_at_any_moment(source, expected, tmp_path, attempt):
    """The real thing, with SIGKILL."""
    process = subprocess.Popen([sys.executable, "-c", FORCED, str(source), str(tmp_path / "a.hr")])
    time.sleep(random.Random(attempt).uniform(0.2, 1.2))
    process.kill()
    process.wait()
    assert is_complete(tmp_path / "a.hr")
    replace(source, tmp_path / "a.hr")
    assert without_notes(tree(tmp_path / "a.hr")) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["a.hr"]


def test_it_goes_on_where_it_was(source, expected, tmp_path, old, monkeypatch):
    with monkeypatch.context() as patch:
        stop_before(patch, 12)
        with pytest.raises(Stop):
            replace(source, tmp_path / "a.hr")
    left = tree(tmp_path / "a.hr")
    left.pop(".building/lock", None)  # the dataset was locked, so that it does not grow meanwhile
    assert left == old
    assert replace(source, tmp_path / "a.hr").kept_shards > 0
    assert without_notes(tree(tmp_path / "a.hr")) == expected


@pytest.mark.usefixtures("old")
def test_other_options_start_over(source, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_before(patch, 12)
        with pytest.raises(Stop):
            replace(source, tmp_path / "a.hr")
    assert replace(source, tmp_path / "a.hr", format="png").kept_shards == 0
    assert headrace.open(tmp_path / "a.hr").formats == {"image": {"png": 60}}


@pytest.mark.usefixtures("old")
def test_through_a_link(source, tmp_path):
    (tmp_path / "link.hr").symlink_to("a.hr")
    replace(source, tmp_path / "link.hr")
    assert (tmp_path / "link.hr").is_symlink()
    assert headrace.open(tmp_path / "link.hr").formats == {"image": {"hri:dense": 60}}


@pytest.mark.usefixtures("old")
def test_readers_of_the_old_dataset_keep_it(source, tmp_path):
    ds = headrace.open(tmp_path / "a.hr")
    before = ds[3]["image"]
    replace(source, tmp_path / "a.hr", format="png")
    assert (ds[3]["image"] == before).all()


def test_a_name_that_cannot_be_changed_is_reported(source, tmp_path, old, monkeypatch):
    def refuse(*_):
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(_swap, "_exchange", refuse)
    with pytest.raises(BuildError, match=r"cannot be replaced: Device or resource busy.*complete in .*\.a\.hr\.new"):
        replace(source, tmp_path / "a.hr")
    assert tree(tmp_path / "a.hr") == old
    assert is_complete(tmp_path / ".a.hr.new")
