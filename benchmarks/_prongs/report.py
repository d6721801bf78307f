# SPDX-License-Identifier: Apache-2.0
"""From measurements to figures: gains, models, the simulator beside them, and whether the bars are met."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks._prongs.cell import SPARING
from benchmarks._prongs.sources import SOURCES
from benchmarks.tables import NOTHING, Table
from headrace.prongs._model import Watts, energy, host_only, interleaved
from headrace.prongs._paced import Paced
from headrace.prongs._simulator import Setting, Simulation
from headrace.prongs._strategies import find_strategy

ALONE = "CPU only"
WATTS = Watts(host=12.0, near=2.0, trainer=250.0, rest=50.0)
"""Stated, not measured: a busy server core, a busy core of a storage device's processor, an accelerator's board, and
the rest of its share of the machine; the last two over the whole run."""


_NO_STEP = 1e-3  # seconds: a trainer that sleeps for nothing takes less


def counted_rate(row: dict[str, Any]) -> float:
    """Give images a second, without those that lay ready before the clock ran, unless the trainer sets the pace."""
    stock = 0 if row["step"] > _NO_STEP else row["stock_batches"] * row["samples"] / row["batches"]
    return float((row["samples"] - stock) / row["seconds"])


def completed(row: dict[str, Any], alone: dict[str, Any] | None) -> dict[str, Any]:
    """Add what follows from a measurement, beside that of the host alone with the same trainer."""
    rate = counted_rate(row)
    host_cpu = row["host_cpu"] / row["samples"]
    joules = energy(
        WATTS, host_seconds=row["host_cpu"], near_seconds=row["near_cpu"], epoch_seconds=row["seconds"]
    ) / row["samples"]  # fmt: skip
    row = {**row, "rate": rate, "host_cpu_a_sample": host_cpu, "joules_a_sample": joules}
    row["near_share"] = row["near_batches"] / row["batches"]
    if alone is not None:
        row["gain"] = rate / alone["rate"]
        row["host_cpu_saved"] = 1 - host_cpu / alone["host_cpu_a_sample"]
        row["energy_saved"] = 1 - joules / alone["joules_a_sample"]
        row["buffer_saved"] = 1 - row["buffer_bytes"] / alone["buffer_bytes"] if alone["buffer_bytes"] > 0 else None
    return {**row, **_predicted(row)}


def _predicted(row: dict[str, Any]) -> dict[str, Any]:
    """What model and simulator make of the rates of each prong alone and the trainer's own time."""
    host, near = row["host_seconds_a_batch"], row.get("near_seconds_a_batch")
    measured = row["seconds"] / row["batches"]
    batches = row["epoch_batches"]
    read = (row["prongs"] or {}).get("exchange") or {"read_batches": 0}
    take = read["read_seconds"] / read["read_batches"] if read["read_batches"] else 0.0
    setting = Setting(
        host=host, near=near or host, step=row["step"], batches=batches, take=take, ahead=row["prefetch"], capacity=512
    )
    strategy = None
    if row["strategy"] != ALONE:
        strategy = Paced(spare_host=True) if row["strategy"] == SPARING else find_strategy(row["strategy"])
    simulation = Simulation(setting, strategy, goes_on=True)
    simulation.epoch()
    outcome = simulation.epoch()
    if strategy is None:
        model = host_only(setting.times)
    elif row["strategy"] == "mte":
        model = outcome.modelled / batches
    else:
        model = host_only(setting.times) if outcome.off else interleaved(setting.times)
    return {
        "modelled": model,
        "simulated": outcome.seconds_a_batch,
        "measured": measured,
        "model_error": measured / model - 1,
        "simulation_error": outcome.seconds_a_batch / measured - 1,
    }


def tables(rows: list[dict[str, Any]]) -> list[Table]:
    """One table a source."""
    made = []
    for name in dict.fromkeys(row["source"] for row in rows):
        of_source = [row for row in rows if row["source"] == name]
        made.append(
            Table(
                ("near, trainer, strategy", "images/s", "gain", "of the sum", "vs model", "simulator", "near",
                 "host CPU", "energy", "buffers MB", "longest wait ms"),
                [_cells(row) for row in of_source],
                title=f"{name}: batches of {SOURCES[name].batch_size}",
            )
        )  # fmt: skip
    return made


def _cells(row: dict[str, Any]) -> list[str]:
    near = row.get("near_ratio")
    label = f"{NOTHING if near is None else f'{near:.2f}'}, {row['trainer']}, {row['strategy']}"
    of_sum = _of_sum(row)
    waited = (row["prongs"] or {}).get("longest_wait_seconds")
    return [
        label,
        f"{row['rate']:.0f}",
        _times(row.get("gain")),
        NOTHING if of_sum is None else f"{of_sum:.1%}",
        f"{row['model_error']:+.1%}",
        f"{row['simulation_error']:+.1%}",
        f"{row['near_share']:.1%}",
        _percent(row.get("host_cpu_saved")),
        _percent(row.get("energy_saved")),
        f"{row['buffer_bytes'] / 1e6:.1f}",
        NOTHING if waited is None else f"{waited * 1000:.0f}",
    ]


def _of_sum(row: dict[str, Any]) -> float | None:
    if row["trainer"] != "none" or row.get("near_rate") is None or row["strategy"] == ALONE:
        return None
    return float(row["rate"] / (row["host_rate"] + row["near_rate"]))


def _times(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}x"


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{-value:+.1%}"


def bars(rows: list[dict[str, Any]]) -> Table:
    """What the figures are judged by, and how they stand."""
    cells: list[list[str]] = []

    def judge(what: str, found: list[float], bar: float, *, least: bool = True, percent: bool = True) -> None:
        if not found:
            return
        worst = min(found) if least else max(found)
        met = worst >= bar if least else worst <= bar
        shown = (lambda value: f"{value:.1%}") if percent else (lambda value: f"{value:.3f}x")
        cells.append([what, shown(bar), shown(worst), str(len(found)), "met" if met else "MISSED"])

    mixed = [row for row in rows if row["strategy"] in ("wrr", "paced") and row["trainer"] == "none"]
    quarter = [row for row in mixed if row["share"] == 0.25]
    judge("wrr, paced of the sum of both rates, near at 1/4", [_of_sum(row) or 0 for row in quarter], 0.95)
    for name, source in SOURCES.items():
        at_most = [row for row in mixed if row["source"] == name and row["near_ratio"] <= 0.30]
        best = max((row["gain"] for row in at_most), default=None)
        if best is not None:
            judge(f"{name}: best gain, near at most 0.30 of the host", [best], source.headline, percent=False)
    mte = [abs(row["model_error"]) for row in rows if row["strategy"] == "mte"]
    judge("mte off its model", mte, 0.05, least=False)
    slow = [row for row in rows if row["trainer"] == "slow" and row["strategy"] != ALONE]
    judge("trainer-bound, of the host alone", [row["gain"] for row in slow], 0.99)
    carried = [row["host_cpu_saved"] - row["near_share"] for row in slow if row["near_share"] > 0]
    judge("trainer-bound, host CPU saved beyond the near prong's share", carried, 0.0)
    even = [row for row in slow if row["strategy"] == SPARING and row["gain"] >= 0.99]
    judge("equal speed, host CPU saved, best", [max(row["host_cpu_saved"] for row in even)] if even else [], 0.376)
    saved = [row["buffer_saved"] for row in even if row["buffer_saved"] is not None]
    judge("equal speed, buffer memory saved, best", [max(saved)] if saved else [], 0.376)
    energies = [row["energy_saved"] for row in mixed]
    judge("energy saved under stated watts, best", [max(energies)] if energies else [], 0.197)
    errors = sorted(abs(row["simulation_error"]) for row in rows)
    judge("simulator, median error", [median(errors)] if errors else [], 0.03, least=False)
    within = sum(error <= 0.10 for error in errors) / max(1, len(errors))
    judge("simulator, cells within 10 %", [within] if errors else [], 0.95)
    return Table(("judged by", "bar", "found", "cells", "verdict"), cells, title="Bars")


def stated() -> dict[str, float]:
    """The watts that energies were worked out with."""
    return {name: getattr(replace(WATTS), name) for name in ("host", "near", "trainer", "rest")}


def provenance(document: dict[str, Any]) -> str:
    """Where the figures come from, in one paragraph."""
    machine = document["machine"]
    watts = ", ".join(f"{name} {value:g}" for name, value in document["watts"].items())
    return (
        f"Measured with `{document['command']}` at commit {document['commit'] or 'no commit'} on {machine['cpu']} "
        f"({machine['cores']} cores, {machine['python']}). Watts stated, not measured: {watts}."
    )
