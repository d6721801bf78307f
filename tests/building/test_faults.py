# SPDX-License-Identifier: Apache-2.0
"""Full disks, vanished files, killed workers: a clear error, and no incomplete file counts as finished."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.building.conftest import SHARD_SIZE
from tests.building.pictures import make_folder, tree

import headrace
from headrace.building import _chunk, _workers
from headrace.errors import BuildError
from headrace.sources import FolderSource


def fail_later(monkeypatch, owner, name, code, after):
    """Let a system call succeed so many times, and then fail for ever."""
    real, left = getattr(owner, name), [after]

    def call(*arguments, **options):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(code, os.strerror(code))
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, call)


FAULTS = [
    ("pwrite", errno.ENOSPC, 0),
    ("pwrite", errno.ENOSPC, 23),
    ("pwrite", errno.EIO, 31),
    ("fsync", errno.EIO, 0),
    ("fsync", errno.EIO, 5),
    ("fsync", errno.ENOSPC, 12),
    ("truncate", errno.ENOSPC, 3),
    ("open", errno.EMFILE, 40),
]


@pytest.mark.parametrize(("call", "code", "after"), FAULTS)
def test_a_system_call_that_fails_ends_the_build(source, expected, tmp_path, monkeypatch, call, code, after):
    dest = tmp_path / "a.hr"
    with monkeypatch.context() as patch:
        fail_later(patch, os, call, code, after)
        with pytest.raises(BuildError, match=os.strerror(code)):
            headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE)
    assert not (dest / "dataset.json").exists()
    headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE)
    assert tree(dest) == expected


def test_short_writes_are_continued(source, expected, tmp_path, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(_chunk.os, "pwrite", lambda handle, data, offset: real(handle, data[:1000], offset))
    headrace.build(source, tmp_path / "a.hr", workers=1, shard_size=SHARD_SIZE)
    assert tree(tmp_path / "a.hr") == expected


LIMITED = """
import resource, signal, sys, headrace
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from headrace.building import _build
_build.PEEK_SAMPLES, _build.THREAD_BYTES = 1, 10**9
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    headrace.build(sys.argv[1], sys.argv[2], workers=int(sys.argv[3]), shard_size=10_000)
except headrace.errors.BuildError as error:
    print(error)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_limit_of_the_system_is_reported_with_the_file(source, expected, tmp_path, run_python, workers):
    """The real thing: files may not grow beyond 5000 bytes, for the workers either."""
    dest = tmp_path / "a.hr"
    said = run_python("-c", LIMITED, source, dest, workers).stdout
    assert "a.hr/shards/.00000" in said
    assert "File too large" in said
    assert "finished shards are kept" in said
    assert not (dest / "dataset.json").exists()
    assert list(dest.rglob("*.tmp")) == []
    headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE)
    assert tree(dest) == expected


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_that_vanishes_is_named(tmp_path, monkeypatch, workers):
    source = make_folder(tmp_path / "photos", 12)
    listed = list(FolderSource(source).items())

    def items(_):
        (source / "cow" / "0011.png").unlink(missing_ok=True)
        yield from listed

    monkeypatch.setattr(FolderSource, "items", items)
    with pytest.raises(BuildError, match=r"sample 'cow/0011\.png': .*(No such file|not there|vanished|gone)"):
        headrace.build(source, tmp_path / "a.hr", kind="folder", workers=workers)
    assert not (tmp_path / "a.hr" / "dataset.json").exists()
    make_folder(tmp_path / "photos", 12)
    report = headrace.build(source, tmp_path / "b.hr", kind="folder", workers=workers, on_error="skip")
    assert [skipped.key for skipped in report.skipped] == ["cow/0011.png"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_named(source, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(BuildError, match=r"closed/a\.hr.*Permission denied"):
        headrace.build(source, tmp_path / "closed" / "a.hr")


def test_permission_denied_is_reported(source, tmp_path, monkeypatch):
    fail_later(monkeypatch, Path, "mkdir", errno.EACCES, 0)
    with pytest.raises(BuildError, match=r"a\.hr.*Permission denied"):
        headrace.build(source, tmp_path / "a.hr", workers=1)


@pytest.mark.usefixtures("processes")
def test_a_killed_worker_is_reported(tmp_path, expected, source):
    """As the system does when memory runs out."""
    dest = tmp_path / "a.hr"
    real = _workers.ProcessWorkers._start
    started = []

    def start(self):
        real(self)
        started.append(self._processes[-1].pid)

    def kill():
        while len(started) < 2:
            time.sleep(0.001)
        os.kill(started[0], signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_workers.ProcessWorkers, "_start", start)
        threading.Thread(target=kill).start()
        with pytest.raises(BuildError, match=r"a worker process was ended by signal 9; .*memory.*build again"):
            headrace.build(source, dest, workers=2, shard_size=SHARD_SIZE)
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE)
    assert tree(dest) == expected


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_worker_outlives_a_killed_builder(source, tmp_path):
    code = (
        "import sys, headrace\n"
        "from headrace.building import _build\n"
        "_build.PEEK_SAMPLES, _build.THREAD_BYTES = 1, 10**9\n"
        "headrace.build(sys.argv[1], sys.argv[2], workers=2, shard_size=10_000)\n"
    )
    builder = subprocess.Popen([sys.executable, "-c", code, str(source), str(tmp_path / "a.hr")])
    children: list[int] = []
    deadline = time.monotonic() + 60
    while len(children) < 2 and time.monotonic() < deadline and builder.poll() is None:
        listed = Path(f"/proc/{builder.pid}/task/{builder.pid}/children")
        children = [int(pid) for pid in listed.read_text().split()] if listed.exists() else []
    builder.kill()
    builder.wait()
    while any(Path(f"/proc/{pid}/cmdline").exists() and is_ours(pid) for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_ours(pid):
    try:
        return b"headrace.building" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_an_old_builder_cannot_spoil_a_new_one(source, expected, tmp_path):
    """A worker that outlives its builder for a moment finds its temporary file gone and writes nowhere."""
    dest = tmp_path / "a.hr"
    chunk = _chunk._EncodedChunk(str(dest / "shards" / ".000000.dead.tmp"), 0, None)
    headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE)
    with pytest.raises(FileNotFoundError):
        chunk.write(0)
    assert tree(dest) == expected


@pytest.mark.usefixtures("processes")
def test_threads_and_handles_are_given_back(source, tmp_path):
    def handles():
        return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0

    headrace.build(source, tmp_path / "warm.hr", workers=1)
    before = handles(), threading.active_count()
    for number in range(3):
        headrace.build(source, tmp_path / f"{number}.hr", workers=1 + number % 2)
        with pytest.raises(BuildError):
            headrace.build(source, tmp_path / f"{number}.hr", workers=1, format="raw")
    assert (handles(), threading.active_count()) == before


@pytest.mark.usefixtures("processes")
def test_large_messages_both_ways_do_not_lock_up(tmp_path):
    """Items and rows of megabytes, more than pipes hold: nobody waits for somebody who waits for them."""
    make_folder(tmp_path / "photos", 30)
    source = HeavySource(str(tmp_path / "photos"))
    done = []
    builder = threading.Thread(
        target=lambda: done.append(headrace.build(source, tmp_path / "a.hr", workers=2)), daemon=True
    )
    builder.start()
    builder.join(60)
    assert done
    assert done[0].samples == 30
    assert len(headrace.open(tmp_path / "a.hr").value(29, "text")) == 1_000_000


class HeavySource(FolderSource):
    """A folder whose items and samples carry a megabyte of text."""

    @property
    def fields(self):
        return {"image": "image", "text": "str"}

    def items(self):
        for item in super().items():
            yield dataclasses.replace(item, locator=(item.locator, "x" * 1_000_000))

    def load(self, item):
        locator, text = item.locator
        return {**super().load(dataclasses.replace(item, locator=locator)), "text": text}
