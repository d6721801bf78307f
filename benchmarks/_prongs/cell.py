# SPDX-License-Identifier: Apache-2.0
"""One measurement in a process of its own: epochs of a loader on one core, with a trainer that sleeps.

Called by `benchmarks/prongs.py` with a JSON object as its only argument; prints another one.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

import headrace
from benchmarks import machine
from benchmarks._prongs.sources import SOURCES
from headrace.prongs._mte import Mte
from headrace.prongs._paced import Paced
from headrace.prongs._pattern import Pattern
from headrace.prongs._strategies import find_strategy

NEAR_ALONE = "near alone"
SPARING = "paced, sparing"


def strategy_of(name: str) -> Any:
    """Give a strategy of the loader's by the benchmark's name for it."""
    if name == NEAR_ALONE:
        return Mte(plans=dict.fromkeys(range(100), Pattern(0, 1, 1)))
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
    wall = cpu = near_cpu = stepped = 0.0
    samples = steps = 0
    memory: list[int] = []
    near_batches = stock = 0
    with loader:
        for epoch in range(order["epochs"]):
            counts = epoch > 0 or order["epochs"] == 1
            begun, used, prepared = time.perf_counter(), time.process_time(), _near(loader)
            skip = 0
            for number, batch in enumerate(loader):
                if number == 0 and epoch == 0 and near:
                    there = _wait_for_near(loader)
                    skip = there if order["strategy"] == NEAR_ALONE else 0
                if number < skip:  # what lay ready does not count
                    begun, used, prepared = time.perf_counter(), time.process_time(), _near(loader)
                    continue
                slept = time.perf_counter()
                if order["step"]:
                    time.sleep(order["step"])
                if counts:
                    stepped += time.perf_counter() - slept
                    steps += 1
                    samples += len(batch["image"])
                    if steps % 8 == 0:
                        memory.append(_resident_bytes())
            if counts:
                wall += time.perf_counter() - begun
                cpu += time.process_time() - used
                after = _near(loader)
                near_cpu += after[0] - prepared[0]
                near_batches += after[1] - prepared[1]
                stock += (after[1] - prepared[1]) - (after[2] - prepared[2])
        figures = loader.stats()
    return {
        "samples": samples,
        "batches": steps,
        "seconds": wall,
        "step": stepped / steps,
        "host_cpu": cpu,
        "near_cpu": near_cpu,
        "near_batches": near_batches,
        "stock_batches": max(0, stock),
        "buffer_bytes": sum(memory) / max(1, len(memory)) - before,
        "prongs": figures.get("prongs"),
    }


def _near(loader: headrace.Loader) -> tuple[float, int, int]:
    """CPU seconds of the near worker so far, batches of it that were trained on, and batches that it has made."""
    figures = loader.stats().get("prongs")
    if figures is None:
        return 0.0, 0, 0
    near = figures["near"]
    if near is None:
        return 0.0, figures["near_batches"], 0
    return near["cpu_seconds"], figures["near_batches"], near["batches"]


def _wait_for_near(loader: headrace.Loader) -> int:
    """Wait until the near worker has made two batches; give how many are there by then, and one more."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        figures = loader.stats()["prongs"]["near"]
        if figures is not None and figures["batches"] >= 2:
            return int(figures["batches"]) + 1
        time.sleep(0.01)
    raise RuntimeError("no near worker has come within a minute")


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096
    except OSError:
        return 0


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
