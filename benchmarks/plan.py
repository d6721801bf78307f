# SPDX-License-Identifier: Apache-2.0
"""Hold plans against what happens: `python benchmarks/plan.py FOLDER…`, `--help` for more.

Storage is emulated by a token bucket at three rates, with one and two cores and three trainers; every single format and
the plan's mix are predicted and measured in each. Then: two renditions while storage drops, records against raw files,
and the losses of a training. docs/benchmarks.md says more.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

import headrace
from benchmarks import machine, results
from benchmarks._plan import adaptive, mix, records, report, training
from benchmarks._plan.cells import Recipe
from benchmarks._plan.stores import Stores
from headrace.errors import HeadraceError
from headrace.planning import Calibration, calibrate, measure_storage
from headrace.planning._storage import source_files
from headrace.transforms import HorizontalFlip, RandomCrop, Resize

PARTS = ("mix", "adaptive", "records", "training")

# What is trained on: of large photographs all of each, made smaller; of small ones random crops.
LARGE = (Resize(384), HorizontalFlip())
SMALL = (RandomCrop(224), HorizontalFlip())
_LARGE_FROM = 700  # pixels of the longer side

# Of what the disk gives at its worst: emulated storage must not be faster than the real one below it.
_OF_THE_DISK = 0.9

log = Console(stderr=True)


def main(
    folders: Annotated[list[Path], typer.Argument(help="Folders of PNGs or of JPEGs, one kind each.")],
    *,
    part: Annotated[str, typer.Option(help=f"Comma-separated: {', '.join(PARTS)}.")] = ",".join(PARTS),
    cores: Annotated[str, typer.Option(help="Comma-separated numbers of cores.")] = "1,2",
    images: Annotated[int, typer.Option(min=8, help="At most so many of a folder.")] = 400,
    rounds: Annotated[int, typer.Option(min=1, help="Most turns of a cell, until they agree.")] = 12,
    files: Annotated[int, typer.Option(min=100, help="Small files of the part `records`.")] = records.FILES,
    direct: Annotated[bool, typer.Option(help="Read past the page cache.")] = True,
    disk_rate: Annotated[float, typer.Option(help="MB/s that may be emulated; 0 measures the disk.")] = 0.0,
    quick: Annotated[bool, typer.Option("--quick", help="Few images, short measurements: a first look.")] = False,
    store: Annotated[Path, typer.Option(help="Where datasets are kept.")] = machine.ROOT / "build/bench-data/plan",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results as JSON.")] = None,
) -> None:
    """Hold plans against what happens."""
    begun = time.monotonic()
    if quick:
        images, rounds, files = min(images, 24), 1, min(files, 400)
    try:
        wanted = chosen_parts(part)
        numbers = [int(number) for number in cores.split(",")]
        document = frame(folders, part=part, quick=quick, rounds=rounds, disk_rate=disk_rate)
        how: dict[str, Any] = {"quick": quick, "rounds": rounds, "direct": direct, "disk_rate": disk_rate}
        for folder in folders if wanted & {"mix", "adaptive", "training"} else ():
            add(document, wanted, Stores(store, folder, images, note), numbers, **how)
        if "records" in wanted:
            document["records"] = records.run(store, folders[0], files=files, log=note)
        document["seconds"] = time.monotonic() - begun
        if output is not None:
            results.write(output, document)
    except (HeadraceError, OSError, ValueError) as error:
        log.print("[bold red]error:[/]", escape(str(error)), highlight=False)
        raise typer.Exit(1) from None
    show(document)


def add(
    document: dict[str, Any],
    wanted: set[str],
    stores: Stores,
    numbers: Sequence[int],
    *,
    quick: bool,
    rounds: int,
    direct: bool,
    disk_rate: float,
) -> None:
    """Measure the parts that need the photographs of a folder."""
    recipe = recipe_of(stores, direct=direct)
    again = functools.partial(calibrated, stores, recipe, max(numbers), quick=quick)
    found = mix.average([again() for _ in range(1 if quick else 2)])
    limit = disk_rate * 1e6 or _OF_THE_DISK * disk(stores, found)
    note(f"{stores.folder.name}: emulated storage up to {limit / 1e6:.0f} MB/s")
    common: dict[str, Any] = {"disk_rate": limit, "rounds": rounds, "log": note}
    if "mix" in wanted:
        document["mix"].append(mix.run(stores, found, recipe, calibrate=again, cores=numbers, **common))
    if "adaptive" in wanted:
        document["adaptive"] += [adaptive.run(stores, found, recipe, cores=number, **common) for number in numbers]
    if "training" in wanted and stores.source.classes:
        document["training"].append(training.run(stores, found, note))
    stores.drop_mixes()


def chosen_parts(text: str) -> set[str]:
    wanted = {name for name in text.split(",") if name}
    unknown = wanted - set(PARTS)
    if unknown or not wanted:
        raise ValueError(f"there is no part {', '.join(unknown) or text!r}: choose from {', '.join(PARTS)}")
    return wanted


def recipe_of(stores: Stores, *, direct: bool) -> Recipe:
    """How images of this size are trained on."""
    dataset = headrace.open(stores.single("raw"))
    width = float(np.median(np.maximum(dataset.column("image.0.width"), dataset.column("image.0.height"))))
    return Recipe(LARGE, 16, direct) if width >= _LARGE_FROM else Recipe(SMALL, 64, direct)


def calibrated(stores: Stores, recipe: Recipe, cores: int, *, quick: bool) -> Calibration:
    note(f"calibrating with {stores.folder.name}")
    return calibrate(
        stores.source,
        transform=list(recipe.transform),
        batch_size=recipe.batch_size,
        samples=None if quick else 128,
        cores=cores,
        direct=recipe.direct,
        quick=quick,
        workdir=stores.folder,
    )


def disk(stores: Stores, calibration: Calibration) -> float:
    """What the disk gives with requests as the loader makes them, when it is read again and again as cells do."""
    os.sync()
    size = int(min(cost.read_bytes for cost in calibration.costs if cost.format != calibration.source_format))
    files = [file for name in calibration.formats for file in source_files(stores.single(name))]
    return min(measure_storage(files, request_bytes=size, seconds=2.0).bytes_per_second for _ in range(3))


def frame(folders: list[Path], *, part: str, quick: bool, rounds: int, disk_rate: float) -> dict[str, Any]:
    """The document without its measurements: what ran, where, and how."""
    words = [
        "python benchmarks/plan.py",
        *(folder.resolve().name for folder in folders),
        *(["--quick"] if quick else [f"--rounds {rounds}"]),
    ]
    words += [f"--disk-rate {disk_rate:g}"] if disk_rate else []
    words += [] if part == ",".join(PARTS) else [f"--part {part}"]
    return {
        "benchmark": "plan",
        "version": 1,
        "command": " ".join(words),
        "machine": machine.describe(),
        "headrace": {
            "version": headrace.__version__,
            "commit": machine.commit(),
            "target": headrace.codec.active_target(),
        },
        "mix": [],
        "adaptive": [],
        "records": None,
        "training": [],
    }


def show(document: dict[str, Any]) -> None:
    console = Console()
    for table in report.tables(document):
        if console.is_terminal:
            console.print(table.rich())
        else:
            typer.echo(f"\n{table.title}\n\n{table.markdown()}")


def note(text: str) -> None:
    log.print(text, style="dim", highlight=False)


if __name__ == "__main__":
    typer.run(main)
