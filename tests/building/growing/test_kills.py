# SPDX-License-Identifier: Apache-2.0
"""`add` and `merge` that are killed at any step leave all versions intact, and continue to the same bytes."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.building.growing.samples import check, write
from tests.building.pictures import tree

import headrace
from headrace import files
from headrace.errors import BuildError

# Kills itself before its Nth write, sync, rename or removal; prints their number if it comes to an end.
STEPS = """
import os, signal, sys
import headrace
from headrace.building.growing import _merge
_merge.SHARD_BYTES = 3000
verb, first, second, limit = sys.argv[1:4] + [int(sys.argv[4])]
count = 0

def counted(call):
    def step(*arguments, **options):
        global count
        count += 1
        if count == limit:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)
    return step

for name in ("pwrite", "fsync", "truncate", "replace", "unlink", "rmdir", "mkdir"):
    setattr(os, name, counted(getattr(os, name)))
if verb == "add":
    headrace.add(first, second, workers=1, shard_size=3000)
elif verb == "merge":
    headrace.merge([first, second], sys.argv[5])
else:
    headrace.drop(first, slice(1, 9))
print(count)
"""


class Case:
    """One verb with its datasets, and the files that an undisturbed run makes."""

    def __init__(self, folder: Path, verb: str) -> None:
        self.verb, self.folder = verb, folder
        self.first = write(folder / "a.hr", range(20))
        self.second = write(folder / "b.hr", range(20, 40))
        self.dest = folder / "c.hr" if verb == "merge" else self.first
        self.before = tree(self.first) | tree(self.second)
        shutil.copytree(self.first, folder / "sound.hr")
        done = self.run(0)
        assert done.returncode == 0, done.stderr
        self.steps = int(done.stdout)
        self.expected = tree(self.dest)
        self.reset()

    def run(self, limit: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", STEPS, self.verb, self.first, self.second, str(limit), self.dest]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)

    def reset(self) -> None:
        shutil.rmtree(self.dest)
        if self.verb != "merge":
            shutil.copytree(self.folder / "sound.hr", self.first)

    def kill(self, limit: int) -> None:
        """Kill a run at a step, check what is left, and let another run finish it."""
        done = self.run(limit)
        assert done.returncode == -signal.SIGKILL, done.stderr
        for path in (self.first, self.second):
            found = tree(path)
            original = tree(self.folder / "sound.hr") if path == self.first else found
            assert {name: found[name] for name in original} == original
            version = headrace.open(f"{path}@v1")
            check(version, range(20) if path == self.first else range(20, 40))
            assert headrace.open(path).verify().ok
        for _ in range(2):  # the second one has nothing to do, or would add the same samples again
            done = self.run(0)
            assert done.returncode == 0 or "samples of the source already" in done.stderr, done.stderr
            if self.verb == "drop":
                break
        if self.verb != "drop":
            assert tree(self.dest) == self.expected
            check(headrace.open(self.dest), range(40))
        self.reset()


@pytest.fixture(scope="module", params=["add", "merge"])
def case(request, tmp_path_factory):
    return Case(tmp_path_factory.mktemp("kills"), request.param)


@pytest.mark.slow
def test_thirty_kills_of_thirty(case):
    """At steps of chance, the last ones always among them: there the new version appears."""
    rng = random.Random(case.verb)
    last = range(case.steps - 9, case.steps + 1)
    chosen = sorted({*last, *rng.sample(range(1, case.steps - 9), 20)})
    assert len(chosen) == 30
    for limit in chosen:
        case.kill(limit)


class Stop(Exception):
    """Stands for a kill."""


def test_stopped_before_every_rename(tmp_path, monkeypatch):
    """Options, each shard, each part, the index, the version: wherever it is stopped, it resumes."""
    real = files.publish
    sound = write(tmp_path / "sound.hr", range(10))
    source = write(tmp_path / "more.hr", range(10, 16))
    done: list[Path] = []
    limit = [1000]

    def publish(temporary, name):
        if len(done) == limit[0]:
            raise Stop(name)
        done.append(name)
        real(temporary, name)

    def stopped_add(path):
        done.clear()
        with monkeypatch.context() as patch:
            patch.setattr(files, "publish", publish)
            patch.setattr("headrace.building._destination.publish", publish)
            headrace.add(path, source, workers=1, shard_size=1000)

    stopped_add(shutil.copytree(sound, tmp_path / "whole.hr"))
    expected, renames = tree(tmp_path / "whole.hr"), len(done)
    assert renames >= 9
    for steps in range(renames):
        path = shutil.copytree(sound, tmp_path / f"{steps}.hr")
        limit[0] = steps
        with pytest.raises(Stop):
            stopped_add(path)
        assert {name: content for name, content in tree(path).items() if name in tree(sound)} == tree(sound)
        check(headrace.open(f"{path}@v1"), range(10))
        headrace.add(path, source, workers=1, shard_size=1000)
        assert tree(path) == expected


def test_other_changes_are_possible_while_an_addition_is_unfinished(tmp_path, monkeypatch):
    """It continues from the version that is the newest then; garbage collection keeps its shards unless asked."""
    path, source = write(tmp_path / "a.hr", range(10)), write(tmp_path / "more.hr", range(10, 16))
    real = files.publish

    def publish(temporary, name):
        if name.parent.name == "index":
            raise Stop(name)
        real(temporary, name)

    with monkeypatch.context() as patch:
        patch.setattr(files, "publish", publish)
        with pytest.raises(Stop):
            headrace.add(path, source, workers=1, shard_size=1000)
    with pytest.raises(BuildError, match="interrupted `headrace add`"):
        headrace.build([{"image": b""}], path)
    headrace.drop(path, "3")
    assert headrace.collect_garbage(path, keep=[]).files == ("dataset.json",)
    report = headrace.add(path, source, workers=1, shard_size=1000)
    assert report.version == 3
    check(headrace.open(path), [number for number in range(16) if number != 3])

    with monkeypatch.context() as patch:
        patch.setattr(files, "publish", publish)
        others = write(tmp_path / "others.hr", range(20, 26))
        with pytest.raises(Stop):
            headrace.add(path, others, workers=1, shard_size=1000)
    removed = headrace.collect_garbage(path, unfinished=True)
    assert removed.files
    assert all(name.startswith("shards/") for name in removed.files)
    assert not (path / ".building").exists()
    check(headrace.open(path), [number for number in range(16) if number != 3])
