# SPDX-License-Identifier: Apache-2.0
"""From measurements to figures: rates and gains, and what the models and the simulator make of the same rates."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from benchmarks._prongs.cell import ALONE, SPARING, strategy_of
from headrace.prongs._model import Times, Watts, energy, host_only, interleaved, split_epoch
from headrace.prongs._pattern import Pattern
from headrace.prongs._simulator import Setting, Simulation

WATTS = Watts(host=12.0, near=2.0, trainer=250.0, rest=50.0)
"""Stated, not measured: a busy server core, a busy core of a storage device's processor, an accelerator's board, and
the rest of its share of the machine; the last two over the whole run."""

_SIMULATED_EPOCHS = 3


def counted_batches(row: dict[str, Any]) -> float:
    """Batches, without those of the near worker's that lay ready before the clock ran: more were taken than made.

    Where the trainer sets the pace it does not matter when they were made.
    """
    return float(row["batches"]) if row["step"] else row["batches"] - row["ready"]


def rate_of(row: dict[str, Any]) -> float:
    """Give images a second."""
    return float(counted_batches(row) * row["samples"] / row["batches"] / row["seconds"])


def completed(row: dict[str, Any], alone: dict[str, Any] | None) -> dict[str, Any]:
    """Add what follows from a measurement, beside that of the host alone with the same trainer."""
    rate = rate_of(row)
    used = {"host_seconds": row["host_cpu"] / row["samples"], "near_seconds": row["near_cpu"] / row["samples"]}
    host_cpu = used["host_seconds"]
    joules = energy(WATTS, **used, epoch_seconds=1 / rate)
    preparing = energy(WATTS, **used, epoch_seconds=0.0)
    row = {**row, "rate": rate, "host_cpu_a_sample": host_cpu}
    row |= {"joules_a_sample": joules, "preparing_joules_a_sample": preparing}
    row["near_share"] = row["near_batches"] / row["batches"]
    if alone is not None:
        row["gain"] = rate / alone["rate"]
        row["host_cpu_saved"] = 1 - host_cpu / alone["host_cpu_a_sample"]
        if alone.get("preparing_cpu"):
            row["preparing_cpu_saved"] = 1 - _preparing_cpu(row) / _preparing_cpu(alone)
        row["energy_saved"] = 1 - joules / alone["joules_a_sample"]
        row["preparing_saved"] = 1 - preparing / alone["preparing_joules_a_sample"]
        row["buffer_saved"] = 1 - row["buffer_bytes"] / alone["buffer_bytes"] if alone["buffer_bytes"] > 0 else None
    return {**row, **_predicted(row)}


def _preparing_cpu(row: dict[str, Any]) -> float:
    return float(row["preparing_cpu"] / row["samples"])


def ratio_of(row: dict[str, Any]) -> float:
    """The near worker's speed by the host's, each alone at the disturbance of a cell, as its gain is."""
    return float(row["near_rate"] / row["host_rate"])


def of_sum(row: dict[str, Any]) -> float | None:
    """What part of the two rates alone, added up, both prongs together have come to."""
    if row["trainer"] != "none" or row["strategy"] == ALONE:
        return None
    return float(row["rate"] / (row["host_rate"] + row["near_rate"]))


def _predicted(row: dict[str, Any]) -> dict[str, Any]:
    """What model and simulator make of the rates of each prong alone and the trainer's own time."""
    measured = row["seconds"] / counted_batches(row)
    walked = row["walked"]
    setting = Setting(
        host=row["host_seconds_a_batch"],
        near=row["near_seconds_a_batch"],
        step=row["step"],
        batches=row["epoch_batches"],
        take=row["take"],
        fetch=_in_a_row(walked) or row["fetch"],
        ahead=row["prefetch"] + 1,  # the trainer takes one while it works on the one before
        capacity=512,
    )
    simulation = Simulation(setting, None if row["strategy"] == ALONE else strategy_of(row["strategy"]), goes_on=True)
    simulation.epoch()
    outcomes = [simulation.epoch() for _ in range(_SIMULATED_EPOCHS)]
    simulated = fmean(outcome.seconds_a_batch for outcome in outcomes)
    if walked:
        # Whole epochs were measured, each by its own split; what lay ready when it began is in its model.
        model = fmean(_split(setting.times, turn) for turn in walked)
        measured = row["seconds"] / row["batches"]
    elif row["strategy"] == ALONE or outcomes[-1].off is not None:
        model = host_only(setting.times)
    else:
        model = interleaved(setting.times)
    return {
        "modelled": model,
        "simulated": simulated,
        "measured": measured,
        "model_error": measured / model - 1,
        "simulation_error": simulated / measured - 1,
    }


def _in_a_row(walked: Sequence[dict[str, Any]]) -> float | None:
    """How long a prepared batch took to read, as the loader has seen it at the end of `mte`'s epochs.

    There one read follows the other, and storage may give less than it does when one comes now and then.
    """
    times = [turn["plan"]["times"] for turn in walked]
    return median(found["link"] for found in times) if times and None not in times else None


def _split(times: Times, turn: dict[str, Any]) -> float:
    """Seconds a batch that the model of `mte` gives an epoch with the split that the loader has chosen."""
    batches, plan = turn["batches"], turn["plan"]
    pattern = Pattern.from_json(plan["pattern"])
    return split_epoch(times, batches, pattern.near_before(batches), plan["ready"]) / batches


def is_sparing(row: dict[str, Any]) -> bool:
    """Whether the near worker was kept on to spare the host, and the training was as fast as without."""
    return row["strategy"] == SPARING and row["trainer"] == "slow" and row["gain"] >= 0.99
