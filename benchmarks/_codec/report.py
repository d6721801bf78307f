# SPDX-License-Identifier: Apache-2.0
"""From measurements to the result, and from the result to tables and a chart. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks import chart
from benchmarks._codec.contract import HEADRACE, SECOND_REFERENCE, Codec
from benchmarks._codec.totals import Row, total
from benchmarks.tables import NOTHING, Table, count, figures, share, times

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LABELS = {mode: f"hri:{mode}" for mode in HEADRACE}

METHOD = """\
- One process on one pinned core. Times are CPU time of the process, so that another process cannot lengthen them.
- Codecs are interleaved image by image, and the best of 7 rounds counts. A call is repeated until a timed span is 2
  ms or longer. Peers whose encode takes over 0.2 s (WebP) are timed twice.
- Before anything is timed, every lossless codec decodes into a buffer of other bytes and all pixels are compared. A
  peer that fails is excluded and named; if Headrace fails, nothing is printed.
- Buffers are warm, and reused where the peer's library can decode into a given array. For those that cannot (Pillow,
  pyspng), the C library keeps freed memory instead of returning it to the kernel.
- Pillow's decode is `Image.open(…).load()`, without the copy into a NumPy array; its encode starts from an `Image`.
- Ratios compare sums over the set. A codec that cannot store every image of a set has a dash.
- Palette images become RGB or RGBA for all codecs alike; 16 bit is kept. JPEG at quality 90 is lossy and shown for
  comparison only.
"""


def set_document(
    *,
    name: str,
    sha256: str,
    codecs: Sequence[Codec],
    rows: Sequence[Row],
    references: Mapping[str, str | None],
    failed: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Return all that was measured on one set of images.

    Args:
        name: The name of the set.
        sha256: Hash over its files.
        codecs: In the order of the table.
        rows: One per image and codec that could be measured.
        references: For each image, by name, the codec that its ratios compare with.
        failed: For each codec that was not lossless, the images that it failed on.

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
        "rows": [asdict(row) for row in rows],
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
    # No total over part of a set: it would be compared with totals over other images.
    if len(own) == len(reference_rows):
        document["total"] = asdict(total(own, reference_rows))
    return document


def set_table(measured: Mapping[str, Any]) -> Table:
    """Every codec on one set."""
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
        notes.append(f"Mean of the ratios of single images: {'; '.join(means)}.")
    if SECOND_REFERENCE in measured["references"]:
        n = measured["references"][SECOND_REFERENCE]
        notes.append(f"Pillow cannot store {n} of the images; there, ratios compare with imagecodecs' PNG.")
    if "none" in measured["references"]:
        notes.append("PNG cannot store some of the images, so there are no ratios.")
    notes += [
        f"{codec['label']} did not return the pixels of {', '.join(codec['not_lossless_on'])}."
        for codec in measured["codecs"]
        if "not_lossless_on" in codec
    ]
    return notes


def summary_table(document: Mapping[str, Any]) -> Table:
    """One row per set: both modes, relative to PNG."""
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
    notes = (
        [f"{', '.join(elsewhere)}: relative to imagecodecs' PNG where Pillow cannot store an image."]
        if elsewhere
        else []
    )
    return Table(title="Relative to PNG (Pillow, level 6)", columns=columns, rows=rows, notes=notes)


def region_table(measured: Mapping[str, Any]) -> Table:
    """The cost of a 256x256 region, on one set."""
    return _mode_table(
        measured["regions"],
        title=f"{measured['name']}: a random 256x256 region and the full decode, CPU time",
        columns=("mode", "images", "region ms", "full ms", "share, mean", "share, worst image"),
        cells=lambda own: (
            f"{fmean(row['region_seconds'] for row in own) * 1e3:.3f}",
            f"{fmean(row['full_seconds'] for row in own) * 1e3:.2f}",
            f"{fmean(row['share'] for row in own):.1%}",
            f"{max(row['share'] for row in own):.1%}",
        ),
    )


def thread_table(measured: Mapping[str, Any]) -> Table:
    """The speed-up by a second thread, on one set."""
    return _mode_table(
        measured["threads"],
        title=f"{measured['name']}: one thread and two, wall-clock time",
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


def decode_chart(measured: Mapping[str, Any]) -> str:
    """Decode speed of every codec on one set, the slowest first; copying raw pixels is left out."""
    totals = [(codec, codec["total"]) for codec in measured["codecs"] if codec["total"] and codec["name"] != "memcpy"]
    totals.sort(key=lambda pair: pair[1]["decode_mps"])
    bars = [
        chart.Bar(
            codec["label"],
            found["decode_mps"],
            f"{figures(found['decode_mps'])}; size {share(found['ratios']['n_bytes'])}",
            codec["name"] in HEADRACE,
        )
        for codec, found in totals
    ]
    return chart.svg(
        f"Decoding {measured['name']} on one core",
        "megapixels per second (more is better), and the size relative to PNG",
        bars,
    )


def losses(document: Mapping[str, Any]) -> list[str]:
    """Name the lossless codecs that are smaller than both modes, or decode faster, by more than 1 %."""
    smaller: dict[str, list[str]] = {}
    faster: dict[str, list[str]] = {}
    for measured in document["sets"]:
        totals = {codec["name"]: codec["total"] for codec in measured["codecs"] if codec["total"]}
        ours = [totals[mode] for mode in HEADRACE if mode in totals]
        for codec in measured["codecs"]:
            one = totals.get(codec["name"])
            if one is None or not ours or codec["name"] in (*HEADRACE, "memcpy") or not codec["lossless"]:
                continue
            size = one["n_bytes"] / min(mode["n_bytes"] for mode in ours)
            speed = one["decode_mps"] / max(mode["decode_mps"] for mode in ours)
            if size < 0.99:
                smaller.setdefault(codec["label"], []).append(f"{measured['name']} {times(size)}")
            if speed > 1.01:
                faster.setdefault(codec["label"], []).append(f"{measured['name']} {times(speed)}")
    found = [f"{label} is smaller: {', '.join(sets)}" for label, sets in smaller.items()]
    return found + [f"{label} decodes faster: {', '.join(sets)}" for label, sets in faster.items()]
