# SPDX-License-Identifier: Apache-2.0
"""Batches in windows, in a process of its own: so many as are asked for, then it rests until it is asked again.

Called by `benchmarks/spared.py` with a JSON object as its only argument. Reads lines, each a number of batches and the
seconds to rest after them, and answers each with a line of JSON. A window begins and ends when all that is made ahead
is made, so what it costs is the cost of just so many batches, with none half done.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

import headrace
from benchmarks import machine
from benchmarks._prongs.cell import open_loader, wait_for_near
from benchmarks.trainer import Trainer

_CALIBRATING = 8.0  # seconds of the first epoch, by which the second is planned


def serve(order: dict[str, Any]) -> None:
    """Answer until there are no more questions."""
    machine.pin([order["core"]])
    with open_loader(order) as loader:
        _calibrate(loader, order["step"], near=order["exchange"] is not None)
        batches = iter(loader)
        for line in sys.stdin:
            count, rest = line.split()
            print(json.dumps(_window(loader, batches, int(count), order["step"], float(rest))), flush=True)


def _calibrate(loader: headrace.Loader, step: float, *, near: bool) -> None:
    trainer = Trainer(step)
    begun = time.perf_counter()
    for number, batch in enumerate(loader):
        if near and number == 0:
            wait_for_near(loader)
        trainer.take(batch)
        if time.perf_counter() - begun > _CALIBRATING:
            return


def _window(loader: headrace.Loader, batches: Iterator[Any], count: int, step: float, rest: float) -> dict[str, Any]:
    before = _figures(loader)
    trainer = Trainer(step)
    begun, used = time.perf_counter(), time.process_time()
    for _ in range(count):
        trainer.take(next(batches))
    seconds = time.perf_counter() - begun
    time.sleep(rest)
    cpu = time.process_time() - used
    after = _figures(loader)
    if after["queued"]:
        raise RuntimeError(f"{after['queued']} images are still to be made after {rest} s of rest: rest longer")
    return {
        "batches": count,
        "seconds": seconds,
        "cpu": cpu,
        "preparing": after["preparing"] - before["preparing"],
        "near": after["near"] - before["near"],
        "redone": sum(after["redone"].values()) - sum(before["redone"].values()),
    }


def _figures(loader: headrace.Loader) -> dict[str, Any]:
    stats = loader.stats()
    prongs = stats.get("prongs") or {"near_batches": 0, "redone": {}}
    return {
        "near": prongs["near_batches"],
        "redone": prongs["redone"],
        "preparing": stats["cpu_seconds"],
        "queued": stats["queued_images"] + stats["active_threads"],
    }


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
