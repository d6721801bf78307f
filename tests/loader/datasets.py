# SPDX-License-Identifier: Apache-2.0
"""Small datasets to load from, and ways to look at what a loader gives."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import headrace

FIELDS = {
    "image": "image",
    "mask": "mask",
    "label": "int64",
    "weight": "float32",
    "boxes": "boxes",
    "name": "str",
    "blob": "bytes",
    "scores": "list<float32>",
}
COUNT = 40
CORE = ("hri:fast", "hri:dense", "raw")
FOREIGN = ("png", "webp")


def make_sample(number: int) -> dict[str, Any]:
    """A sample of its own size and values, the same for the same number; its label is its number."""
    rng = np.random.default_rng(number)
    height, width = (int(side) for side in rng.integers(24, 60, 2))
    corners = np.sort(rng.random((number % 4, 2, 2), np.float32), axis=1) * np.float32([width, height])
    return {
        "image": rng.integers(0, 256, (height, width, 3), np.uint8),
        "mask": rng.integers(0, 5, (height, width)).astype(np.uint8),
        "label": number,
        "weight": number / 8,
        "boxes": (corners.reshape(-1, 4), rng.integers(0, 9, number % 4)),
        "name": f"№ {number}",
        "blob": bytes([number % 256]) * (number % 3),
        "scores": rng.random(number % 3, np.float32),
    }


def write(path: Path, count: int = COUNT, formats: tuple[str, ...] = CORE + FOREIGN, **options: Any) -> Path:
    """Write `count` samples, seven to a shard, the images in all of the formats in turn."""
    shares = [{"format": name, "share": 1 / len(formats)} for name in formats]
    plan = {"version": 1, "fields": {"image": {"renditions": 1, "shares": shares}}}
    options = {"workers": 1, "shard_samples": 7, "plan": plan, **options}
    with headrace.Writer(path, fields=FIELDS, **options) as writer:
        for number in range(count):
            writer.write(make_sample(number), key=f"sample/{number}")
    return path


def labels(batches: Any) -> list[list[int]]:
    return [[int(label) for label in batch["label"]] for batch in batches]


def copied(value: Any) -> Any:
    """A batch of NumPy arrays that shares no memory with the one given."""
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    if isinstance(value, tuple):
        return type(value)(*map(copied, value))
    return value.copy() if isinstance(value, np.ndarray) else value


def assert_equal(first: Any, second: Any) -> None:
    """The same structure with the same bits."""
    assert type(first) is type(second)
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for name in first:
            assert_equal(first[name], second[name])
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_equal(one, other)
    elif isinstance(first, np.ndarray):
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)
    else:
        assert first == second


def our_threads() -> list[str]:
    """Threads of Python that a loader started. That of the requests to object stores lives as long as its process."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("headrace") and name != "headrace-store"]


def threads_left() -> list[str]:
    """Those that a loader which was dropped, not closed, has still running after a second: they end by themselves."""
    gc.collect()
    deadline = time.monotonic() + 1
    while our_threads() and time.monotonic() < deadline:
        time.sleep(0.005)
    return our_threads()


def thread_count() -> int:
    """All threads of this process, those of C++ too, once none is on its way out: Python joins them a little early."""
    counts = [0, 1]
    while len(set(counts[-5:])) > 1 or len(counts) < 5:
        time.sleep(0.005)
        counts.append(len(list(Path("/proc/self/task").iterdir())))
    return counts[-1]


def handle_count() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
