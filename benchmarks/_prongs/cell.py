# SPDX-License-Identifier: Apache-2.0
"""One measurement in a process of its own: epochs of a loader on one core, with a trainer that sleeps.

Called by `benchmarks/_prongs/bench.py` with a JSON object as its only argument; prints another one. It goes on until
enough of it was quiet, or its patience ends.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

import headrace
from benchmarks import machine
from benchmarks._prongs.slices import Slices
from benchmarks._prongs.sources import SOURCES
from headrace.prongs._mte import Mte
from headrace.prongs._paced import Paced
from headrace.prongs._pattern import Pattern
from headrace.prongs._strategies import find_strategy

ALONE = "CPU only"
NEAR_ALONE = "near alone"
SPARING = "paced, sparing"
_ENOUGH = 0.5  # of them, for a cell to count as undisturbed
_MOST_EPOCHS = 10_000
_WARMING = 5


def strategy_of(name: str) -> Any:
    """Give a strategy of the loader's by the benchmark's name for it."""
    if name == NEAR_ALONE:
        return Mte(plans=dict.fromkeys(range(_MOST_EPOCHS), Pattern(0, 1, 1)))
    return Paced(spare_host=True) if name == SPARING else find_strategy(name)


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Load epochs; the first, in which everything starts and is calibrated, does not count."""
    machine.pin([order["core"]])
    source = SOURCES[order["source"]]
    dataset = headrace.open(order["dataset"])
    total = order["batches"] * source.batch_size
    near = {} if order["exchange"] is None else {"near": order["exchange"], "strategy": strategy_of(order["strategy"])}
    loader = headrace.Loader(
        dataset,
        batch_size=source.batch_size,
        shuffle=True,
        indices=(list(range(len(dataset))) * (total // len(dataset) + 1))[:total],
        transform=source.transform,
        num_workers=1,
        output="numpy",
        prefetch_factor=order["prefetch"],
        **near,
    )
    before = _resident_bytes()
    memory: list[int] = []
    logs = [Path(log) for log in order["logs"]]
    way = {"core": order["core"], "whole_epochs": order["strategy"] == "mte"}
    with loader:
        _epoch(loader, Slices(loader, logs, **way), order, memory, wait=bool(near))
        memory.clear()
        slices = Slices(loader, logs, **way)
        deadline = time.monotonic() + order["patience"] * order["seconds"]
        while slices.counted.seconds < order["seconds"] and time.monotonic() < deadline:
            _epoch(loader, slices, order, memory, deadline=deadline)
        prongs = loader.stats().get("prongs")
    counted, quiet = slices.best(_ENOUGH * order["seconds"])
    return {
        **asdict(counted),
        "step": counted.step_seconds / max(1, counted.batches),
        "buffer_bytes": sum(memory) / max(1, len(memory)) - before,
        "prongs": prongs,
        "quiet": quiet,
        "quiet_seconds": slices.counted.seconds,
        "all_seconds": slices.all.seconds,
        "all_rate": slices.all.samples / slices.all.seconds if slices.all.seconds else None,
        "paces": _means(slices.paces),
        "epochs": slices.epochs,
    }


def _epoch(
    loader: headrace.Loader,
    slices: Slices,
    order: dict[str, Any],
    memory: list[int],
    *,
    wait: bool = False,
    deadline: float = float("inf"),
) -> None:
    """Train one epoch, or as much of it as is needed."""
    for number, batch in enumerate(loader):
        if wait and number == 0:
            _wait_for_near(loader)
        begun = time.perf_counter()
        if order["step"]:
            time.sleep(order["step"])
        slices.batch(len(batch["image"]), time.perf_counter() - begun)
        if number % 8 == 0:
            memory.append(_resident_bytes())
        enough = slices.counted.seconds >= order["seconds"] or time.monotonic() > deadline
        if enough and not wait and order["strategy"] != "mte":
            return
        if wait and order["strategy"] == NEAR_ALONE and number == _WARMING:
            return  # there is nothing to calibrate, and an epoch would take long
    slices.end_epoch()


def _wait_for_near(loader: headrace.Loader) -> None:
    """Wait until the near worker has made two batches."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        figures = loader.stats()["prongs"]["near"]
        if figures is not None and figures["batches"] >= 2:
            return
        time.sleep(0.01)
    raise RuntimeError("no near worker has come within a minute")


def _means(paces: list[list[float | None]]) -> list[float | None]:
    """The mean pace of each core that was watched."""
    columns = [[pace for pace in column if pace is not None] for column in zip(*paces, strict=True)]
    return [sum(column) / len(column) if column else None for column in columns]


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096
    except OSError:
        return 0


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
