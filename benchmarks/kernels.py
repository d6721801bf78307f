# SPDX-License-Identifier: Apache-2.0
"""Compile every kernel ahead of time and compute its ceiling: `python benchmarks/kernels.py [IMAGES]`.

Needs no GPU. Every kernel is compiled for every target; a kernel of the fast path that spills registers is an error.
`make kernels` runs this part. The code, a batch of real images and published peaks give a ceiling for an A100 and an
H100. It is computed, not measured: benchmarks/gpu.py measures a real GPU.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    os.environ["TRITON_INTERPRET"] = "0"  # interpreted kernels cannot be compiled

import typer
from rich.console import Console

import headrace
from benchmarks import machine, results
from benchmarks._codec.images import ImageSet, bundled_sets, folder_set, load
from benchmarks._kernels import report
from benchmarks._kernels.compiling import compile_all, spilled
from benchmarks._kernels.roofline import DEVICES, RATES, RATES_SOURCE, ceiling
from benchmarks._kernels.variants import TARGETS
from benchmarks._kernels.workload import read_batch, work_of

MODES, DTYPES = ("fast", "dense"), ("uint8", "float32")


def main(
    images: Annotated[
        Path | None, typer.Argument(help="Folder of 8-bit color images (default: the images of scikit-image).")
    ] = None,
    *,
    check: Annotated[bool, typer.Option(help="Only compile; fail if the fast path spills registers.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Compiler processes (default: one per core).")] = len(
        machine.usable_cores()
    ),
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results to this JSON file.")] = None,
) -> None:
    """Compile every kernel for every target, and compute the ceilings."""
    console = Console()
    os.environ.setdefault("TRITON_CACHE_DIR", str(machine.ROOT / "build" / "triton"))
    compiled = list(compile_all(list(TARGETS), jobs))
    document: dict[str, Any] = {
        "benchmark": "kernels",
        "version": 1,
        "status": report.NOT_RUN,
        "command": f"python benchmarks/kernels.py {images.resolve().name if images else ''}".rstrip(),
        "machine": machine.describe(),
        "libraries": machine.library_versions(("torch", "triton")),
        "commit": machine.commit(),
        "targets": list(TARGETS),
        "kernels": [each.row() for each in compiled],
    }
    for table in report.compile_tables(document):
        console.print(table.rich())
    if bad := spilled(compiled):
        console.print(f"[bold red]error:[/] registers are spilled by {', '.join(bad)}")
        raise typer.Exit(1)
    if check:
        return
    chosen = bundled_sets()[0] if images is None else folder_set(images)
    document |= {"images": {"name": chosen.name, "sha256": chosen.sha256(), "count": len(chosen.files)}}
    document |= {"rates": RATES, "rates_source": RATES_SOURCE, "ceilings": []}
    listings = {(each.target, each.name): (each.listing, each.warps) for each in compiled}
    for mode in MODES:
        batch = read_batch(_encoded(chosen, mode))
        for dtype in DTYPES:
            for device in DEVICES:
                own = {name: listing for (target, name), listing in listings.items() if target == device.target}
                found = ceiling(device, batch, work_of(batch, mode, dtype), own)
                document["ceilings"].append({"mode": mode, "dtype": dtype} | found)
    console.print(report.ceiling_table(document).rich())
    for mode in MODES:
        console.print(report.arithmetic(document, mode), highlight=False)
    if output is not None:
        results.write(output, document)


def _encoded(images: ImageSet, mode: str) -> list[bytes]:
    """The images of a set that are RGB of 8 bits, encoded."""
    pictures = [load(file) for file in images.files]
    chosen = [pixels for pixels in pictures if pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.dtype.itemsize == 1]
    if not chosen:
        raise typer.BadParameter(f"{images.name} must contain 8-bit RGB images; found none")
    return [headrace.encode(pixels, mode=mode) for pixels in chosen]


if __name__ == "__main__":
    typer.run(main)
