# SPDX-License-Identifier: Apache-2.0
"""Measure data loaders side by side: `python benchmarks/loaders.py DATA`, `--help` for more; `make peers` comes first.

Each run is a process tree of its own in the peer's own environment, held to as many cores as it has workers. Rounds are
interleaved and the median counts. docs/benchmarks/loaders.md says more.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.console import Console
from rich.markup import escape

from benchmarks import machine, results, tables
from benchmarks._loaders import report
from benchmarks._loaders.cases import CASES, CONTENDERS, Case, Contender, Environments, choose_cases, choose_contenders
from benchmarks._loaders.run import Failed, Row, run
from benchmarks._loaders.stores import QUICK, Scale, Store, Stores, warm

SEED = 7

log = Console(stderr=True)


def main(
    data: Annotated[Path, typer.Argument(help="A folder with clic/ (photographs) and jpeg_cc0/ (class folders).")],
    *,
    peers: Annotated[
        str, typer.Option(help="Loaders, or the beginning of their names, comma-separated; 'all' adds slower variants.")
    ] = "",
    cases: Annotated[str, typer.Option(help=f"From {', '.join(case.name for case in CASES)}, comma-separated.")] = "",
    workers: Annotated[str, typer.Option(help="Numbers of workers, each with its own core, comma-separated.")] = "2",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 3,
    quick: Annotated[
        bool, typer.Option("--quick", help="One round on few images: shows that every loader runs.")
    ] = False,
    store: Annotated[Path, typer.Option(help="Where stored images are kept between runs.")] = machine.ROOT
    / "build/bench-data",
    remake: Annotated[bool, typer.Option("--remake", help="Store the images again.")] = False,
    list_peers: Annotated[
        bool, typer.Option("--list", help="List the loaders and whether they are installed.")
    ] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results to this JSON file.")] = None,
) -> None:
    """Measure data loaders side by side: images per second, and CPU time of all their processes."""
    environments = Environments()
    if list_peers:
        for contender in CONTENDERS:
            typer.echo(f"{contender.name:26} {'' if environments.installed(contender.program) else 'not installed'}")
        return
    try:
        chosen = choose_contenders(peers)
        numbers = worker_numbers(workers)
        if remake and store.exists():
            shutil.rmtree(store)
        stores = Stores(store, data, QUICK if quick else Scale(), environments)
        document = frame(data, rounds=1 if quick else rounds, quick=quick, peers=peers, cases=cases, workers=workers)
        document["not_installed"] = sorted({one.program for one in chosen if not environments.installed(one.program)})
        for program in document["not_installed"]:
            log.print(f"{program} is not installed; `make peers` installs it", style="yellow")
        present = [one for one in chosen if environments.installed(one.program)]
        for case in choose_cases(cases):
            for measured in measure(case, present, stores, environments, document, numbers):
                document["cases"] = [*(c for c in document["cases"] if c["name"] != case.name), measured]
                if output is not None:
                    results.write(output, document)
            for number in numbers:
                tables.show(report.case_table(document["cases"][-1], number))
    except (Failed, OSError, ValueError, subprocess.CalledProcessError) as error:
        log.print("[bold red]error:[/]", escape(str(error)), highlight=False)
        raise typer.Exit(1) from None
    typer.echo(results.provenance(document))


def worker_numbers(text: str) -> list[int]:
    numbers = [int(number) for number in text.split(",")]
    cores = len(machine.usable_cores())
    if not 1 <= min(numbers) <= max(numbers) <= cores:
        raise ValueError(f"--workers must be from 1 to the number of cores, {cores}; got {text}")
    return numbers


def measure(
    case: Case,
    contenders: list[Contender],
    stores: Stores,
    environments: Environments,
    document: dict[str, Any],
    numbers: list[int],
) -> Iterator[dict[str, Any]]:
    """Yield the case after each round. A loader that fails is named and not run again."""
    able = [one for one in contenders if case.source in one.store]
    found: dict[str, Store] = {}
    for one in able:
        name = one.store[case.source]
        if name not in found:
            log.print(f"{case.name}: storing images as {name}", style="dim", highlight=False)
            found[name] = stores.get(case.source, name)
            warm(found[name])
    runs: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for round_number in range(document["rounds"]):
        for workers in numbers:
            for one in list(able):
                log.print(f"{case.name}, round {round_number + 1}, {workers} workers: {one.name}", style="dim")
                try:
                    row = run(
                        one,
                        case,
                        found[one.store[case.source]],
                        environments,
                        workers=workers,
                        seed=SEED + round_number,
                    )
                except Failed as failure:
                    log.print(str(failure), style="yellow", markup=False)
                    document["failed"].append(str(failure))
                    able.remove(one)
                    continue
                document["libraries"][one.program] = row["libraries"]
                runs[one.name, workers].append(report.figures_of(row))
        rows = [
            _row(one, workers, runs[one.name, workers], found[one.store[case.source]])
            for workers in numbers
            for one in able
        ]
        images = max((stored.images for stored in found.values()), default=0)
        yield asdict(case) | {"images": images, "rows": rows}


def _row(one: Contender, workers: int, runs: list[Row], store: Store) -> Row:
    return {
        "name": one.name,
        "label": one.label,
        "ours": one.ours,
        "resize": one.resize,
        "store": store.path.name,
        "bytes_per_image": store.n_bytes / store.images,
        "workers": workers,
        "median": report.middle(runs),
        "runs": runs,
    }


def frame(data: Path, *, rounds: int, quick: bool, **options: str) -> dict[str, Any]:
    """Return the document without its cases."""
    words = ["python benchmarks/loaders.py", data.resolve().name, *(["--quick"] if quick else [])]
    words += [f"--{name} {value}" for name, value in options.items() if value and (name, value) != ("workers", "2")]
    words += [f"--rounds {rounds}"] if rounds not in {1, 3} else []
    document = results.frame("loaders", " ".join(words))
    return document | {"rounds": rounds, "not_installed": [], "failed": [], "cases": []}


if __name__ == "__main__":
    typer.run(main)
