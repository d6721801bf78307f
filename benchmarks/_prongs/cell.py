# SPDX-License-Identifier: Apache-2.0
"""One measurement in a process of its own: epochs of a loader on one core, with a trainer.

Called by `benchmarks/_prongs/bench.py` with a JSON object as its only argument; prints another one.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

import headrace
from benchmarks import machine
from benchmarks._prongs.meter import Meter
from benchmarks._prongs.sources import SOURCES
from benchmarks.trainer import Trainer
from headrace.prongs._accounting import resident_bytes
from headrace.prongs._mte import Mte
from headrace.prongs._paced import Paced
from headrace.prongs._pattern import Pattern
from headrace.prongs._strategies import find_strategy

ALONE = "CPU only"
NEAR_ALONE = "near alone"
SPARING = "paced, sparing"
_MOST_EPOCHS = 10_000
# Seconds of the first epoch, by which the second is planned. By two of them the near worker's pace was off by up to a
# quarter; who trains has minutes. A shorter run has a shorter one.
_CALIBRATING, _LEAST_CALIBRATING = 8.0, 2.0
# Seconds of the second that do not count; beside a trainer the host first makes batches ahead, which takes one that is
# half as fast again as the trainer two steps each.
_SETTLING, _BESIDE_TRAINER, _STEPS_AHEAD = 1.0, 3.0, 2.0
_TURN = 1.0  # seconds of which the gauge is asked


class NearOnly(Mte):
    """All batches are the near worker's, and nobody helps."""

    host_helps: ClassVar[bool] = False


def strategy_of(name: str) -> Any:
    """Give a strategy of the loader's by the benchmark's name for it."""
    if name == NEAR_ALONE:
        return NearOnly(plans=dict.fromkeys(range(_MOST_EPOCHS), Pattern(0, 1, 1)))
    return Paced(spare_host=True) if name == SPARING else find_strategy(name)


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Load one epoch in part, in which everything starts and is calibrated; measure in the midst of the next.

    Of `mte`, whose epochs have two unlike parts, whole epochs are loaded and measured: only at the end of one does it
    learn how long prepared batches take that are read one after the other.
    """
    machine.pin([order["core"]])
    near = order["exchange"] is not None
    loader = open_loader(order)
    before = resident_bytes()
    with loader:
        meter = Meter(loader, core=order["core"])
        trainer = Trainer(order["step"])
        calibrating = max(_LEAST_CALIBRATING, min(_CALIBRATING, order["seconds"]))
        _iterate(loader, trainer, meter, float("inf") if order["whole_epochs"] else calibrating, wait=near)
        meter.clear()
        memory: list[int] = []
        if order["whole_epochs"]:
            while meter.seconds < order["seconds"]:
                memory += _iterate(loader, trainer, meter)
                meter.end_epoch()
        else:
            ahead = _SETTLING + _STEPS_AHEAD * order["prefetch"] * order["step"]
            settling = max(_BESIDE_TRAINER, ahead) if order["step"] else _SETTLING
            turn = min(_TURN, order["seconds"] / 2)  # so that a short run has one, too
            memory = _iterate(loader, trainer, meter, order["seconds"], settling=settling, turn=turn)
        prongs = loader.stats().get("prongs")
    return {
        "turns": [asdict(turn) for turn in meter.turns],
        "times": meter.times,
        "plans": meter.plans,
        "buffer_bytes": sum(memory) / max(1, len(memory)) - before,
        "prongs": prongs,
    }


def open_loader(order: dict[str, Any]) -> headrace.Loader:
    """Open the loader of a cell: one thread, epochs of so many batches, with or without a near worker."""
    source = SOURCES[order["source"]]
    dataset = headrace.open(order["dataset"])
    total = order["batches"] * source.batch_size
    near = {} if order["exchange"] is None else {"near": order["exchange"], "strategy": strategy_of(order["strategy"])}
    return headrace.Loader(
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


def _iterate(
    loader: headrace.Loader,
    trainer: Trainer,
    meter: Meter,
    seconds: float = float("inf"),
    *,
    settling: float = 0.0,
    turn: float = float("inf"),
    wait: bool = False,
) -> list[int]:
    """Train for so long after everything flows, or to the end of the epoch; gives what memory was in use."""
    memory: list[int] = []
    begun = time.perf_counter()
    for number, batch in enumerate(loader):
        if wait and number == 0:
            wait_for_near(loader)
            begun = time.perf_counter()
        trainer.take(batch)
        now = time.perf_counter()
        meter.batch(len(batch["image"]))
        if settling and now - begun >= settling:
            meter.clear()
            begun, settling = now, 0.0
        elif not settling and meter.since_cut >= turn:
            meter.cut()
        if not settling and now - begun >= seconds:
            break
        if not settling and number % 8 == 0:
            memory.append(resident_bytes())
    return memory


def wait_for_near(loader: headrace.Loader) -> None:
    """Wait until the near worker has made two batches."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        figures = loader.stats()["prongs"]["near"]
        if figures is not None and figures["batches"] >= 2:
            return
        time.sleep(0.01)
    raise RuntimeError("no near worker has come within a minute")


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
