# SPDX-License-Identifier: Apache-2.0
"""One measurement in a process of its own: epochs of a loader on one core, with a trainer that sleeps.

Called by `benchmarks/_prongs/bench.py` with a JSON object as its only argument; prints another one.
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
    way = {"core": order["core"], "whole_epochs": order["strategy"] == "mte"}
    with loader:
        _epoch(loader, Slices(loader, **way), order, memory, wait=bool(near))
        memory.clear()
        slices = Slices(loader, **way)
        while slices.seconds < order["seconds"]:
            _epoch(loader, slices, order, memory)
        prongs = loader.stats().get("prongs")
    return {
        "slices": [asdict(each) for each, _ in slices.cut],
        "plans": [plan for _, plan in slices.cut],
        "buffer_bytes": sum(memory) / max(1, len(memory)) - before,
        "prongs": prongs,
    }


def _epoch(
    loader: headrace.Loader,
    slices: Slices,
    order: dict[str, Any],
    memory: list[int],
    *,
    wait: bool = False,
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
        if slices.seconds >= order["seconds"] and not wait and order["strategy"] != "mte":
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


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096
    except OSError:
        return 0


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
