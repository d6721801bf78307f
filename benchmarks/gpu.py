# SPDX-License-Identifier: Apache-2.0
"""Verify and measure decoding on an accelerator: `python benchmarks/gpu.py [FOLDER]`, `--help` for more.

First the device's pixels are compared with the CPU's; if any differ, nothing is measured. Then our kernels, our copy,
both with the host's work, and loaders are timed, and NVIDIA's decoders on the same pictures where they are installed:
`pip install nvidia-nvimgcodec-cu12[all] nvidia-dali-cuda120`. Without an accelerator, `--device cpu` verifies alone.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import typer

from benchmarks import machine, results
from benchmarks._gpu import peers
from benchmarks._gpu.measure import best_seconds, loader_rows, our_rows, row
from benchmarks._gpu.pictures import from_folder, made_here
from benchmarks._gpu.verify import verify, write_dataset
from benchmarks.tables import Table, figures, share

NO_DEVICE = 2
FOUND_WRONG = 1
# A picture of this size is quickly decoded without an accelerator too.
_SMALL = (48, 72)


def main(
    folder: Annotated[Path | None, typer.Argument(help="Images; without a folder they are made here.")] = None,
    *,
    device: Annotated[str, typer.Option(help="A device of PyTorch's; cpu verifies and measures nothing.")] = "cuda",
    images: Annotated[int, typer.Option(min=1, help="How many images are one batch.")] = 64,
    height: Annotated[int, typer.Option(min=1, help="Of the images that are made here.")] = 1024,
    width: Annotated[int, typer.Option(min=1, help="Of the images that are made here.")] = 2048,
    rounds: Annotated[int, typer.Option(min=1, help="The best of so many is told.")] = 10,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results as JSON.")] = None,
) -> None:
    """Verify decoding on a device against the CPU, then measure it beside its peers."""
    on_cpu = torch.device(device).type == "cpu"
    if not on_cpu and not torch.cuda.is_available():
        typer.echo("PyTorch finds no accelerator here, so nothing is measured; `--device cpu` verifies without one.")
        raise typer.Exit(NO_DEVICE)
    size = _SMALL if on_cpu else (height, width)
    pictures = made_here(images, *size) if folder is None else from_folder(folder, images)
    document: dict[str, Any] = {
        "benchmark": "gpu",
        "device": "cpu" if on_cpu else torch.cuda.get_device_name(device),
        "machine": machine.describe(),
        "commit": machine.commit(),
        "libraries": machine.library_versions(("headrace", "torch", "triton", "kvikio", *peers.PACKAGES)),
        "images": [list(picture.shape) for picture in pictures],
    }
    try:
        # A few are as good as all to find a difference, and make the gate quick.
        document["verified"] = verify(pictures[:8], device)
    except AssertionError as error:
        typer.echo(f"WRONG: {error}. Nothing is measured.")
        raise typer.Exit(FOUND_WRONG) from None
    for line in document["verified"]:
        typer.echo(f"verified: {line}")
    if not on_cpu:
        document |= _measured(pictures, device, rounds)
    if output is not None:
        results.write(output, document)


def _measured(pictures: list[Any], device: str, rounds: int) -> dict[str, Any]:
    told: list[str] = []
    rows = list(our_rows(pictures, device, rounds))
    for name, form, n_bytes, call in peers.calls(pictures, len(machine.usable_cores()), told.append):
        rows.append(row(name, form, pictures, n_bytes, best_seconds(call, rounds), ending="uint8"))
    loaders = []
    with tempfile.TemporaryDirectory() as folder:
        for form in ("hri:fast", "hri:dense"):
            path = write_dataset(Path(folder) / f"{form.replace(':', '-')}.hr", pictures, (form,))
            loaders += loader_rows(path, form, device, epochs=3, batch_size=min(32, len(pictures)))
    for table in tables(rows, loaders):
        typer.echo(f"\n{table.markdown()}")
    for line in told:
        typer.echo(line)
    return {"rows": rows, "loaders": loaders, "left_out": told}


def tables(rows: list[dict[str, Any]], loaders: list[dict[str, Any]]) -> list[Table]:
    """The results as they are shown."""
    cells = [
        [
            f"{each['decoder']}, {each['format']}, {each['ending']}",
            figures(each["images_per_second"]),
            figures(each["pixel_gigabytes_per_second"]),
            figures(each["encoded_gigabytes_per_second"]),
            share(each["of_raw"]),
        ]
        for each in rows
    ]
    lines = [[f"{each['loader']}, {each['format']}", figures(each["images_per_second"])] for each in loaders]
    return [
        Table(("decoder", "images/s", "GB/s of pixels", "GB/s encoded", "of raw"), cells),
        Table(("loader, crops of 224", "images/s"), lines),
    ]


if __name__ == "__main__":
    typer.run(main)
