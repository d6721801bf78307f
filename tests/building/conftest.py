# SPDX-License-Identifier: Apache-2.0
"""A folder of images to build from, made once, and its dataset."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.building.pictures import make_folder, tree

import headrace
from headrace.building import _build

SHARD_SIZE = 10_000


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("building") / "photos", 60)


@pytest.fixture(scope="session")
def expected(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a build that nothing disturbed."""
    dest = tmp_path_factory.mktemp("building") / "photos.hr"
    report = headrace.build(source, dest, workers=1, shard_size=SHARD_SIZE)
    assert report.shards > 8
    return tree(dest)


@pytest.fixture(params=["threads", "processes"])
def worker_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both kinds of workers, whatever the size of the images."""
    use_workers(monkeypatch, request.param)
    return str(request.param)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are processes, whatever the size of the images."""
    use_workers(monkeypatch, "processes")


def use_workers(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(_build, "PEEK_SAMPLES", 10**9 if kind == "threads" else 1)
    monkeypatch.setattr(_build, "THREAD_BYTES", 0 if kind == "threads" else 10**9)


@pytest.fixture
def run_python():
    """Run this Python with arguments, in a process of its own."""

    def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *(str(argument) for argument in arguments)]
        return subprocess.run(command, cwd=cwd, capture_output=True, check=True, text=True, timeout=120)

    return run
