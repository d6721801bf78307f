# SPDX-License-Identifier: Apache-2.0
"""The results of `benchmarks/plan.py` as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks._plan.mix import MIX, best_single, of
from benchmarks.tables import NOTHING, Table, figures, times


def tables(document: Mapping[str, Any]) -> Iterator[Table]:
    """All that was measured."""
    for part in document["mix"]:
        yield mix_table(part)
    if document["mix"]:
        yield summary_table(document["mix"])
    if document["adaptive"]:
        yield adaptive_table(document["adaptive"])
    if document["records"]:
        yield records_table(document["records"])
    for part in document["training"]:
        yield training_table(part)


def mix_table(part: Mapping[str, Any]) -> Table:
    """A row an environment: every format and the mix, measured and in brackets predicted."""
    names = [cell["format"] for cell in part["environments"][0]["cells"]]
    columns = ["environment", *names, "mix / best single", f"mix / {part['source_format']}", "shares"]
    rows = [
        [
            f"{row['regime']}, {row['cores']}c, {row['trainer']}",
            *(f"{figures(cell['measured'])} ({figures(cell['predicted'])})" for cell in row["cells"]),
            times(of(row, MIX) / best_single(row)),
            times(of(row, MIX) / of(row, part["source_format"])),
            shares_text(row["shares"]),
        ]
        for row in part["environments"]
    ]
    rates = ", ".join(f"{name} {rate / 1e6:.0f} MB/s" for name, rate in part["storage_rates"].items())
    reads = "read past the page cache" if part["direct"] else "from the page cache"
    return Table(
        columns,
        rows,
        title=f"{_named(part)}, {part['images']} images: images/s measured (predicted)",
        notes=[(f"Storage emulated: {rates}; {reads}. Batches of {part['batch_size']}.")],
    )


def _named(part: Mapping[str, Any]) -> str:
    return f"{part['source_format']} source, storage up to {max(part['storage_rates'].values()) / 1e6:.0f} MB/s"


def summary_table(parts: Sequence[Mapping[str, Any]]) -> Table:
    """What the cells come to: a column a source."""
    rows = [[label, *(show(part["summary"]) for part in parts)] for label, show in _SUMMARY]
    rows.append(["cells whose turns never agreed to 2 %", *(str(part["unsettled_cells"]) for part in parts)])
    return Table(["", *map(_named, parts)], rows, title="What the environments come to")


def _most_mixed(found: Mapping[str, Any]) -> str:
    most = times(found["mix_to_best_single_most"])
    return (
        most
        if found["mix_to_best_single_most"] is None
        else f"{most}: {shares_text(found['mix_to_best_single_shares'])}"
    )


_SUMMARY: tuple[tuple[str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("mix / best single format, least of all environments", lambda found: times(found["mix_to_best_single_least"])),
    ("the same, most, with 15 % or more of two formats", _most_mixed),
    ("data preparation, mix / the source's own format, most", lambda found: times(found["preparation_gain_most"])),
    ("the same, least", lambda found: times(found["preparation_gain_least"])),
    ("end to end, mean over three trainers, most", lambda found: times(found["training_gain_most"])),
    ("the same, least", lambda found: times(found["training_gain_least"])),
    ("predictions within 10 %", lambda found: f"{found['within_10_percent']:.1%} of {found['cells']}"),
    ("largest error of a prediction", lambda found: f"{found['largest_error']:+.1%}"),
    ("what-if within 10 % of the measured mix", lambda found: f"{found['what_if_within_10_percent']:.1%}"),
    ("its largest error", lambda found: f"{found['what_if_largest_error']:+.1%}"),
)


def adaptive_table(parts: list[Mapping[str, Any]]) -> Table:
    rows = [
        [
            f"{part['source_format']}: {' and '.join(part['formats'])}, {part['cores']}c",
            f"{part['storage_rate'] / 1e6:.0f} → {part['storage_rate_after'] / 1e6:.0f}",
            figures(part["rate_before"]),
            figures(part["rate_after"]),
            figures(part["rate_replanned"]),
            times(part["ratio"]),
            times(part["ratio_all_formats"]),
            NOTHING if part["settled_after_batches"] is None else f"{part['settled_after_batches']:.0f}",
        ]
        for part in parts
    ]
    columns = [
        "two renditions", "storage MB/s", "before", "after", "plan made for it", "ratio", "ratio, any formats",
        "settled after batches",
    ]  # fmt: skip
    return Table(columns, rows, title="Storage drops to a third in the middle of an epoch: images/s")


def records_table(part: Mapping[str, Any]) -> Table:
    rows = [
        ["files, one by one", figures(part["raw_rate"]), figures(part["raw_rate_predicted"])],
        ["records", figures(part["records_rate"]), figures(part["records_rate_predicted"])],
        ["gain", times(part["gain"]), times(part["gain_predicted"])],
    ]
    size = f"{part['image_bytes'] / 1e3:.1f} kB"
    note = f"{part['files']} files of {size}; predicted from {part['sampled']}; error {part['error']:+.1%}."
    return Table(
        ["read cold, images/s", "measured", "predicted"], rows, title="Records against raw files", notes=[note]
    )


def training_table(part: Mapping[str, Any]) -> Table:
    rows = [[name, "the same" if same else "OTHER"] for name, same in part["same"].items()]
    note = f"{part['steps']} steps, loss {part['first_loss']:.4f} to {part['last_loss']:.4f}."
    return Table(["trained from", "losses, bit for bit"], rows, title=f"{part['source_format']} source", notes=[note])


def shares_text(shares: Mapping[str, float] | None) -> str:
    if not shares:
        return NOTHING
    return " + ".join(f"{share:.0%} {name}" for name, share in shares.items())


def joined(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several runs, of a source each, as one."""
    return {
        **{name: [part for run in documents for part in run[name]] for name in ("mix", "adaptive", "training")},
        "records": next((run["records"] for run in documents if run["records"]), None),
        "runs": list(documents),
    }


def provenance(document: Mapping[str, Any]) -> str:
    """Where the figures come from, in one paragraph."""
    said = []
    for run in document["runs"]:
        machine, ours = run["machine"], run["headrace"]
        said.append(f"`{run['command']}` at commit {ours['commit'] or 'no commit'}")
    return (
        f"Measured with {', '.join(said)}, on {machine['cpu']} ({machine['cores']} cores, {ours['target']} target, "
        f"{machine['python']})."
    )
