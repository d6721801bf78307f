# SPDX-License-Identifier: Apache-2.0
"""The files of the package that run for each plain batch: few enough to read in one sitting."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.loader.datasets import CORE, write

import headrace

PACKAGE = Path(headrace.__file__).parent
MAX_FILES = 10
DOCS = PACKAGE.parents[1] / "docs" / "architecture.md"


@contextmanager
def traced_files() -> Iterator[set[str]]:
    """Collect the files of the package in which any function is called, in this and in new threads."""
    files: set[str] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        del argument
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            files.add(path.relative_to(PACKAGE).as_posix())

    before = sys.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        yield files
    finally:
        sys.settrace(before)
        threading.settrace(None)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("path") / "plain.hr", formats=CORE)


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_a_plain_batch_passes_few_files(dataset: Path, output: str) -> None:
    """From `__next__` to the core and back, with images and labels in host memory."""
    if output == "torch":
        pytest.importorskip("torch")
    options = {"fields": ["image", "label"], "transform": [headrace.transforms.RandomCrop(20)], "shuffle": True}
    with headrace.Loader(dataset, batch_size=4, output=output, **options) as loader:
        batches = iter(loader)
        next(batches)
        with traced_files() as files:
            batch = next(batches)
    assert batch["image"].shape == (4, 3, 20, 20)
    assert "loader/_iterator.py" in files
    assert len(files) <= MAX_FILES, sorted(files)
    text = DOCS.read_text(encoding="utf-8")
    described = text[text.index("## The path of a batch") : text.index("## The path of a build")]
    assert [name for name in sorted(files) if name not in described] == []
