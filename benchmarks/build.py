# SPDX-License-Identifier: Apache-2.0
"""Measure how fast datasets are built: `python benchmarks/build.py [FOLDER]`, `--help` for more.

Beside ours: the mere decoding and encoding of the same images by as many workers, which is the bound; and the writers
of ffcv, litdata and webdataset where they are installed, each storing the same thing as one of ours. Every measurement
is a process of its own; rounds are interleaved; the best of each counts, by the clock and in CPU time of all processes.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import typer
from PIL import Image
from rich.console import Console

from benchmarks import machine, results
from benchmarks._build.contenders import CONTENDERS, NEEDS, files_of
from benchmarks._codec.images import bundled_sets, load
from benchmarks.tables import Table, figures, times

LIBRARIES = ("numpy", "pillow", "imagecodecs", "pyarrow", "ffcv", "litdata", "webdataset")
BOUND = {False: "decode + encode hri:dense, threads", True: "decode + encode hri:dense, processes"}
_SCRIPT = Path(__file__).parent / "_build" / "contenders.py"

Row = dict[str, Any]


def main(
    folder: Annotated[Path | None, typer.Argument(help="A folder of PNGs. Default: made of scikit-image's.")] = None,
    *,
    images: Annotated[int, typer.Option(min=1, help="How many to make, if made.")] = 400,
    side: Annotated[int, typer.Option(min=16, max=500, help="Their height; they are 4:3.")] = 384,
    workers: Annotated[str, typer.Option(help="Numbers of workers.")] = "1,2",
    rounds: Annotated[int, typer.Option(min=1, help="Best of how many rounds.")] = 3,
    only: Annotated[str, typer.Option(help="Only contenders with this in their name.")] = "",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results as JSON.")] = None,
) -> None:
    """Measure how fast datasets are built, against the bound and against others' writers."""
    names = [name for name in CONTENDERS if only in name]
    names = [name for name in names if name not in NEEDS or importlib.util.find_spec(NEEDS[name]) is not None]
    cases = [(name, int(number)) for name in names for number in workers.split(",")]
    with tempfile.TemporaryDirectory(prefix="headrace-build-") as scratch:
        source = folder or make_photos(Path(scratch, "photos"), images, side)
        files = files_of(source)
        if not files:
            raise typer.BadParameter(f"{source} holds no images")
        best: dict[tuple[str, int], Row] = {}
        for _ in range(rounds):
            for case in cases:
                found = run(case[0], source, Path(scratch, "out"), case[1])
                best[case] = {key: min(value, best.get(case, found)[key]) for key, value in found.items()}
    document: Row = {
        "benchmark": "build",
        "machine": machine.describe(),
        "libraries": machine.library_versions(LIBRARIES),
        "commit": machine.commit(),
        "images": len(files),
        "source": source.name,
        "rows": [{"name": name, "workers": number, **best[name, number]} for name, number in cases],
    }
    console = Console()
    if console.is_terminal:
        console.print(table(document).rich())
    else:
        typer.echo(table(document).markdown())
    if output is not None:
        results.write(output, document)


def run(name: str, source: Path, dest: Path, workers: int) -> Row:
    """Measure one contender in a process of its own."""
    if dest.is_dir():
        shutil.rmtree(dest)
    dest.unlink(missing_ok=True)
    command = [sys.executable, str(_SCRIPT), name, str(source), str(dest), str(workers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)  # noqa: S603 - our own arguments
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


def make_photos(folder: Path, n: int, side: int) -> Path:
    """Cut `n` different pictures of 4:3 from scikit-image's colour photographs, and store them as PNG."""
    folder.mkdir()
    width = side * 4 // 3
    photos = [load(path)[:, :, :3] for path in bundled_sets()[0].files]
    photos = [photo for photo in photos if photo.shape[0] >= side and photo.shape[1] >= width]
    rng = np.random.default_rng(0)
    for number in range(n):
        photo = photos[number % len(photos)]
        top, left = rng.integers(0, photo.shape[0] - side + 1), rng.integers(0, photo.shape[1] - width + 1)
        Image.fromarray(photo[top : top + side, left : left + width]).save(folder / f"{number:06d}.png")
    return folder


def table(document: Row) -> Table:
    """One row a contender and number of workers; the bound's rate is that of as many workers, the faster kind."""
    rows = {(row["name"], row["workers"]): row for row in document["rows"]}
    n = document["images"]
    cells = []
    for (name, number), row in rows.items():
        bounds = [rows[bound, number]["seconds"] for bound in BOUND.values() if (bound, number) in rows]
        alone = rows.get((name, 1))
        cells.append(
            [
                name,
                str(number),
                figures(n / row["seconds"]),
                times(min(bounds) / row["seconds"]) if bounds and "hri:dense" in name else "",
                times(alone["seconds"] / row["seconds"]) if alone and number > 1 else "",
                figures(1000 * row["cpu_seconds"] / n),
                figures(row["peak_mb"]),
                figures(row["n_bytes"] / 1e6) if row["n_bytes"] else "",
            ]
        )
    columns = ("writer", "workers", "images/s", "of bound", "of one worker", "CPU ms an image", "peak MB", "MB")
    return Table(columns, cells, title=f"{n} images of {document['source']}")


if __name__ == "__main__":
    typer.run(main)
