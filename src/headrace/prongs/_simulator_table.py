# SPDX-License-Identifier: Apache-2.0
"""The simulator's table: what near devices bring on machines larger than the one at hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.prongs._model import Watts
from headrace.prongs._simulator import Outcome, Setting, Simulation, scaled
from headrace.prongs._strategies import STRATEGIES
from headrace.prongs._strategy import Strategy

# Accelerators and near devices: one device for each and two for each, and the sizes in which servers are sold.
MACHINES = ((1, 1), (1, 2), (4, 8), (8, 8), (8, 16), (8, 32), (16, 32))

# The first epoch has the near devices' start in it; the second is what all others are like.
_EPOCHS = 2


def simulate_rows(setting: Setting, machines: Iterable[tuple[int, int]] = MACHINES) -> list[dict[str, Any]]:
    """Simulate each machine without a near prong and with each strategy; the second epoch counts."""
    rows: list[dict[str, Any]] = []
    for accelerators, devices in machines:
        machine = scaled(setting, accelerators=accelerators, devices=devices)
        alone = _run(machine, None)
        for name, strategy in STRATEGIES.items():
            outcome = _run(machine, strategy())
            rows.append(
                {
                    "accelerators": accelerators,
                    "devices": devices,
                    "strategy": name,
                    "batches_a_second": accelerators / outcome.seconds_a_batch,
                    "gain": alone.seconds / outcome.seconds,
                    "model": outcome.modelled / outcome.batches,
                    "seconds_a_batch": outcome.seconds_a_batch,
                    "near_share": outcome.near_batches / outcome.batches,
                    "host_saved": 1 - outcome.host_seconds / alone.host_seconds,
                    "energy_saved": 1 - outcome.joules / alone.joules,
                    "longest_wait": outcome.longest_wait,
                    "off": outcome.off,
                }
            )
    return rows


def _run(setting: Setting, strategy: Strategy | None) -> Outcome:
    simulation = Simulation(setting, strategy, goes_on=True)
    for _ in range(_EPOCHS - 1):
        simulation.epoch()
    return simulation.epoch()


def simulate_table(
    *,
    host: float = 0.10,
    near: float = 0.40,
    step: float = 0.03,
    batch_mb: float = 38.5,
    link_mbs: float | None = 6000.0,
    batches: int = 400,
    unevenness: float = 0.05,
    capacity: int = 48,
    watts: Watts | None = None,
    machines: Iterable[tuple[int, int]] = MACHINES,
) -> str:
    """Print what near devices would bring, for a host prong and a device that take so many seconds a batch.

    The defaults are a batch of 64 crops of 224 pixels in float32, on a host that makes ten of them a second for each
    accelerator, devices of a quarter of its speed, and one link of 6 GB/s for all.
    """
    stated = watts or Watts(host=60.0, near=8.0, trainer=300.0, rest=60.0)
    setting = Setting(
        host=host,
        near=near,
        step=step,
        batches=batches,
        batch_bytes=batch_mb * 1e6,
        link_rate=None if link_mbs is None else link_mbs * 1e6,
        unevenness=unevenness,
        capacity=capacity,
        watts=stated,
    )
    cells = [
        [
            f"{row['accelerators']} x {row['devices']}",
            row["strategy"],
            f"{row['batches_a_second']:.1f}",
            f"{row['gain']:.3f}x",
            f"{row['seconds_a_batch'] / row['model'] - 1:+.1%}",
            f"{row['near_share']:.1%}",
            f"{row['host_saved']:.1%}",
            f"{row['energy_saved']:.1%}",
            f"{row['longest_wait'] * 1000:.0f} ms",
        ]
        for row in simulate_rows(setting, machines)
    ]
    heads = ("machine", "strategy", "batches/s", "gain", "vs model", "near", "host CPU", "energy", "longest wait")
    link = "no limit" if link_mbs is None else f"{link_mbs:g} MB/s"
    notes = (
        (
            f"Simulated, second epoch of {batches} batches a rank. Machine: accelerators x near devices. A batch of "
            f"{batch_mb:g} MB takes a rank's host {host:g} s, a device {near:g} s, the trainer {step:g} s; link "
            f"{link}; times vary by {unevenness:.0%}."
        ),
        (
            f"host CPU and energy: what is saved against the same machine without near devices, with {stated.host:g} W "
            f"for a busy host prong, {stated.near:g} W for a busy device, {stated.trainer:g} W for an accelerator and "
            f"{stated.rest:g} W for the rest of its share of the machine."
        ),
    )
    return _aligned([heads, *cells]) + "\n\n" + "\n".join(notes)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)
