# SPDX-License-Identifier: Apache-2.0
"""Tables of what was measured, and whether the bars are met."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from benchmarks._prongs.cell import ALONE
from benchmarks._prongs.figures import WATTS, is_sparing, of_sum, ratio_of
from benchmarks._prongs.sources import SOURCES
from benchmarks.tables import NOTHING, Table

_QUARTER, _MOST_RATIO = 0.25, 0.30
_SURE = 0.03
_SOURCES = re.compile(r"--sources (\S+)")


def tables(rows: list[dict[str, Any]]) -> list[Table]:
    """One table a source."""
    made = []
    for name in SOURCES:
        of_source = [row for row in rows if row["source"] == name]
        if not of_source:
            continue
        made.append(
            Table(
                ("near, trainer, strategy", "images/s", "gain", "of the sum", "vs model", "simulator", "near",
                 "host CPU", "energy", "buffers MB", "longest wait ms", "uncertain"),
                [_cells(row) for row in of_source],
                title=f"{name}: batches of {SOURCES[name].batch_size}",
            )
        )  # fmt: skip
    return made


def gains(rows: list[dict[str, Any]]) -> Table:
    """What each strategy makes of near workers of several speeds, where the trainer takes no time: a row a source."""
    strategies = ("mte", "wrr", "paced")
    cpu_bound = [row for row in rows if row["trainer"] == "none" and row["strategy"] in strategies]
    heads = ((f"{name}: gain", "of the sum: median (least)") for name in strategies)
    cells = []
    for source in SOURCES:
        found = [row for row in cpu_bound if row["source"] == source]
        if found:
            near = _span([ratio_of(row) for row in found], "")
            of = ([row for row in found if row["strategy"] == name] for name in strategies)
            cells.append([source, near, *(text for same in of for text in _gain(same))])
    return Table(
        ("images", "near worker, of the host's speed", *(head for pair in heads for head in pair)), cells, title="Gains"
    )


def _gain(rows: list[dict[str, Any]]) -> tuple[str, str]:
    parts = [part for row in rows if (part := of_sum(row)) is not None]
    if not parts:
        return NOTHING, NOTHING
    return _span([row["gain"] for row in rows], "x"), f"{median(parts):.1%} ({min(parts):.1%})"


def _span(values: list[float], unit: str) -> str:
    least, most = (f"{value:.2f}{unit}" for value in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"


def _cells(row: dict[str, Any]) -> list[str]:
    together = of_sum(row)
    waited = (row["prongs"] or {}).get("longest_wait_seconds")
    return [
        f"{ratio_of(row):.3f}, {row['trainer']}, {row['strategy']}",
        f"{row['rate']:.0f}",
        NOTHING if row.get("gain") is None else f"{row['gain']:.3f}x",
        NOTHING if together is None else f"{together:.1%}",
        f"{row['model_error']:+.1%}",
        f"{row['simulation_error']:+.1%}",
        f"{row['near_share']:.1%}",
        _percent(row.get("host_cpu_saved")),
        _percent(row.get("energy_saved")),
        f"{row['buffer_bytes'] / 1e6:.1f}",
        NOTHING if waited is None else f"{waited * 1000:.0f}",
        NOTHING if row["uncertainty"] is None else f"±{row['uncertainty']:.1%}",
    ]


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{-value:+.1%}"


def bars(rows: list[dict[str, Any]]) -> Table:
    """What the figures are held against, and how they stand."""
    cells: list[list[str]] = []

    def judge(what: str, found: list[float], bar: float, *, least: bool = True, percent: bool = True) -> None:
        if not found:
            return
        worst = min(found) if least else max(found)
        met = worst >= bar if least else worst <= bar
        shown = (lambda value: f"{value:.1%}") if percent else (lambda value: f"{value:.3f}x")
        cells.append([what, shown(bar), shown(worst), str(len(found)), "met" if met else "MISSED"])

    def best(values: list[float]) -> list[float]:
        return [max(values)] if values else []

    mixed = [row for row in rows if row["strategy"] in ("wrr", "paced") and row["trainer"] == "none"]
    judge("wrr, paced of the sum of both rates, near at 1/4", _of_sums(mixed), 0.95)
    # By both ratios, of the plain means and at the cell's disturbance, so that neither is chosen for what it gives.
    near = [row for row in mixed if max(row["near_ratio"], ratio_of(row)) <= _MOST_RATIO]
    for name, source in SOURCES.items():
        at_most = [row["gain"] for row in near if row["source"] == name]
        judge(f"{name}: best gain, near at most 0.30 of the host", best(at_most), source.headline, percent=False)
    mte = [abs(row["model_error"]) for row in rows if row["strategy"] == "mte"]
    judge("mte off its model", mte, 0.05, least=False)
    slow = [row for row in rows if row["trainer"] == "slow" and row["strategy"] != ALONE]
    judge("trainer-bound, of the host alone", [row["gain"] for row in slow], 0.99)
    even = [row for row in rows if is_sparing(row)]
    judge("equal speed, host CPU saved, best", best([row["host_cpu_saved"] for row in even]), 0.376)
    saved = [row["buffer_saved"] for row in even if row["buffer_saved"] is not None]
    judge("equal speed, buffer memory saved, best", best(saved), 0.376)
    judge("equal speed, energy of preparing saved, best", best([row["preparing_saved"] for row in even]), 0.197)
    judge("CPU-bound, energy of the machine saved, best", best([row["energy_saved"] for row in mixed]), 0.197)
    errors = sorted(abs(row["simulation_error"]) for row in rows)
    judge("simulator, median error", [median(errors)] if errors else [], 0.03, least=False)
    within = sum(error <= 0.10 for error in errors) / max(1, len(errors))
    judge("simulator, cells within 10 %", [within] if errors else [], 0.95)
    unsure = sum(max(row["uncertainty"] or 0.0, row["alone_uncertainty"]) > _SURE for row in rows)
    said = f"Of {len(rows)} cells {unsure} are uncertain by more than {_SURE:.0%}, or a prong alone beside them is: two"
    notes = [f"{said} standard errors of its seconds."] if unsure else []
    return Table(("claim", "bar", "found", "cells", "verdict"), cells, title="Bars", notes=notes)


def spared(rows: list[dict[str, Any]]) -> Table:
    """What a near worker spares the host beside a slow trainer, beyond its share of the batches."""

    def points(found: dict[str, float]) -> str:
        return f"{100 * found['found']:+.2f} ({100 * found['least']:+.2f} to {100 * found['most']:+.2f})"

    return Table(
        ("images, near worker's share of a core", "host alone, CPU ms a batch", "near worker's batches", "speed",
         "CPU saved beyond that, points", "all windows", "but for threads that prepare", "bar: 0"),
        [
            [
                f"{row['source']} in batches of {SOURCES[row['source']].batch_size}, {row['share']:g}",
                f"{1000 * row['cpu_a_batch']:.1f}",
                f"{row['near_share']:.1%}",
                f"{row['speed']:.3f}x",
                points(row["quiet_beyond"]),
                points(row["beyond"]),
                points(row["quiet_outside"]),
                "met" if row["quiet_beyond"]["found"] >= 0 else "MISSED",
            ]
            for row in rows
        ],
        title="What a near worker spares the host",
        notes=[
            "Of the quietest quarter of the windows, or of all; in brackets where 95 of 100 draws of them put it.",
            "Last what taking batches costs, were those that the host makes as costly as without a near worker.",
        ],
    )  # fmt: skip


def _of_sums(mixed: list[dict[str, Any]]) -> list[float]:
    """Parts of the sum, near at a quarter; of several runs of a cell the mean, by how certain they are."""
    runs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in mixed:
        part = of_sum(row)
        if row["ratio"] == _QUARTER and part is not None:
            weight = 1 / max(1e-6, (row["uncertainty"] or _SURE) ** 2 + row["alone_uncertainty"] ** 2)
            runs.setdefault((row["source"], row["strategy"]), []).append((part, weight))
    return [sum(part * weight for part, weight in of) / sum(weight for _, weight in of) for of in runs.values()]


def stated() -> dict[str, float]:
    """The watts that energies were worked out with."""
    return asdict(WATTS)


def provenance(runs: Sequence[dict[str, Any]]) -> str:
    """Where the figures come from: a list of commands for each machine, those that differ in sources alone as one."""
    machines: dict[str, dict[tuple[str, str], list[str]]] = {}
    for run in runs:
        before, source, after = _SOURCES.split(run["command"], maxsplit=1)
        commands = machines.setdefault(_machine(run), {})
        commands.setdefault((f"{before}--sources %s{after}", run["commit"] or "no commit"), []).append(source)
    parts = []
    for machine, commands in machines.items():
        parts += [f"Measured on {machine} with", ""]
        for (command, commit), names in commands.items():
            parts.append(f"- `{command % ','.join(dict.fromkeys(names))}` at commit {commit}")
        parts.append("")
    watts = ", ".join(f"{name} {value:g}" for name, value in runs[0]["watts"].items())
    return "\n".join([*parts, f"Watts stated, not measured: {watts}."])


def origin(runs: Sequence[dict[str, Any]]) -> str:
    """Where the figures come from, in a sentence for a page that has no room for every command."""
    programs = dict.fromkeys(_SOURCES.split(run["command"], maxsplit=1)[0].strip() for run in runs)
    said = " and ".join(f"`{program}`" for program in programs)
    return f"Measured by {len(runs)} runs of {said}, on {' and on '.join(dict.fromkeys(map(_machine, runs)))}."


def _machine(run: dict[str, Any]) -> str:
    machine = run["machine"]
    facts = [f"{machine['cores']} cores", *([f"{run['target']} target"] if "target" in run else []), machine["python"]]
    return f"{machine['cpu']} ({', '.join(facts)})"
