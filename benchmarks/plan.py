# SPDX-License-Identifier: Apache-2.0
"""Compare plans with measurements: `python benchmarks/plan.py FOLDER…`, `--help` for more.

Storage is emulated at three rates; every single format and the plan's mix are predicted and measured with one core and
two. Then: two renditions while storage slows down, and records against small files. docs/benchmarks/plan.md says more.
"""

from __future__ import annotations

import functools
import sys
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
from benchmarks import machine, results, tables
from benchmarks._plan import adaptive, mix, records, report
from benchmarks._plan.measure import Datasets, Recipe
from headrace.errors import HeadraceError
from headrace.measuring import measure_storage
from headrace.planning import Calibration, calibrate
from headrace.transforms import HorizontalFlip, RandomCrop, Resize

# Large photographs are scaled down as a whole; small ones are cropped.
LARGE = (Resize(384), HorizontalFlip())
SMALL = (RandomCrop(224), HorizontalFlip())
_LARGE_FROM = 700  # pixels of the longer side

_OF_DISK = 0.9  # emulated storage must be slower than the real disk

log = Console(stderr=True, highlight=False)


def main(
    folders: Annotated[list[Path], typer.Argument(help="Folders of PNG or of JPEG files, one format each.")],
    *,
    cores: Annotated[str, typer.Option(help="Numbers of cores, comma-separated.")] = "1,2",
    repeats: Annotated[int, typer.Option(min=2, help="Repeats of each measurement.")] = 6,
    direct: Annotated[bool, typer.Option(help="Bypass the page cache.")] = True,
    disk_rate: Annotated[
        str, typer.Option(help="MB/s that may be emulated, one per folder, comma-separated (default: measured).")
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Two repeats and few files: shows that it runs.")] = False,
    store: Annotated[Path, typer.Option(help="Where datasets are kept.")] = machine.ROOT / "build/bench-data/plan",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results to this JSON file.")] = None,
) -> None:
    """Compare plans with measurements."""
    repeats, files = (2, 400) if quick else (repeats, records.FILES)
    words = ["python benchmarks/plan.py", *(folder.resolve().name for folder in folders)]
    words += ["--quick"] if quick else [f"--repeats {repeats}"]
    words += [f"--disk-rate {disk_rate}"] if disk_rate else []
    try:
        limits = limits_of(disk_rate, len(folders))
        numbers = [int(number) for number in cores.split(",")]
        document = results.frame("plan", " ".join(words), ("numpy", "scipy", "pillow"))
        document |= {"mix": [], "adaptive": [], "records": None}
        for folder, limit in zip(folders, limits, strict=True):
            add(document, Datasets(store, folder), numbers, limit, repeats=repeats, direct=direct, quick=quick)
            if output is not None:  # after every folder: an interrupted run keeps what it has
                results.write(output, document)
        document["records"] = records.run(store, folders[0], files=files, log=note)
        if output is not None:
            results.write(output, document)
    except (HeadraceError, OSError, ValueError) as error:
        log.print("[bold red]error:[/]", escape(str(error)))
        raise typer.Exit(1) from None
    for table in report.tables(document):
        tables.show(table)


def limits_of(text: str, folders: int) -> list[float]:
    """Return the bytes per second that may be emulated for each folder; 0 where they are to be measured."""
    limits = [float(rate) * 1e6 for rate in text.split(",")] if text else [0.0] * folders
    if len(limits) != folders:
        raise ValueError(f"--disk-rate must have one rate per folder; got {len(limits)} for {folders} folders")
    return limits


def add(
    document: dict[str, Any],
    datasets: Datasets,
    cores: Sequence[int],
    limit: float,
    *,
    repeats: int,
    direct: bool,
    quick: bool,
) -> None:
    """Measure the images of one folder and add the result to the document."""
    recipe = recipe_of(datasets, direct=direct)
    note(f"{datasets.source.name}: calibrating")
    again = functools.partial(calibrated, datasets, recipe, max(cores), quick=quick)
    found = again()
    limit = limit or _OF_DISK * disk_rate_of(datasets, found)
    note(f"{datasets.source.name}: emulated storage up to {limit / 1e6:.0f} MB/s")
    common: dict[str, Any] = {"max_storage_rate": limit, "repeats": repeats, "log": note}
    document["mix"].append(mix.run(datasets, found, recipe, calibrate=again, cores=cores, **common))
    document["adaptive"] += [adaptive.run(datasets, found, recipe, cores=number, **common) for number in cores]
    datasets.drop_plans()


def recipe_of(datasets: Datasets, *, direct: bool) -> Recipe:
    """Choose the transforms and batch size for images of this size."""
    dataset = headrace.open(datasets.single("raw"))
    side = float(np.median(np.maximum(dataset.column("image.0.width"), dataset.column("image.0.height"))))
    return Recipe(LARGE, 16, direct) if side >= _LARGE_FROM else Recipe(SMALL, 64, direct)


def calibrated(datasets: Datasets, recipe: Recipe, cores: int, *, quick: bool) -> Calibration:
    return calibrate(
        datasets.source,
        transform=list(recipe.transform),
        batch_size=recipe.batch_size,
        samples=None if quick else 128,
        cores=cores,
        quick=quick,
        loader_options={"direct_io": recipe.direct},
        workdir=datasets.folder,
    )


def disk_rate_of(datasets: Datasets, calibration: Calibration) -> float:
    """Measure the disk with requests of the loader's size; return the slowest of three runs."""
    size = int(min(cost.read_bytes for cost in calibration.costs if cost.format != calibration.source_format))
    shards = [shard for name in calibration.formats for shard in (datasets.single(name) / "shards").iterdir()]
    return min(measure_storage(shards, request_bytes=size, seconds=2.0).bytes_per_second for _ in range(3))


def note(text: str) -> None:
    log.print(text, style="dim")


if __name__ == "__main__":
    typer.run(main)
