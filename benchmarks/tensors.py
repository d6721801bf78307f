# SPDX-License-Identifier: Apache-2.0
"""Measure tensor fields beside memcpy: `python benchmarks/tensors.py`, `--help` for more.

A dataset of tensors in the page cache is loaded in batches, in order and shuffled. A memcpy of the same batches, from
one array in memory to another, runs beside it with the same number of threads. Both write to memory that was written to
before. Rounds are interleaved and the median counts.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import headrace
from benchmarks import results
from headrace.tensors import TensorType

log = Console(stderr=True, highlight=False)
TARGET = 0.8
SIZES = {
    "embedding": "tensor<float32,[768]>",
    "latent": "tensor<float16,[4,64,64]>",
    "features": "tensor<float16,[256,32,32]>",
    "depth": "tensor<float32,[1080,1920]>",
}


def main(
    *,
    megabytes: Annotated[int, typer.Option(min=1, help="Size of each dataset, in megabytes.")] = 512,
    batch_megabytes: Annotated[int, typer.Option(min=1, help="Size of a batch, in megabytes.")] = 16,
    workers: Annotated[int, typer.Option(min=1, help="Threads of the loader, and of memcpy.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 5,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results to this JSON file.")] = None,
) -> None:
    """Measure the rate at which cached tensors are loaded, as a share of memcpy."""
    command = f"python benchmarks/tensors.py --megabytes {megabytes} --batch-megabytes {batch_megabytes}"
    document = results.frame("tensors", f"{command} --workers {workers} --rounds {rounds}", ("numpy", "pyarrow"))
    document |= {"rows": [], "target": TARGET}
    for name, kind in SIZES.items():
        log.print(f"{name}: {kind}", style="dim", markup=False)
        with tempfile.TemporaryDirectory(prefix="headrace-tensors-") as folder:
            row = measure(Path(folder), TensorType.parse(kind), megabytes << 20, batch_megabytes << 20, workers, rounds)
        document["rows"].append({"name": name, "type": kind, **row})
    table = Table("tensors", "memcpy, GB/s", "in order, GB/s", "share", "shuffled, GB/s", "share")
    for row in document["rows"]:
        rates = (row["in_order"], row["shuffled"])
        shown = [text for rate in rates for text in (f"{rate:.2f}", f"{rate / row['memcpy']:.0%}")]
        table.add_row(f"{row['name']}, {row['type']}", f"{row['memcpy']:.2f}", *shown)
    Console(width=120).print(table, markup=False)
    typer.echo(results.provenance(document))
    if output is not None:
        results.write(output, document)


def measure(
    folder: Path, kind: TensorType, n_bytes: int, batch_bytes: int, workers: int, rounds: int
) -> dict[str, float | int | list[float]]:
    """Return the median rates in GB/s of each way, and all of them."""
    batch_size = max(1, batch_bytes // kind.n_bytes)
    count = max(2, n_bytes // (batch_size * kind.n_bytes)) * batch_size
    source = np.random.default_rng(0).integers(0, 256, (count, kind.n_bytes), np.uint8)
    with headrace.Writer(folder / "tensors.hr", fields={"x": str(kind)}) as writer:
        for number, row in enumerate(source):
            writer.write({"x": kind.array(row)}, key=f"{number:08d}")
    options = {"batch_size": batch_size, "num_workers": workers, "output": "numpy"}
    with (
        headrace.Loader(folder / "tensors.hr", **options) as in_order,
        headrace.Loader(folder / "tensors.hr", shuffle=True, **options) as shuffled,
        ThreadPoolExecutor(workers) as pool,
    ):
        ways: dict[str, Callable[[], None]] = {
            "memcpy": lambda: copy_batches(source, batch_size, pool, workers),
            "in_order": lambda: exhaust(in_order),
            "shuffled": lambda: exhaust(shuffled),
        }
        for way in ways.values():
            way()  # threads, the page cache, and memory that was written to
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                start = time.perf_counter()
                way()
                seconds[name].append(time.perf_counter() - start)
    rates = {name: [source.nbytes / one / 1e9 for one in own] for name, own in seconds.items()}
    medians = {name: median(own) for name, own in rates.items()}
    return {"samples": count, "batch_size": batch_size, **medians, **{f"all_{name}": rates[name] for name in rates}}


def exhaust(loader: headrace.Loader) -> None:
    for _ in loader:
        pass


_targets: dict[tuple[int, int], list[np.ndarray]] = {}


def copy_batches(source: np.ndarray, batch_size: int, pool: ThreadPoolExecutor, workers: int) -> None:
    """Copy every batch to one of a few buffers in turn, as a loader does, each thread a part of it."""
    shape = batch_size, source.shape[1]
    targets = _targets.setdefault(shape, [np.zeros(shape, np.uint8) for _ in range(4)])
    parts = np.linspace(0, batch_size, workers + 1).astype(int)
    for number, start in enumerate(range(0, len(source), batch_size)):
        batch, target = source[start : start + batch_size], targets[number % len(targets)]
        ends = list(pairwise(parts))
        list(pool.map(lambda part: np.copyto(target[part[0] : part[1]], batch[part[0] : part[1]]), ends))  # noqa: B023


if __name__ == "__main__":
    typer.run(main)
