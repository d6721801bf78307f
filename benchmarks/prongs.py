# SPDX-License-Identifier: Apache-2.0
"""Measure two prongs: `python benchmarks/prongs.py [FOLDER]`, `--help` for more.

The host prong has one core and one thread, the near worker a share of another core; the trainer sleeps. In the same
run each prong is measured alone, then CPU only, `mte`, `wrr` and `paced`, and beside each what the model and the
simulator say. The trainer takes no time; or as long as both prongs together need ("matched"); or half as long again as
the host alone ("slow"), where `paced, sparing` keeps the near worker on. Each run is a process of its own, whose first
epoch, in which everything is calibrated, does not count; nor do batches that the near worker had made before the clock
ran. Cells are run in turns, and the fastest run of each is kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.console import Console

from benchmarks import machine, results
from benchmarks._prongs.cell import NEAR_ALONE, SPARING
from benchmarks._prongs.near import near_worker
from benchmarks._prongs.report import ALONE, bars, completed, counted_rate, stated, tables
from benchmarks._prongs.sources import SOURCES, make_dataset

_CELL = Path(__file__).parent / "_prongs" / "cell.py"
TRAINERS = ("none", "matched", "slow")
STRATEGIES = (ALONE, "mte", "wrr", "paced", SPARING)

Row = dict[str, Any]


class Bench:
    """Measures cells of one source, one after the other."""

    def __init__(
        self,
        source: str,
        dataset: Path,
        scratch: Path,
        *,
        seconds: float,
        epochs: int,
        rounds: int,
        prefetch: int,
        sparing: int,
    ) -> None:
        self.source, self.dataset, self.scratch = source, dataset, scratch
        self.seconds, self.epochs, self.rounds = seconds, epochs, rounds
        self.prefetch, self.sparing = prefetch, sparing
        cores = machine.usable_cores()
        self.host_core, self.near_core = cores[0], cores[-1]
        self.batches = 24
        trial = self.cell(ALONE, None, 0.0, epochs=1)
        a_batch = trial["seconds"] / trial["batches"]
        # Whole epochs of about `seconds` on the host alone, and enough batches for every pattern to show.
        self.batches = max(40, min(4000, round(seconds / a_batch)))

    def cell(
        self, strategy: str, exchange: Path | None, step: float, *, epochs: int, batches: int | None = None
    ) -> Row:
        """Measure one cell."""
        order = {
            "source": self.source,
            "dataset": str(self.dataset),
            "exchange": None if exchange is None else str(exchange),
            "strategy": strategy,
            "step": step,
            "batches": batches or self.batches,
            "epochs": epochs,
            "prefetch": self.sparing if strategy == SPARING else self.prefetch,
            "core": self.host_core,
        }
        done = subprocess.run(  # noqa: S603 - our own script
            [sys.executable, str(_CELL), json.dumps(order)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{strategy} on {self.source}: {done.stderr[-2000:]}")
        row: Row = json.loads(done.stdout.splitlines()[-1])
        return {
            "source": self.source,
            "strategy": strategy,
            "epoch_batches": order["batches"],
            "prefetch": order["prefetch"],
            **row,
        }

    def measure(self, shares: list[float], trainers: list[str], strategies: list[str], tell: Any) -> list[Row]:
        """Measure all cells, round after round, and keep the fastest run of each: what disturbs a run only slows it."""
        hosts = [self.cell(ALONE, None, 0.0, epochs=self.epochs)]
        rows: list[Row] = []
        for share in shares:
            exchange = self.scratch / f"exchange-{self.source}-{share}"
            with near_worker(self.dataset, exchange, share=share, core=self.near_core):
                count = max(
                    16, min(self.batches, round(self.seconds * share * hosts[0]["batches"] / hosts[0]["seconds"]))
                )
                nears = [self.cell(NEAR_ALONE, exchange, 0.0, epochs=1, batches=count)]
                # A trainer that takes its time is measured with the first share only.
                wanted = [trainer for trainer in trainers if share == shares[0] or trainer == "none"]
                runs: dict[tuple[str, str], list[Row]] = {}
                for number in range(self.rounds):
                    tell(f"{self.source}, near at {share:g} of a core: round {number + 1} of {self.rounds}")
                    if number:
                        hosts.append(self.cell(ALONE, None, 0.0, epochs=self.epochs))
                        nears.append(self.cell(NEAR_ALONE, exchange, 0.0, epochs=1, batches=count))
                    for trainer in wanted:
                        step = self._step(trainer, fastest(hosts), fastest(nears))
                        for strategy in strategies:
                            if strategy == SPARING and trainer == "none":
                                continue
                            shared = None if strategy == ALONE else exchange
                            row = self.cell(strategy, shared, step, epochs=self.epochs)
                            runs.setdefault((trainer, strategy), []).append(row)
                # With no trainer the host alone is one measurement, under two names.
                if ("none", ALONE) in runs:
                    runs["none", ALONE] += hosts
                alone = self._alone(fastest(hosts), fastest(nears))
                rows += self._completed(share, alone, runs, tell)
        return rows

    @staticmethod
    def _step(trainer: str, host: Row, near: Row) -> float:
        host_a_batch, near_a_batch = (row["seconds"] / row["batches"] for row in (host, near))
        together = host_a_batch * near_a_batch / (host_a_batch + near_a_batch)
        return {"none": 0.0, "matched": together, "slow": 1.5 * host_a_batch}[trainer]

    def _alone(self, host: Row, near: Row) -> Row:
        rates = {"host_rate": host["samples"] / host["seconds"], "near_rate": near["samples"] / near["seconds"]}
        return {
            **rates,
            "near_ratio": rates["near_rate"] / rates["host_rate"],
            "host_seconds_a_batch": host["seconds"] / host["batches"],
            "near_seconds_a_batch": near["seconds"] / near["batches"],
        }

    @staticmethod
    def _completed(share: float, alone: Row, runs: dict[tuple[str, str], list[Row]], tell: Any) -> list[Row]:
        rows: list[Row] = []
        bases: dict[str, Row] = {}
        for (trainer, strategy), found in runs.items():
            row = {**fastest(found), **alone, "trainer": trainer, "share": share, "strategy": strategy}
            row["all_rates"] = [each["samples"] / each["seconds"] for each in found]
            done = completed(row, bases.get(trainer))
            if strategy == ALONE:
                bases[trainer] = done
            rows.append(done)
            gain = f"{done['rate']:.0f} images/s, {done.get('gain', 1):.3f}x"
            tell(f"{done['source']} {share:g} {trainer} {strategy}: {gain}")
        return rows


def fastest(rows: list[Row]) -> Row:
    """Give the run that was disturbed least, what lay ready before it left out."""
    return max(rows, key=counted_rate)


def main(
    folder: Annotated[Path | None, typer.Argument(help="A folder of photographs. Default: painted pictures.")] = None,
    *,
    sources: Annotated[str, typer.Option(help="Some of png,jpeg,hri,cifar.")] = ",".join(SOURCES),
    shares: Annotated[str, typer.Option(help="Shares of a core that the near worker gets.")] = "0.25,0.3",
    trainers: Annotated[str, typer.Option(help="Some of none,matched,slow.")] = ",".join(TRAINERS),
    strategies: Annotated[
        str, typer.Option(help="Strategies to measure beside the host alone.")
    ] = "mte,wrr,paced,sparing",
    seconds: Annotated[float, typer.Option(min=0.05, help="Of an epoch on the host alone.")] = 4.0,
    epochs: Annotated[int, typer.Option(min=2, help="In all; the first does not count.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each cell, in turns; the fastest counts.")] = 3,
    prefetch: Annotated[int, typer.Option(min=1, help="Batches that the host has under way.")] = 4,
    sparing: Annotated[int, typer.Option(min=1, help="The same where the near worker spares the host.")] = 1,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results as JSON.")] = None,
) -> None:
    """Measure CPU only, mte, wrr and paced, with both prongs alone, the models and the simulator beside."""
    console = Console(stderr=True)
    chosen = [ALONE, *(SPARING if name == "sparing" else name for name in strategies.split(",") if name)]
    unknown = [name for name in chosen if name not in STRATEGIES] + [
        name for name in sources.split(",") if name not in SOURCES
    ]
    if unknown:
        raise typer.BadParameter(f"there is no {unknown[0]!r}")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="headrace-prongs-") as scratch:
        for name in sources.split(","):
            dataset = make_dataset(SOURCES[name], folder, Path(scratch, f"{name}.hr"))
            bench = Bench(
                name,
                dataset,
                Path(scratch),
                seconds=seconds,
                epochs=epochs,
                rounds=rounds,
                prefetch=prefetch,
                sparing=sparing,
            )
            parts = [float(share) for share in shares.split(",")]
            rows += bench.measure(parts, trainers.split(","), chosen, console.print)
    for table in [*tables(rows), bars(rows)]:
        typer.echo(f"{table.title}\n\n{table.markdown()}\n")
    document = {
        "benchmark": "prongs",
        "machine": machine.describe(),
        "commit": machine.commit(),
        "pictures": "painted" if folder is None else folder.name,
        "command": f"python benchmarks/prongs.py {'' if folder is None else folder.name} --sources {sources} "
        f"--shares {shares} "
        f"--trainers {trainers} --strategies {strategies} --seconds {seconds:g} --epochs {epochs} --rounds {rounds} "
        f"--prefetch {prefetch} --sparing {sparing}",
        "watts": stated(),
        "seconds": seconds,
        "rows": rows,
    }
    if output is not None:
        results.write(output, document)


if __name__ == "__main__":
    typer.run(main)
