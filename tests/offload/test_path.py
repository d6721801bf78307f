# SPDX-License-Identifier: Apache-2.0
"""The files of the package that run for each prepared batch, in the worker and in the training process."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from tests.loader.test_path import DOCS, PACKAGE
from tests.offload.offloading import OPTIONS, offload_worker, paced, wait_for_prepared

from headrace import Loader
from headrace.offload import Offload

MAX_FILES = 22
BATCHES = 10


@contextmanager
def counted_calls() -> Iterator[Counter[tuple[str, str]]]:
    """Count the calls of each function of the package, in this thread and in threads that start later."""
    calls = Counter[tuple[str, str]]()

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        del argument
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            calls[path.relative_to(PACKAGE).as_posix(), frame.f_code.co_qualname] += 1

    before = sys.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        yield calls
    finally:
        sys.settrace(before)
        threading.settrace(None)  # type: ignore[arg-type]


def files_per_batch(dataset: Path, exchange: Path) -> tuple[set[str], int]:
    """Return the files with a function that runs at least once per batch, and how many batches the host had to make.

    Heartbeats and searches for ranks run by the clock, not for each batch.
    """
    options = {**OPTIONS, "fields": ["image", "label"]}
    offload = Offload(exchange, strategy=paced(1, 1, skip=0))
    with (
        counted_calls() as calls,
        offload_worker(dataset, exchange, ahead_bytes=40_000),
        Loader(dataset, **options, offload=offload) as loader,
    ):
        batches = iter(loader)
        wait_for_prepared(loader, 2)
        for _ in range(4):
            next(batches)
            time.sleep(0.05)
        before = calls.copy()
        for _ in range(BATCHES):
            next(batches)
            time.sleep(0.05)
        files = {file for (file, _), count in (calls - before).items() if count >= BATCHES}
        return files, sum(loader.stats().offload["redone"].values())


def test_a_prepared_batch_passes_few_files(core_path: Path, tmp_path: Path) -> None:
    for attempt in range(5):  # on a busy machine a batch may be late
        files, made_by_host = files_per_batch(core_path, tmp_path / f"exchange-{attempt}")
        if not made_by_host:
            break
    assert {"offload/worker/_worker.py", "offload/host/_supply.py", "loader/_iterator.py"} <= files
    assert len(files) <= MAX_FILES, "\n".join(sorted(files))
    text = DOCS.read_text(encoding="utf-8")
    described = text[text.index("## The path of a prepared batch") : text.index("## The path of a profile")]
    assert [name for name in sorted(files) if name not in described] == []
