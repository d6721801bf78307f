# SPDX-License-Identifier: Apache-2.0
"""From measurements to the JSON document, and from the document to tables.

Pure: the document is all that a table needs, so that a page can be rendered long after the run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks._codec.contract import HEADRACE, SECOND_REFERENCE, Codec
from benchmarks._codec.totals import Row, ratios, total
from benchmarks.tables import NOTHING, Table, count, figures, share, times

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LABELS = {mode: f"hri:{mode}" for mode in HEADRACE}


def set_document(
    *,
    name: str,
    sha256: str,
    codecs: Sequence[Codec],
    rows: Sequence[Row],
    references: Mapping[str, str | None],
    failed: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """All that was measured on one set.

    Args:
        name: What the set is called.
        sha256: Hash over its files.
        codecs: In the order of the table.
        rows: Of every image and codec that could be measured.
        references: For each image, by name, the codec that its ratios are taken to.
        failed: For each codec that was not lossless, on which images.

    """
    by_key = {(row.image, row.codec): row for row in rows}
    reference_rows = {
        image: by_key.get((image, codec)) if codec is not None else None for image, codec in references.items()
    }
    sizes = {row.image: row.n_pixels for row in rows}
    return {
        "name": name,
        "sha256": sha256,
        "images": len(references),
        "pixels": sum(sizes.values()),
        "references": dict(Counter(codec or "none" for codec in references.values())),
        "codecs": [_codec_document(codec, rows, reference_rows, failed.get(codec.name, ())) for codec in codecs],
        "rows": [asdict(row) | {"ratios": asdict(ratios(row, reference_rows[row.image]))} for row in rows],
        "regions": [],
        "threads": [],
    }


def _codec_document(
    codec: Codec, rows: Sequence[Row], reference_rows: Mapping[str, Row | None], failed: Sequence[str]
) -> dict[str, Any]:
    own = [row for row in rows if row.codec == codec.name]
    document: dict[str, Any] = {"name": codec.name, "label": codec.label, "lossless": codec.lossless, "total": None}
    if failed:
        document["not_lossless_on"] = list(failed)
    # A total over part of a set would be compared with totals over other images.
    if len(own) == len(reference_rows):
        document["total"] = asdict(total(own, reference_rows))
    return document


def set_table(measured: Mapping[str, Any]) -> Table:
    """One block: every codec on one set."""
    rows = [(codec["label"], *_cells(codec["total"])) for codec in measured["codecs"]]
    images = "1 image" if measured["images"] == 1 else f"{measured['images']} images"
    return Table(
        title=f"{measured['name']}: {images}, {figures(measured['pixels'] / 1e6)} megapixels",
        columns=("codec", "bytes", "of PNG", "decode MP/s", "x PNG", "encode MP/s", "x PNG"),
        rows=rows,
        notes=_notes(measured),
        bold=frozenset(LABELS.values()),
    )


def _cells(summed: Mapping[str, Any] | None) -> tuple[str, ...]:
    if summed is None:
        return (NOTHING,) * 6
    ratio = summed["ratios"]
    return (
        count(summed["n_bytes"]),
        share(ratio["n_bytes"]),
        figures(summed["decode_mps"]),
        times(ratio["decode"]),
        figures(summed["encode_mps"]),
        times(ratio["encode"]),
    )


def _notes(measured: Mapping[str, Any]) -> list[str]:
    notes = []
    means = []
    for codec in measured["codecs"]:
        if codec["name"] in LABELS and codec["total"] is not None:
            mean = codec["total"]["mean_ratios"]
            if mean["decode"] is not None:
                means.append(
                    f"{codec['label']} {share(mean['n_bytes'])} of the bytes, {times(mean['decode'])} decode, "
                    f"{times(mean['encode'])} encode"
                )
    if means:
        notes.append(f"Mean of the images' own ratios: {'; '.join(means)}.")
    if SECOND_REFERENCE in measured["references"]:
        n = measured["references"][SECOND_REFERENCE]
        notes.append(f"Pillow cannot hold {n} of the images: there, ratios are to imagecodecs' PNG.")
    if "none" in measured["references"]:
        notes.append("No PNG can hold some of the images, so there are no ratios.")
    notes += [
        f"{codec['label']} did not give back the pixels of {', '.join(codec['not_lossless_on'])}."
        for codec in measured["codecs"]
        if "not_lossless_on" in codec
    ]
    return notes


def summary_table(document: Mapping[str, Any]) -> Table:
    """One row a set: what the two modes are beside PNG."""
    rows = []
    for measured in document["sets"]:
        totals = {codec["name"]: codec["total"] for codec in measured["codecs"]}
        row = [measured["name"], str(measured["images"])]
        for mode in HEADRACE:
            ratio = (totals.get(mode) or {}).get("ratios", {})
            row += [share(ratio.get("n_bytes")), times(ratio.get("decode")), times(ratio.get("encode"))]
        rows.append(row)
    columns = ["set", "images", *(f"{mode}: {what}" for mode in HEADRACE for what in ("bytes", "decode", "encode"))]
    elsewhere = [measured["name"] for measured in document["sets"] if SECOND_REFERENCE in measured["references"]]
    notes = [f"{', '.join(elsewhere)}: beside imagecodecs' PNG where Pillow cannot hold an image."] if elsewhere else []
    return Table(title="Beside PNG (Pillow, level 6)", columns=columns, rows=rows, notes=notes)


def region_table(measured: Mapping[str, Any]) -> Table:
    """What a 256x256 region costs, for one set."""
    return _mode_table(
        measured["regions"],
        title=f"{measured['name']}: a random 256x256 region beside the full decode, CPU time",
        columns=("mode", "images", "region ms", "full ms", "share, mean", "share, worst image"),
        cells=lambda own: (
            f"{fmean(row['region_seconds'] for row in own) * 1e3:.3f}",
            f"{fmean(row['full_seconds'] for row in own) * 1e3:.2f}",
            f"{fmean(row['share'] for row in own):.1%}",
            f"{max(row['share'] for row in own):.1%}",
        ),
    )


def thread_table(measured: Mapping[str, Any]) -> Table:
    """What a second thread brings, for one set."""
    return _mode_table(
        measured["threads"],
        title=f"{measured['name']}: two threads beside one, wall clock",
        columns=("mode", "images", "one ms", "two ms", "speed-up, mean", "speed-up, worst image"),
        cells=lambda own: (
            f"{fmean(row['one_seconds'] for row in own) * 1e3:.2f}",
            f"{fmean(row['two_seconds'] for row in own) * 1e3:.2f}",
            times(fmean(row["speedup"] for row in own)),
            times(min(row["speedup"] for row in own)),
        ),
    )


def _mode_table(
    rows: Sequence[Mapping[str, Any]],
    title: str,
    columns: Sequence[str],
    cells: Callable[[Sequence[Mapping[str, Any]]], tuple[str, ...]],
) -> Table:
    lines = []
    for mode, label in LABELS.items():
        own = [row for row in rows if row["mode"] == mode]
        if own:
            lines.append((label, str(len(own)), *cells(own)))
    return Table(columns=columns, rows=lines, title=title)


def provenance(document: Mapping[str, Any]) -> str:
    """Where the figures come from, in one sentence."""
    machine = document["machine"]
    commit = document["headrace"]["commit"] or "no commit"
    return (
        f"Measured with `{document['command']}` at commit {commit} on one core of {machine['cpu']} "
        f"({document['headrace']['target']} target, {machine['python']}, Pillow {document['libraries']['pillow']})."
    )
