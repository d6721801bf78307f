# SPDX-License-Identifier: Apache-2.0
"""From the runs of a loader to its figures, and from the JSON document to tables.

Pure: the document is all that a table needs, so that a page can be rendered long after the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks._loaders.cases import ANTIALIASED
from benchmarks.tables import NOTHING, Table, figures, times

Document = Mapping[str, Any]

_COLUMNS = (
    "loader",
    "images/s",
    "x one worker",
    "CPU ms an image",
    "in later epochs",
    "x ours",
    "kB an image",
    "first batch s",
    "peak MB",
)
_CROPS = {"random-resized": "RandomResizedCrop", "random": "RandomCrop", "center": "CenterCrop"}
_MEAN_TOLERANCE = 0.2  # of normalised pixels; 512 random crops of the same images scatter less


def figures_of(run: Mapping[str, Any]) -> dict[str, float | None]:
    """What one run comes to: over all of it, and over the epochs after the first, which pay for no start."""
    first, last = run["epochs"][0], run["epochs"][-1]
    later = {name: last[name] - first[name] for name in ("images", "seconds", "cpu_seconds")}
    several = len(run["epochs"]) > 1
    return {
        "images_a_second": run["images"] / run["seconds"],
        "cpu_ms": 1000 * run["cpu_seconds"] / run["images"],
        "later_images_a_second": later["images"] / later["seconds"] if several else None,
        "later_cpu_ms": 1000 * later["cpu_seconds"] / later["images"] if several else None,
        "first_batch_seconds": run["first_batch_seconds"],
        "peak_rss_bytes": run["peak_rss_bytes"],
        "peak_mapped_bytes": run["peak_mapped_bytes"],
        "mean": run["mean"],
        "deviation": run["deviation"],
    }


def middle(runs: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """The median of every figure over the rounds."""
    return {name: _median([run[name] for run in runs]) for name in runs[0]}


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def steady_cpu_ms(row: Document) -> float:
    """CPU milliseconds an image that ratios are taken of: those of later epochs, if there are any.

    They are without the start, in which some compile (FFCV), and without the end, before which some have prepared
    batches that nobody takes (DALI).
    """
    found = row["median"]
    return float(found["cpu_ms"] if found["later_cpu_ms"] is None else found["later_cpu_ms"])


def case_table(case: Document, workers: int) -> Table:
    """Every loader on one case with so many workers."""
    rows = [row for row in case["rows"] if row["workers"] == workers]
    alone = {row["name"]: row["median"] for row in case["rows"] if row["workers"] == 1}
    ours = next((steady_cpu_ms(row) for row in rows if row["ours"]), None)
    cells = []
    for row in rows:
        found = row["median"]
        single = alone.get(row["name"]) if workers > 1 else None
        cells.append(
            [
                row["label"],
                figures(found["images_a_second"]),
                times(found["images_a_second"] / single["images_a_second"]) if single else NOTHING,
                milliseconds(found["cpu_ms"]),
                milliseconds(found["later_cpu_ms"]),
                times(steady_cpu_ms(row) / ours) if ours else NOTHING,
                figures(row["bytes_an_image"] / 1e3),
                figures(found["first_batch_seconds"]),
                figures(found["peak_rss_bytes"] / 1e6),
            ]
        )
    return Table(
        _COLUMNS,
        cells,
        title=case_title(case, workers),
        notes=_notes(case, rows),
        bold=frozenset(row["label"] for row in rows if row["ours"]),
    )


def case_title(case: Document, workers: int) -> str:
    workers_text = "1 worker on 1 core" if workers == 1 else f"{workers} workers on {workers} cores"
    crop = f"{_CROPS[case['crop']]}({case['size']})"
    return f"{case['name']}: {case['images']} images, {case['epochs']} epochs, {crop}, {workers_text}"


def _notes(case: Document, rows: Sequence[Document]) -> list[str]:
    notes = ["Later epochs are those after the first; `x ours` is of them."] if case["epochs"] > 1 else []
    if case["crop"] == "random-resized":
        other: dict[str, list[str]] = {}
        for row in rows:
            if row["resize"] != ANTIALIASED:
                other.setdefault(row["resize"], []).append(row["label"])
        listed = [f"{'; '.join(labels)}: {resize}" for resize, labels in other.items()]
        notes.append("Resized bilinearly with antialias" + (f", but {', and '.join(listed)}." if listed else "."))
    mapped = [row["label"] for row in rows if row["median"]["peak_mapped_bytes"] * 2 > row["median"]["peak_rss_bytes"]]
    if mapped:
        notes.append(f"Most of the memory is the mapped file itself: {'; '.join(mapped)}.")
    notes += odd_ones(rows)
    return notes


def odd_ones(rows: Sequence[Document]) -> list[str]:
    """The loaders whose pixels are not like the others'."""
    middles = {name: median(row["median"][name] for row in rows) for name in ("mean", "deviation")} if rows else {}
    return [
        f"{row['label']} has pixels of another {name} than the others: {row['median'][name]:.2f}, not {usual:.2f}."
        for row in rows
        for name, usual in middles.items()
        if abs(row["median"][name] - usual) > _MEAN_TOLERANCE
    ]


def summary_table(document: Document) -> Table:
    """One row a case: our CPU time beside that of the loaders that decide it, with most workers."""
    peers = ("dataloader-pillow", "dali", "ffcv-raw", "ffcv-jpg")
    lines: list[list[str]] = []
    labels: dict[str, str] = {}
    for case in document["cases"]:
        workers = max((row["workers"] for row in case["rows"]), default=0)
        rows = {row["name"]: row for row in case["rows"] if row["workers"] == workers}
        labels |= {name: row["label"] for name, row in rows.items()}
        for row in rows.values():
            if row["ours"]:
                beside = [_ratio(rows.get(peer), row) for peer in peers]
                rate = figures(row["median"]["images_a_second"])
                lines.append([f"{case['name']}, {row['label']}", rate, milliseconds(steady_cpu_ms(row)), *beside])
    columns = [
        "case",
        "images/s",
        "CPU ms an image, later epochs",
        *(f"x CPU: {labels.get(peer, peer)}" for peer in peers),
    ]
    return Table(columns, lines, title="Headrace beside others, by CPU time")


def milliseconds(value: float | None) -> str:
    """A cost of an image, which may be a few microseconds: `0.021`, `4.42`, `87.8`."""
    return f"{value:.3f}" if value is not None and value < 1 else figures(value)


def _ratio(peer: Document | None, ours: Document) -> str:
    return NOTHING if peer is None else times(steady_cpu_ms(peer) / steady_cpu_ms(ours))


def provenance(document: Document) -> str:
    """Where the figures come from, in one paragraph."""
    machine, ours = document["machine"], document["headrace"]
    found = sorted({pair for versions in document["libraries"].values() for pair in versions.items()})
    libraries = ", ".join(f"{name} {version}" for name, version in found)
    return (
        f"Measured with `{document['command']}` at commit {ours['commit'] or 'no commit'} on {machine['cpu']} "
        f"({ours['target']} target, {machine['python']}); median of {document['rounds']} interleaved rounds, "
        f"page cache warm. With {libraries}."
    )
