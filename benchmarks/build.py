# SPDX-License-Identifier: Apache-2.0
"""Measure how fast datasets are built: `python benchmarks/build.py [FOLDER]`, `--help` for more.

Headrace's formats are compared with bare decoding and encoding, which is the bound, and with the writers of FFCV,
LitData and WebDataset if `make peers` has installed them. docs/benchmarks/build.md says more.
"""

from __future__ import annotations

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

from benchmarks import results, tables
from benchmarks._build.contenders import CONTENDERS
from benchmarks._build.report import table
from benchmarks._codec.images import bundled_sets, folder_set, load
from benchmarks._loaders.cases import Environments

PEERS = {
    "FFCV, raw": ("ffcv", "raw"),
    "WebDataset, files as they are": ("webdataset", ""),
    "LitData, files as they are": ("litdata", ""),
}
"""Writers of others: the program in benchmarks/peers that stores the images, and its variant."""

_SCRIPT = Path(__file__).parent / "_build" / "contenders.py"

Row = dict[str, Any]


def main(
    folder: Annotated[Path | None, typer.Argument(help="A folder of photographs (default: scikit-image's).")] = None,
    *,
    images: Annotated[int, typer.Option(min=1, help="How many PNGs to cut from them.")] = 400,
    height: Annotated[int, typer.Option(min=16, max=500, help="Height of the PNGs; they are 4:3.")] = 384,
    workers: Annotated[str, typer.Option(help="Numbers of workers, comma-separated.")] = "1,2",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the best counts.")] = 3,
    only: Annotated[str, typer.Option(help="Only writers with this in their name.")] = "",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results to this JSON file.")] = None,
) -> None:
    """Measure how fast datasets are built, and compare with the bound and with other writers."""
    words = ["python benchmarks/build.py", *([folder.resolve().name] if folder else [])]
    words += [f"--images {images}", *([f"--only {only}"] if only else [])]
    document = results.frame("build", " ".join(words), ("numpy", "pillow", "imagecodecs", "pyarrow"))
    environments = Environments()
    installed = [name for name, (program, _) in PEERS.items() if environments.installed(program)]
    cases = [(name, int(n)) for name in (*CONTENDERS, *installed) if only in name for n in workers.split(",")]
    best: dict[tuple[str, int], Row] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-build-") as scratch:
        source = make_photos(Path(scratch, "photos"), folder, images, height)
        for _ in range(rounds):
            for name, number in cases:
                found = run(name, source, Path(scratch, "out"), number, environments)
                document["libraries"] |= found.pop("libraries", {})
                before = best.get((name, number), found)
                best[name, number] = {key: min(value, before[key]) for key, value in found.items()}
    document["images"] = images
    document["rows"] = [{"name": name, "workers": number, **best[name, number]} for name, number in cases]
    tables.show(table(document))
    if output is not None:
        results.write(output, document)


def run(name: str, source: Path, dest: Path, workers: int, environments: Environments) -> Row:
    """Measure one writer in a process of its own."""
    if dest.is_dir():
        shutil.rmtree(dest)
    dest.unlink(missing_ok=True)
    if name in PEERS:
        program, variant = PEERS[name]
        options = [f"--variant={variant}", f"--workers={workers}"]
        command = environments.command(program, ["prepare", str(source), str(dest), *options])
    else:
        command = [sys.executable, str(_SCRIPT), name, str(source), str(dest), str(workers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)  # noqa: S603 - our own arguments
    found: Row = json.loads(done.stdout.splitlines()[-1])
    files = [dest] if dest.is_file() else [path for path in dest.rglob("*") if path.is_file()] if dest.exists() else []
    return found | {"n_bytes": sum(path.stat().st_size for path in files)}


def make_photos(dest: Path, folder: Path | None, n: int, height: int) -> Path:
    """Cut `n` different 4:3 images from photographs and store them as PNG in one class folder."""
    width = height * 4 // 3
    photos = [load(path) for path in (folder_set(folder) if folder else bundled_sets()[0]).files]
    photos = [photo[:, :, :3] for photo in photos if photo.ndim == 3 and photo.dtype == np.uint8]
    photos = [photo for photo in photos if photo.shape[0] >= height and photo.shape[1] >= width]
    if not photos:
        raise typer.BadParameter(f"{folder} must hold colour photographs of at least {width}x{height}; found none")
    (dest / "class-0").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(n):
        photo = photos[number % len(photos)]
        top, left = rng.integers(0, photo.shape[0] - height + 1), rng.integers(0, photo.shape[1] - width + 1)
        Image.fromarray(photo[top : top + height, left : left + width]).save(dest / "class-0" / f"{number:06d}.png")
    return dest


if __name__ == "__main__":
    typer.run(main)
