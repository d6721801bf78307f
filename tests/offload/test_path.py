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

from tests.loader.datasets import CORE, write
from tests.loader.test_path import DOCS, PACKAGE
from tests.offload.offloading import OPTIONS, offload_worker, paced, wait_for_prepared

from headrace import Loader
from headrace.offload import Offload

MAX_FILES = 14
BATCHES = 40
AHEAD = 16
STEP_SECONDS = 0.02


@contextmanager
def counted_entries() -> Iterator[Counter[tuple[str, str]]]:
    """Count how often each function of the package is called from another file, by all threads that start later too."""
    calls = Counter[tuple[str, str]]()

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        del argument
        code, caller = frame.f_code, frame.f_back
        path = Path(code.co_filename)
        is_entry = caller is None or caller.f_code.co_filename != code.co_filename
        if event == "call" and is_entry and path.is_relative_to(PACKAGE):
            calls[path.relative_to(PACKAGE).as_posix(), code.co_qualname] += 1

    before = sys.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        yield calls
    finally:
        sys.settrace(before)
        threading.settrace(None)  # type: ignore[arg-type]


def files_per_batch(dataset: Path, exchange: Path) -> tuple[set[str], int]:
    """Return the files that are entered at least once per batch, and how many batches the host had to make.

    All batches are prepared, and the offload worker may be `AHEAD` batches ahead. Heartbeats, requests and searches for
    ranks are for several batches together.
    """
    options = {**OPTIONS, "fields": ["image", "label"]}
    offload = Offload(exchange, strategy=paced(1, 1, skip=0))
    with (
        counted_entries() as calls,
        offload_worker(dataset, exchange, ahead_bytes=AHEAD * 20_480) as worker,
        Loader(dataset, **options, offload=offload) as loader,
    ):
        batches = iter(loader)
        wait_for_prepared(loader, AHEAD // 2)
        for _ in range(AHEAD):
            next(batches)
            time.sleep(STEP_SECONDS)
        before, prepared = calls.copy(), worker.progress().batches
        for _ in range(BATCHES):
            next(batches)
            time.sleep(STEP_SECONDS)
        assert worker.progress().batches - prepared > BATCHES // 2  # it works at the pace of the loader
        files = {file for (file, _), count in (calls - before).items() if count >= BATCHES - AHEAD // 2}
        return files, sum(loader.stats().offload["redone"].values())


def test_a_prepared_batch_passes_few_files(tmp_path: Path) -> None:
    dataset = write(tmp_path / "long.hr", 2 * (BATCHES + 3 * AHEAD), formats=CORE)
    for attempt in range(5):  # on a busy machine a batch may be late, and a heartbeat is written for each
        files, made_by_host = files_per_batch(dataset, tmp_path / f"exchange-{attempt}")
        if not made_by_host and len(files) <= MAX_FILES:
            break
    assert {"offload/worker/_worker.py", "offload/host/_supply.py", "loader/_iterator.py"} <= files
    assert len(files) <= MAX_FILES, "\n".join(sorted(files))
    text = DOCS.read_text(encoding="utf-8")
    described = text[text.index("## The path of a prepared batch") : text.index("## The path of a profile")]
    assert [name for name in sorted(files) if name not in described] == []
