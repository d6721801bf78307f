# SPDX-License-Identifier: Apache-2.0
"""Measure what growing a dataset costs: `python benchmarks/growing.py [--samples N] [--share S]`, `--help` for more.

A dataset of images that are cheap to encode is built, and a share of its samples is added. What counts is the bytes
that the process passes to the system for writing (`wchar` in /proc/self/io), because they do not depend on other load:
temporary files, parts, index and version file are all in it. Seconds are given too.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import typer

import headrace
from benchmarks import results


class Samples:
    """Images of one kilobyte with a label; an iterable that starts again."""

    def __init__(self, first: int, count: int) -> None:
        self._numbers = range(first, first + count)
        self._noise = np.random.default_rng(0).integers(0, 256, (1 << 16) + 1024, np.uint8)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for number in self._numbers:
            start = number % (1 << 16)
            yield {
                "image": self._noise[start : start + 1024].reshape(32, 32),
                "label": number % 1000,
                "__key__": f"images/{number:09d}",
            }


def bytes_written() -> int:
    """Return the bytes that this process has passed to write calls."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


def measured(name: str, work: Callable[[], Any]) -> dict[str, Any]:
    before, start, cpu = bytes_written(), time.perf_counter(), time.process_time()
    work()
    return {
        "name": name,
        "bytes_written": bytes_written() - before,
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
    }


def measure(folder: Path, samples: int, share: float) -> list[dict[str, Any]]:
    """Build, add, drop and relabel; return what each has cost."""
    path, added = folder / "grown.hr", max(1, round(samples * share))
    build, add = headrace.build, headrace.add
    rows = [
        measured("build", lambda: build(Samples(0, samples), path, format="raw", verify=False, workers=1)),
        measured("add", lambda: add(path, Samples(samples, added), verify=False, workers=1)),
    ]
    gone = np.arange(0, samples, max(1, round(1 / share)))
    rows.append(measured("drop", lambda: headrace.drop(path, gone)))
    rows.append(measured("relabel", lambda: headrace.relabel(path, gone, 1)))
    start = time.perf_counter()
    dataset = headrace.open(path)
    rows.append({"name": "open", "bytes_written": 0, "seconds": time.perf_counter() - start, "cpu_seconds": 0.0})
    assert len(dataset) == samples + added - len(gone)
    return rows


def main(
    *,
    samples: Annotated[int, typer.Option(min=100, help="Samples of the dataset.")] = 1_000_000,
    share: Annotated[float, typer.Option(min=0.0001, max=1, help="Share to add, drop and relabel.")] = 0.01,
    folder: Annotated[Path | None, typer.Option(help="Folder for the dataset (default: a temporary one).")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results to this JSON file.")] = None,
) -> None:
    """Measure what growing a dataset costs, in proportion to building it."""
    command = f"python benchmarks/growing.py --samples {samples} --share {share:g}"
    document = results.frame("growing", command, ("numpy", "pyarrow"))
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        rows = measure(Path(temporary), samples, share)
    whole = rows[0]
    for row in rows:
        row["share_of_bytes"] = row["bytes_written"] / whole["bytes_written"]
        row["share_of_cpu"] = row["cpu_seconds"] / whole["cpu_seconds"]
        print(
            f"{row['name']:8} {row['bytes_written']:>14,} bytes ({row['share_of_bytes']:7.3%})  "
            f"{row['seconds']:8.3f} s, {row['cpu_seconds']:8.3f} s of CPU ({row['share_of_cpu']:7.3%})"
        )
    document |= {"samples": samples, "share": share, "rows": rows}
    if output is not None:
        output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
