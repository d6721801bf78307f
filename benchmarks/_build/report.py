# SPDX-License-Identifier: Apache-2.0
"""The result of `benchmarks/build.py` as a table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks._build.contenders import BOUND
from benchmarks.tables import NOTHING, Table, figures, times

METHOD = """\
- The same PNGs are built into a dataset by every writer. Every measurement is a process of its own; rounds are
  interleaved and the best of each counts.
- The bound is decoding every PNG and encoding it as `hri:dense` in as many threads, with nothing written. `of the
  bound` compares with it the speed of builds that do the same work.
- FFCV stores raw pixels; WebDataset and LitData copy the files.
- CPU time and peak memory are those of all processes; peak memory is that of the largest.
"""


def table(document: Mapping[str, Any]) -> Table:
    """One row per writer and number of workers."""
    rows = {(row["name"], row["workers"]): row for row in document["rows"]}
    n = document["images"]
    lines = []
    for (name, workers), row in rows.items():
        bound, alone = rows.get((BOUND, workers)), rows.get((name, 1))
        lines.append(
            [
                name,
                str(workers),
                figures(n / row["seconds"]),
                times(bound["seconds"] / row["seconds"]) if bound and "hri:dense" in name else NOTHING,
                times(alone["seconds"] / row["seconds"]) if alone and workers > 1 else NOTHING,
                figures(1000 * row["cpu_seconds"] / n),
                figures(row["peak_mb"]),
                figures(row["n_bytes"] / 1e6) if row["n_bytes"] else NOTHING,
            ]
        )
    columns = ("writer", "workers", "images/s", "of the bound", "of one worker", "CPU ms per image", "peak MB", "dataset MB")
    return Table(columns, lines, title=f"{n} PNGs into a dataset")
