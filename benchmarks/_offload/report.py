# SPDX-License-Identifier: Apache-2.0
"""From measurements to the rows of the result, and from the result to tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks import chart
from benchmarks._offload.product import SPARE_HOST, STRATEGIES
from benchmarks._offload.run import HOST, WORKER, Measured
from benchmarks.tables import NOTHING, Table, figures, times

Round = Mapping[str, Measured]

METHOD = """\
- The host loads with one thread on one core. The offload worker has a share of the other core; both see the same
  disk.
- Every measurement is a process of its own. They follow each other in rounds; a ratio is taken within a round, and
  the median of the rounds counts. Brackets give the lowest and highest round.
- A strategy first loads for as long as it is measured later, so that it knows both rates. Batches that were prepared
  before the measurement do not count.
- Gain: the trainer takes no time, so the host is the bottleneck. `of the sum` compares with the rate of the host
  alone plus that of the worker alone.
- Saving: the trainer takes half as long again per batch as the host alone needs, so the speed is the trainer's in
  both cases, and what changes is the CPU time of the host's process.
"""


def batches_per_second(found: Measured) -> float:
    """Return the rate without the batches that lay ready when the measurement began."""
    return (found.batches - found.ready_before) / found.seconds


def gain_rows(source: str, batch_size: int, rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """Return a row per strategy, with a figure per round: images per second, gain, and share of the sum."""
    host, worker = ([batch_size * batches_per_second(each[name]) for each in rounds] for name in (HOST, WORKER))
    rows = []
    for strategy in STRATEGIES:
        rate = [batch_size * batches_per_second(each[strategy]) for each in rounds]
        rows.append(
            {
                "source": source,
                "batch_size": batch_size,
                "strategy": strategy,
                "host_images_per_second": host,
                "worker_images_per_second": worker,
                "images_per_second": rate,
                "gain": [both / alone for both, alone in zip(rate, host, strict=True)],
                "of_sum": [all_ / (a + b) for all_, a, b in zip(rate, host, worker, strict=True)],
            }
        )
    return rows


def saving_row(source: str, batch_size: int, rounds: Sequence[Round]) -> dict[str, Any]:
    """Return what the host's process costs per batch with and without the worker, a figure per round."""

    def cpu_ms(name: str) -> list[float]:
        return [1000 * each[name].host_cpu_seconds / each[name].batches for each in rounds]

    alone, spared = cpu_ms(HOST), cpu_ms(SPARE_HOST)
    with_worker = [each[SPARE_HOST] for each in rounds]
    rates = [(one.batches / one.seconds, each[HOST]) for one, each in zip(with_worker, rounds, strict=True)]
    return {
        "source": source,
        "batch_size": batch_size,
        "offloaded": [each.offloaded / each.batches for each in with_worker],
        "host_cpu_ms_per_batch": alone,
        "host_cpu_ms_per_batch_with_worker": spared,
        "saved": [1 - with_ / without for with_, without in zip(spared, alone, strict=True)],
        "speed": [rate / (host.batches / host.seconds) for rate, host in rates],
    }


def gain_table(document: Mapping[str, Any]) -> Table:
    """One row per dataset: the worker's speed, then each strategy's gain."""
    heads = ((f"{name}: gain", "of the sum") for name in STRATEGIES)
    rows = []
    for source in dict.fromkeys(row["source"] for row in document["gain"]):
        found = {row["strategy"]: row for row in document["gain"] if row["source"] == source}
        any_row = next(iter(found.values()))
        host, worker = (median(any_row[f"{side}_images_per_second"]) for side in ("host", "worker"))
        cells = [f"{source}, batch size {any_row['batch_size']}", figures(host), f"{worker / host:.2f}"]
        for name in STRATEGIES:
            row = found.get(name)
            cells += [NOTHING, NOTHING] if row is None else [_spread(row["gain"]), f"{median(row['of_sum']):.1%}"]
        rows.append(cells)
    return Table(
        ("images", "host alone, images/s", "worker's speed, of the host's", *(head for pair in heads for head in pair)),
        rows,
        title="Gain where the host is the bottleneck",
    )


def saving_table(document: Mapping[str, Any]) -> Table:
    """One row per dataset: what the host saves beside a slow trainer."""
    return Table(
        ("images", "host alone, CPU ms per batch", "with the worker", "saved", "batches from the worker", "speed"),
        [
            [
                f"{row['source']}, batch size {row['batch_size']}",
                figures(median(row["host_cpu_ms_per_batch"])),
                figures(median(row["host_cpu_ms_per_batch_with_worker"])),
                f"{median(row['saved']):.1%}",
                f"{median(row['offloaded']):.1%}",
                times(median(row["speed"])),
            ]
            for row in document["saving"]
        ],
        title="Host CPU saved beside a slow trainer",
    )


def _spread(values: Sequence[float]) -> str:
    middle = f"{median(values):.2f}x"
    return middle if len(values) == 1 else f"{middle} ({min(values):.2f} to {max(values):.2f})"


def gain_chart(document: Mapping[str, Any]) -> str:
    """Images per second relative to the host alone, for each dataset and strategy."""
    bars = []
    for row in document["gain"]:
        gain = median(row["gain"])
        bars.append(chart.Bar(f"{row['source']}, {row['strategy']}", gain, f"{gain:.2f}x", row["strategy"] == "paced"))
    return chart.svg(
        "One host core with an offload worker", "images per second relative to the host alone; more is better", bars
    )
