# SPDX-License-Identifier: Apache-2.0
"""Measure two prongs: `python benchmarks/prongs.py [FOLDER]`, `--help` for more.

The host prong has one core and one thread, the near worker a share of another; the trainer is a clock. In the same run
each prong is measured alone, then CPU only, `mte`, `wrr` and `paced`, and beside each what the model and the simulator
say. The trainer takes no time; or as long as both prongs together need ("matched"); or half as long again as the host
alone ("slow"), where `paced, sparing` keeps the near worker on; these two with the first share only.

Near workers have a given share of a core; or the share at which their speed is a given ratio of the host's, which is
found by trial. Each run of a cell is a process of its own, and the cells' runs follow each other in rounds. A gauge on
each core tells how much neighbours of the machine disturbed each second of a run; what a prong does alone is worked out
for the disturbance of the cell that it is held against. Left out are a run's first epoch, in which everything is
calibrated, and batches that were made before the clock ran.
"""

from __future__ import annotations

import shlex
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.console import Console

import headrace
from benchmarks import machine, results
from benchmarks._prongs.bench import Bench, Extent, Near
from benchmarks._prongs.cell import ALONE, SPARING
from benchmarks._prongs.report import bars, stated, tables
from benchmarks._prongs.sources import SOURCES, make_dataset
from benchmarks.gauge import Gauge

TRAINERS = ("none", "matched", "slow")
STRATEGIES = ("mte", "wrr", "paced", "sparing")


def main(
    folder: Annotated[Path | None, typer.Argument(help="A folder of photographs. Default: painted pictures.")] = None,
    *,
    sources: Annotated[str, typer.Option(help=f"Some of {','.join(SOURCES)}.")] = "png,jpeg,hri,cifar",
    shares: Annotated[str, typer.Option(help="Shares of a core that the near worker gets.")] = "0.5,0.25,0.125",
    ratios: Annotated[
        str, typer.Option(help="Ratios of the near worker's speed to the host's; shares are found for them.")
    ] = "0.25,0.28",
    trainers: Annotated[str, typer.Option(help="Some of none,matched,slow.")] = ",".join(TRAINERS),
    strategies: Annotated[str, typer.Option(help="Strategies beside the host alone.")] = ",".join(STRATEGIES),
    seconds: Annotated[float, typer.Option(min=0.05, help="Of each run of a cell.")] = 10.0,
    epoch: Annotated[float, typer.Option(min=0.05, help="Seconds of an epoch of `mte`, on the host alone.")] = 8.0,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each cell.")] = 3,
    prefetch: Annotated[int, typer.Option(min=1, help="Batches that the host has under way.")] = 8,
    sparing: Annotated[int, typer.Option(min=1, help="The same where the near worker spares the host.")] = 1,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results as JSON.")] = None,
) -> None:
    """Measure CPU only, mte, wrr and paced, with both prongs alone, the models and the simulator beside."""
    for given, known in ((sources, SOURCES), (trainers, TRAINERS), (strategies, STRATEGIES)):
        for name in given.split(","):
            if name not in known:
                raise typer.BadParameter(f"there is no {name!r}; choose from {', '.join(known)}")
    chosen = (ALONE, *(SPARING if name == "sparing" else name for name in strategies.split(",")))
    wanted = _near_workers(shares, ratios, tuple(trainers.split(",")), chosen)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that near workers and folders go too
    console = Console(stderr=True)
    extent = Extent(seconds, epoch, rounds, prefetch, sparing)
    rows: list[dict[str, Any]] = []
    document = {
        "benchmark": "prongs",
        "machine": machine.describe(),
        "commit": machine.commit(),
        "target": headrace.codec.active_target(),
        "pictures": "painted" if folder is None else folder.name,
        "command": f"python benchmarks/prongs.py {'' if folder is None else folder.name} --sources {sources} "
        f"--shares {shlex.quote(shares)} --ratios {shlex.quote(ratios)} --trainers {trainers} "
        f"--strategies {strategies} --seconds {seconds:g} "
        f"--epoch {epoch:g} --rounds {rounds} --prefetch {prefetch} --sparing {sparing}",
        "watts": stated(),
        "seconds": seconds,
        "rows": rows,
    }
    with tempfile.TemporaryDirectory(prefix="headrace-prongs-") as folder_name:
        scratch = Path(folder_name)
        datasets = {name: make_dataset(SOURCES[name], folder, scratch / f"{name}.hr") for name in sources.split(",")}
        gauge = Gauge(machine.usable_cores())
        for name, dataset in datasets.items():
            bench = Bench(name, dataset, scratch, extent, gauge, lambda text: console.print(text, highlight=False))
            for near in wanted:
                rows += bench.measure(near)
                if output is not None:  # each time: it takes long, and what was measured is not lost
                    results.write(output, document)
    for table in [*tables(rows), bars(rows)]:
        typer.echo(f"{table.title}\n\n{table.markdown()}\n")


def _near_workers(shares: str, ratios: str, trainers: tuple[str, ...], strategies: tuple[str, ...]) -> list[Near]:
    """The near workers to measure: all trainers with the first of them, none with the others."""
    fast = tuple(trainer for trainer in trainers if trainer == "none")
    at_shares = [Near(share=float(share), trainers=fast, strategies=strategies) for share in shares.split(",") if share]
    at_ratios = [Near(ratio=float(ratio), trainers=fast, strategies=strategies) for ratio in ratios.split(",") if ratio]
    first, *others = [*at_shares, *at_ratios]
    return [Near(first.share, first.ratio, trainers, strategies), *(near for near in others if fast)]


if __name__ == "__main__":
    typer.run(main)
