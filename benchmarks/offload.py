# SPDX-License-Identifier: Apache-2.0
"""Measure what an offload worker adds to one host core: `python benchmarks/offload.py [FOLDER]`, `--help` for more.

The host loads with one thread on one core; the offload worker has a share of another core. Two questions:

- gain: where the host is the bottleneck, how many images per second, compared with the host and the worker alone;
- saving: where the trainer is slower than the host alone, how much CPU time the host saves.

Every measurement is a process of its own. They follow each other in rounds, and ratios are taken within a round, so
that other load on the machine affects both sides of a ratio; the median of the rounds counts.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.console import Console

from benchmarks import machine, results
from benchmarks._offload.product import SPARE_HOST, STRATEGIES, offload_worker
from benchmarks._offload.report import gain_rows, gain_table, saving_row, saving_table
from benchmarks._offload.run import HOST, WORKER, Measured, Order
from benchmarks._offload.sources import SOURCES, make_dataset

_RUN = Path(__file__).parent / "_offload" / "run.py"
_SLOW = 1.5  # the slow trainer's time per batch, in the host's
_MAX_SPEED = 2.0  # with a worker, relative to the host alone; an epoch must not end while it is measured
_TRIAL_BATCHES = 10_000  # more than any host makes in one measurement

log = Console(stderr=True, highlight=False)


def main(
    folder: Annotated[Path | None, typer.Argument(help="A folder of photographs (default: synthetic images).")] = None,
    *,
    sources: Annotated[str, typer.Option(help="Datasets to load, comma-separated.")] = ",".join(SOURCES),
    share: Annotated[float, typer.Option(min=0.05, max=1, help="Share of a core that the worker gets.")] = 0.3,
    seconds: Annotated[float, typer.Option(min=0.05, help="Seconds per measurement.")] = 4.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 3,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results to this JSON file.")] = None,
) -> None:
    """Measure what an offload worker adds to one host core, and what it saves the host."""
    names = sources.split(",")
    for name in names:
        if name not in SOURCES:
            raise typer.BadParameter(f"--sources must be from {','.join(SOURCES)}; got {name!r}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that workers end and folders are removed
    words = ["python benchmarks/offload.py", *([folder.resolve().name] if folder else [])]
    words += [f"--sources {sources}"] if names != list(SOURCES) else []
    words += [f"--share {share:g} --seconds {seconds:g} --rounds {rounds}"]
    document = results.frame("offload", " ".join(words), ("numpy", "pillow"))
    document |= {"share": share, "gain": [], "saving": []}
    with tempfile.TemporaryDirectory(prefix="headrace-offload-") as scratch:
        for name in names:
            dataset = make_dataset(SOURCES[name], folder, Path(scratch, f"{name}.hr"))
            bench = Bench(name, dataset, Path(scratch, f"exchange-{name}"), share, seconds)
            gains, saving = bench.measure(rounds)
            document["gain"] += gains
            document["saving"].append(saving)
            if output is not None:  # after every source: an interrupted run keeps what it has
                results.write(output, document)
    for table in (gain_table(document), saving_table(document)):
        typer.echo(f"{table.title}\n\n{table.markdown()}\n")


class Bench:
    """Measures one dataset with one offload worker."""

    def __init__(self, source: str, dataset: Path, exchange: Path, share: float, seconds: float) -> None:
        self.source, self.dataset, self.exchange = source, dataset, exchange
        self.share, self.seconds = share, seconds
        self.host_core, self.worker_core = machine.usable_cores()[0], machine.usable_cores()[-1]

    def measure(self, rounds: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return a row per strategy, and one for the slow trainer."""
        trial = self._run(HOST, _TRIAL_BATCHES)
        per_second = trial.batches / trial.seconds
        long = round(4 * _MAX_SPEED * max(4.0, self.seconds) * per_second) + 100
        epoch = max(40, round(self.seconds * per_second))
        fast: list[dict[str, Measured]] = []
        slow: list[dict[str, Measured]] = []
        with offload_worker(self.dataset, self.exchange, share=self.share, core=self.worker_core):
            for number in range(rounds):
                log.print(f"{self.source}: round {number + 1} of {rounds}", style="dim")
                fast.append({HOST: self._run(HOST, long), WORKER: self._run(WORKER, long)})
                fast[-1] |= {name: self._run(name, epoch if name == "mte" else long) for name in STRATEGIES}
                slow.append({name: self._run(name, long, _SLOW / per_second) for name in (HOST, SPARE_HOST)})
        size = SOURCES[self.source].batch_size
        return gain_rows(self.source, size, fast), saving_row(self.source, size, slow)

    def _run(self, strategy: str, batches: int, step_seconds: float = 0.0) -> Measured:
        exchange = None if strategy == HOST else str(self.exchange)
        order = Order(
            self.source, str(self.dataset), exchange, strategy, step_seconds, self.seconds, batches, self.host_core
        )
        done = subprocess.run(  # noqa: S603 - our own script
            [sys.executable, str(_RUN), json.dumps(asdict(order))], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{strategy} on {self.source} failed: {done.stderr[-2000:]}")
        return Measured(**json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    typer.run(main)
