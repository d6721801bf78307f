# SPDX-License-Identifier: Apache-2.0
"""From the runs of a loader to its figures, and from the result to tables and a chart. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks import chart
from benchmarks._loaders.cases import ANTIALIASED
from benchmarks.tables import NOTHING, Table, figures, times

Document = Mapping[str, Any]

METHOD = """\
- All loaders do the same work: read, decode, crop, resize, normalize to float32, in batches with labels and in
  another order each epoch. [benchmarks/peers](../../benchmarks/peers/README.md) lists what differs.
- Every run is a process tree of its own, in the peer's own environment, held to as many cores as it has workers.
  Rounds are interleaved and the median counts. The page cache is warm, so no disk is measured.
- Images per second cover a whole run of several epochs, from creating the loader to closing it, without imports. CPU
  time is that of all processes.
- Ratios use the CPU time of the epochs after the first: FFCV compiles in the first, and DALI prepares batches that
  nobody takes in the last.
- Peak memory is that of all processes, sampled up to ten times per second; shared pages count once, and pages of
  mapped files count.
- One pixel in 256 of every batch is checked. A loader with another number of images, shape or type is excluded and
  named; one whose pixels have another mean or deviation is noted below the table.
"""

_COLUMNS = (
    "loader",
    "images/s",
    "CPU ms per image",
    "after the first epoch",
    "x ours",
    "kB per image",
    "first batch s",
    "peak MB",
)
_CROPS = {"random-resized": "RandomResizedCrop", "random": "RandomCrop", "center": "CenterCrop"}
_MEAN_TOLERANCE = 0.2  # of normalized pixels; random crops of the same images vary less


def figures_of(run: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the figures of one run: over all of it, and over the epochs after the first."""
    first, last = run["epochs"][0], run["epochs"][-1]
    later = {name: last[name] - first[name] for name in ("images", "seconds", "cpu_seconds")}
    several = len(run["epochs"]) > 1
    return {
        "images_per_second": run["images"] / run["seconds"],
        "cpu_ms": 1000 * run["cpu_seconds"] / run["images"],
        "later_images_per_second": later["images"] / later["seconds"] if several else None,
        "later_cpu_ms": 1000 * later["cpu_seconds"] / later["images"] if several else None,
        "first_batch_seconds": run["first_batch_seconds"],
        "peak_rss_bytes": run["peak_rss_bytes"],
        "peak_mapped_bytes": run["peak_mapped_bytes"],
        "mean": run["mean"],
        "deviation": run["deviation"],
    }


def middle(runs: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Return the median of every figure over the rounds."""
    return {name: _median([run[name] for run in runs]) for name in runs[0]}


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def steady_cpu_ms(row: Document) -> float:
    """Return the CPU milliseconds per image that ratios use: after the first epoch, if there is a second."""
    found = row["median"]
    return float(found["cpu_ms"] if found["later_cpu_ms"] is None else found["later_cpu_ms"])


def rows_of(case: Document) -> list[Document]:
    """Return the rows with most workers."""
    workers = max((row["workers"] for row in case["rows"]), default=0)
    return [row for row in case["rows"] if row["workers"] == workers]


def case_table(case: Document, workers: int) -> Table:
    """Every loader on one case with so many workers."""
    rows = [row for row in case["rows"] if row["workers"] == workers]
    ours = next((steady_cpu_ms(row) for row in rows if row["ours"]), None)
    lines = []
    for row in rows:
        found = row["median"]
        lines.append(
            [
                row["label"],
                figures(found["images_per_second"]),
                milliseconds(found["cpu_ms"]),
                milliseconds(found["later_cpu_ms"]),
                times(steady_cpu_ms(row) / ours) if ours else NOTHING,
                figures(row["bytes_per_image"] / 1e3),
                figures(found["first_batch_seconds"]),
                figures(found["peak_rss_bytes"] / 1e6),
            ]
        )
    return Table(
        _COLUMNS,
        lines,
        title=case_title(case, workers),
        notes=_notes(case, rows),
        bold=frozenset(row["label"] for row in rows if row["ours"]),
    )


def case_title(case: Document, workers: int) -> str:
    crop = f"{_CROPS[case['crop']]}({case['size']})"
    plural = "" if workers == 1 else "s"
    return f"{case['title']}: {crop}, {case['images']} images, {workers} worker{plural} on {workers} core{plural}"


def _notes(case: Document, rows: Sequence[Document]) -> list[str]:
    notes = []
    if case["crop"] == "random-resized":
        other: dict[str, list[str]] = {}
        for row in rows:
            if row["resize"] != ANTIALIASED:
                other.setdefault(row["resize"], []).append(row["label"])
        listed = [f"{'; '.join(labels)}: {resize}" for resize, labels in other.items()]
        notes.append("Resize is bilinear and antialiased" + (f", except {', and '.join(listed)}." if listed else "."))
    mapped = [row["label"] for row in rows if row["median"]["peak_mapped_bytes"] * 2 > row["median"]["peak_rss_bytes"]]
    if mapped:
        notes.append(f"Most of the memory is the mapped file itself: {'; '.join(mapped)}.")
    return notes + unlike(rows)


def unlike(rows: Sequence[Document]) -> list[str]:
    """Name the loaders whose pixels differ from the others'."""
    middles = {name: median(row["median"][name] for row in rows) for name in ("mean", "deviation")} if rows else {}
    return [
        f"{row['label']}: the {name} of its pixels is {row['median'][name]:.2f}; that of the others is {usual:.2f}."
        for row in rows
        for name, usual in middles.items()
        if abs(row["median"][name] - usual) > _MEAN_TOLERANCE
    ]


def summary_table(document: Document) -> Table:
    """One row per loader, one column per case: CPU time per image, and images per second."""
    by_case = [{row["label"]: row for row in rows_of(case)} for case in document["cases"]]
    labels = dict.fromkeys(row["label"] for case in document["cases"] for row in rows_of(case))
    return Table(
        ("CPU ms per image (images/s)", *(case["title"] for case in document["cases"])),
        [[label, *(_cost(rows.get(label)) for rows in by_case)] for label in labels],
        title="Loaders",
        bold=frozenset(row["label"] for rows in by_case for row in rows.values() if row["ours"]),
    )


def _cost(row: Document | None) -> str:
    if row is None:
        return NOTHING
    return f"{milliseconds(steady_cpu_ms(row))} ({figures(row['median']['images_per_second'])})"


def milliseconds(value: float | None) -> str:
    """A cost per image, which may be a few microseconds: `0.021`, `4.42`, `87.8`."""
    return f"{value:.3f}" if value is not None and value < 1 else figures(value)


def case_chart(case: Document) -> str:
    """The loaders of a case by CPU time, the most expensive first."""
    rows = sorted(rows_of(case), key=steady_cpu_ms, reverse=True)
    bars = [chart.Bar(row["label"], cost := steady_cpu_ms(row), milliseconds(cost), row["ours"]) for row in rows]
    return chart.svg(
        case_title(case, rows[0]["workers"]), "CPU milliseconds per image after the first epoch; less is better", bars
    )


def versions(document: Document) -> str:
    """Name the versions of all libraries."""
    found = sorted({pair for installed in document["libraries"].values() for pair in installed.items()})
    return f"Median of {document['rounds']} rounds. " + ", ".join(f"{name} {version}" for name, version in found) + "."


def losses(document: Document) -> list[str]:
    """Name, for each case, the loaders that need less CPU time than the best of ours."""
    found = []
    for case in document["cases"]:
        rows = rows_of(case)
        ours = min((steady_cpu_ms(row) for row in rows if row["ours"]), default=0.0)
        found += [
            f"{row['label']} needs less CPU: {case['title']} {times(steady_cpu_ms(row) / ours)}"
            for row in rows
            if not row["ours"] and steady_cpu_ms(row) < ours
        ]
    return found
