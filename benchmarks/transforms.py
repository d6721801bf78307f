# SPDX-License-Identifier: Apache-2.0
"""Measure augmentations side by side: `python benchmarks/transforms.py [PHOTOS]`; `make peers` comes first.

CPU time per image of whole recipes (DeiT, DINO, SimCLR) and of single operations, beside timm on PyTorch's DataLoader
and DALI. Rounds are interleaved and the median counts. docs/benchmarks/transforms.md says more.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Annotated, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.console import Console

from benchmarks import results, tables
from benchmarks._transforms import report
from benchmarks._transforms.cases import LIBRARIES, RECIPES, SOURCES, Library, Recipe, choose
from benchmarks._transforms.run import RunFailed, run
from benchmarks._transforms.stores import make_stores

log = Console(stderr=True, highlight=False)
_KNOWN = tuple(recipe.name for recipe in RECIPES)


def main(
    photos: Annotated[
        Path | None, typer.Argument(help="A folder of photographs of at least 2048x1024 (default: synthetic images).")
    ] = None,
    *,
    recipes: Annotated[str, typer.Option(help=f"From {', '.join(_KNOWN)}, comma-separated (default: all).")] = "",
    sources: Annotated[str, typer.Option(help=f"From {', '.join(SOURCES)}, comma-separated (default: all).")] = "",
    peers: Annotated[
        str, typer.Option(help=f"From {', '.join(one.program for one in LIBRARIES)}, comma-separated (default: all).")
    ] = "",
    images: Annotated[int, typer.Option(min=8, help="Number of images.")] = 256,
    batch_size: Annotated[int, typer.Option(min=2, help="Images per batch, an even number for timm.")] = 64,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs that count, after one that warms up.")] = 2,
    workers: Annotated[int, typer.Option(min=1, help="Number of workers, each with its own core.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 3,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results to this JSON file.")] = None,
) -> None:
    """Measure the CPU time of augmentations per image."""
    try:
        names, chosen = choose(recipes, _KNOWN, "recipes"), choose(sources, tuple(SOURCES), "sources")
        programs = choose(peers, tuple(one.program for one in LIBRARIES), "peers")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    words = ["python benchmarks/transforms.py", *([photos.resolve().name] if photos else [])]
    given = {"recipes": recipes, "sources": sources, "peers": peers}
    words += [f"--{name} {value}" for name, value in given.items() if value]
    words += [f"--images {images} --batch-size {batch_size} --epochs {epochs} --workers {workers} --rounds {rounds}"]
    document = results.frame("transforms", " ".join(words), ("numpy", "pillow", "torch"))
    document |= {"rows": [], "failed": [], "versions": {}, "workers": workers}
    present = [one for one in LIBRARIES if one.program in programs and one.installed]
    document["not_installed"] = [one.program for one in LIBRARIES if one.program in programs and one not in present]
    for program in document["not_installed"]:
        log.print(f"{program} is not installed; `make peers` installs it", style="yellow")
    listed = [recipe for recipe in RECIPES if recipe.name in names]
    with tempfile.TemporaryDirectory(prefix="headrace-transforms-") as scratch:
        for source in chosen:
            log.print(f"{source}: storing {images} images", style="dim")
            stores = make_stores(photos, Path(scratch), source, images)
            bench = Bench(document, source, stores, {"batch_size": batch_size, "epochs": epochs, "workers": workers})
            for number in range(rounds):
                bench.measure(number, present, listed)
                if output is not None:  # after every round: an interrupted run keeps what it has
                    results.write(output, document)
    for table in report.tables(document):
        tables.show(table)
    for failure in document["failed"]:
        log.print(failure, style="yellow", markup=False)
    typer.echo(results.provenance(document))


class Bench:
    """Measures the images of one source, one round after the other."""

    def __init__(self, document: dict[str, Any], source: str, stores: dict[str, Path], options: dict[str, int]) -> None:
        self._document, self._source, self._stores, self._options = document, source, stores, options
        self._runs: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        self._failed: set[tuple[str, str]] = set()

    def measure(self, number: int, libraries: list[Library], recipes: list[Recipe]) -> None:
        """Run every library on every recipe once, and update the rows of the document."""
        for recipe in recipes:
            for library in libraries:
                key = recipe.name, library.program
                if recipe.name in library.lacks or key in self._failed:
                    continue
                log.print(f"{self._source}, round {number + 1}: {recipe.name}, {library.label}", style="dim")
                store = self._stores[dict(library.stores)[self._source]]
                try:
                    found = run(library, recipe, store, **self._options)
                except RunFailed as failure:
                    self._failed.add(key)
                    self._document["failed"].append(f"{self._source}: {failure}")
                    continue
                self._document["versions"][library.program] = found.pop("libraries")
                self._runs[key].append(found)
        others = [row for row in self._document["rows"] if row["source"] != self._source]
        self._document["rows"] = [*others, *map(self._row, self._runs)]

    def _row(self, key: tuple[str, str]) -> dict[str, Any]:
        runs = self._runs[key]
        row: dict[str, Any] = {"source": self._source, "recipe": key[0], "program": key[1]}
        row |= {name: median(each[name] for each in runs) for name in ("cpu_ms", "ms")}
        return row | {"all_cpu_ms": [each["cpu_ms"] for each in runs]}


if __name__ == "__main__":
    typer.run(main)
