# SPDX-License-Identifier: Apache-2.0
"""Measure how long the loader holds the GIL: `python benchmarks/gil.py DATASET`, `--help` for more.

The trainer's thread takes batches at a given rate and otherwise sleeps, so that the CPU time of the process's Python
threads is the loader's own: an upper bound of the time for which they hold the GIL. The core's threads never take it.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from pathlib import Path
from typing import Annotated

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer

import headrace
from benchmarks import machine, results
from benchmarks.tables import Table, figures
from headrace.transforms import HorizontalFlip, Normalize, RandomResizedCrop

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def python_seconds() -> float:
    """CPU time of all threads that run Python, from the scheduler's books (Linux)."""
    total = 0
    for thread in threading.enumerate():
        books = Path(f"/proc/self/task/{thread.native_id}/schedstat")
        total += int(books.read_text(encoding="ascii").split()[0])
    return total / 1e9


def measure(dataset: Path, rate: float, batch_size: int, seconds: float, output: str) -> dict[str, float]:
    """Take batches at `rate` images a second for about `seconds`; give the share of time that Python was at work."""
    transform = [RandomResizedCrop(224), HorizontalFlip(), Normalize(MEAN, STD)]
    samples = len(headrace.open(dataset))
    epoch = -(-int(rate * seconds + 2 * batch_size) // samples) * list(range(samples))
    with headrace.Loader(
        dataset, batch_size=batch_size, shuffle=True, transform=transform, indices=epoch, output=output
    ) as loader:
        batches = iter(loader)
        next(batches)  # imports and first pages are not what is asked for
        images, late = 0, 0.0
        start, busy = time.perf_counter(), python_seconds()
        while images < rate * seconds:
            images += len(next(batches)["image"])
            pause = start + images / rate - time.perf_counter()
            late = max(late, -pause)
            if pause > 0:
                time.sleep(pause)
        wall, busy = time.perf_counter() - start, python_seconds() - busy
        del batches
    return {"images": images, "images_per_second": images / wall, "share": busy / wall, "late_seconds": late}


def main(
    dataset: Annotated[Path, typer.Argument(help="A dataset with labels, in formats that the core decodes.")],
    *,
    rate: Annotated[float, typer.Option(min=1, help="Images a second.")] = 1000,
    seconds: Annotated[float, typer.Option(min=1, help="For how long.")] = 10,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results as JSON.")] = None,
) -> None:
    """Measure the share of time for which the loader's Python code runs at a given rate."""
    kinds = ("numpy", "torch") if importlib.util.find_spec("torch") else ("numpy",)
    rows = [
        {"output": kind, "batch_size": batch_size} | measure(dataset, rate, batch_size, seconds, kind)
        for kind in kinds
        for batch_size in (32, 256)
    ]
    document = {"benchmark": "gil", "machine": machine.describe(), "commit": machine.commit(), "rows": rows}
    cells = [
        [row["output"], str(row["batch_size"]), figures(row["images_per_second"]), f"{row['share']:.2%}"]
        for row in rows
    ]
    typer.echo(Table(("output", "batch size", "images/s", "Python at work"), cells).markdown())
    if output is not None:
        results.write(output, document)


if __name__ == "__main__":
    typer.run(main)
