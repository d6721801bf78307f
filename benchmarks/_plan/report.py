# SPDX-License-Identifier: Apache-2.0
"""The result of `benchmarks/plan.py` as tables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks._plan.mix import MIX, best_single, of
from benchmarks.tables import NOTHING, Table, figures, times

METHOD = """\
- Costs are calibrated on a sample of the images. From them follow plans for storage of three rates, one and two
  cores, and trainers: none, or one as fast as the loader.
- Every single format and every mix is built and measured in every environment.
- Storage is emulated by a token bucket in the loader; reads bypass the page cache. The emulated rate stays below that
  of the real disk.
- Repeats of half a second are interleaved. Other load on the machine only slows a repeat down, so the fastest third
  counts; the JSON has every repeat.
- Calibration is repeated after the measurements, and predictions use the mean of both.
"""


def tables(document: Mapping[str, Any]) -> Iterator[Table]:
    """All that was measured."""
    if document["mix"]:
        yield summary_table(document["mix"])
    for part in document["mix"]:
        yield mix_table(part)
    if document["adaptive"]:
        yield adaptive_table(document["adaptive"])
    if document["records"]:
        yield records_table(document["records"])


def mix_table(part: Mapping[str, Any]) -> Table:
    """One row per environment: every format and the mix, measured and predicted."""
    names = [rate["format"] for rate in part["environments"][0]["rates"]]
    rows = [
        [
            f"{row['regime']}, {_cores(row['cores'])}, {row['trainer']}",
            *(f"{figures(rate['measured'])} ({figures(rate['predicted'])})" for rate in row["rates"]),
            times(of(row, MIX) / best_single(row)),
            times(of(row, MIX) / of(row, part["source_format"])),
            _shares_text(row["shares"]),
        ]
        for row in part["environments"]
    ]
    rates = ", ".join(f"{name} {rate / 1e6:.0f} MB/s" for name, rate in part["storage_rates"].items())
    return Table(
        ["storage, cores, trainer", *names, "mix / best single", f"mix / {part['source_format']}", "the plan"],
        rows,
        title=f"{part['images']} {part['source_format']} images: images/s, measured (predicted)",
        notes=[f"Emulated storage: {rates}. Batch size {part['batch_size']}."],
    )


def summary_table(parts: Sequence[Mapping[str, Any]]) -> Table:
    """What the environments come to: a column per source."""
    return Table(
        ["", *(f"{part['source_format']} files" for part in parts)],
        [[label, *(show(part["summary"]) for part in parts)] for label, show in _SUMMARY],
        title="Plans in all environments",
    )


def _best_mix(found: Mapping[str, Any]) -> str:
    if found["mix_to_best_single_max"] is None:
        return NOTHING
    return f"{times(found['mix_to_best_single_max'])} ({_shares_text(found['mix_to_best_single_shares'])})"


def _range(values: Sequence[float]) -> str:
    return " to ".join(map(times, values))


_SUMMARY: tuple[tuple[str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("loading: plan / files as they are", lambda found: _range(found["loading_gain"])),
    ("training: plan / files as they are", lambda found: _range(found["training_gain"])),
    ("best mix / best single format", _best_mix),
    ("worst plan / best single format", lambda found: times(found["mix_to_best_single_min"])),
    (
        "predictions within 10 % of the measurement",
        lambda found: f"{found['within_10_percent']:.1%} of {found['predictions']}",
    ),
    ("largest error of a prediction", lambda found: f"{found['largest_error']:+.1%}"),
)


def adaptive_table(parts: Sequence[Mapping[str, Any]]) -> Table:
    """Two renditions while storage slows down."""
    return Table(
        ("two renditions", "storage MB/s", "before", "after", "plan for slower storage", "ratio", "batches to adapt"),
        [
            [
                f"{part['source_format']}: {' and '.join(part['formats'])}, {_cores(part['cores'])}",
                f"{part['storage_rate'] / 1e6:.0f} → {part['storage_rate_after'] / 1e6:.0f}",
                figures(part["rate_before"]),
                figures(part["rate_after"]),
                figures(part["rate_replanned"]),
                times(part["ratio"]),
                f"{part['adapted_after_batches']:.0f}",
            ]
            for part in parts
        ],
        title="Storage drops to a third in the middle of an epoch: images/s",
    )


def records_table(part: Mapping[str, Any]) -> Table:
    """Files against records, on a sample and on all of them."""
    size = f"{part['image_bytes'] / 1e3:.1f} kB"
    return Table(
        ("cold reads, images/s", "measured", "predicted"),
        [
            ["files, one by one", figures(part["raw_rate"]), figures(part["raw_rate_predicted"])],
            ["records", figures(part["records_rate"]), figures(part["records_rate_predicted"])],
            ["gain", times(part["gain"]), times(part["gain_predicted"])],
        ],
        title="Records against small files",
        notes=[f"{part['files']} files of {size}; predicted from {part['sampled']}; error {part['error']:+.1%}."],
    )


def _cores(n: int) -> str:
    return "1 core" if n == 1 else f"{n} cores"


def _shares_text(shares: Mapping[str, float]) -> str:
    return " + ".join(f"{share:.0%} {name}" for name, share in shares.items())
