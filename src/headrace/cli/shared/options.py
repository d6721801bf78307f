# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs share, and how their values are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.units import parse_bytes

Dataset = Annotated[Path, typer.Argument(help="Folder of the dataset.", show_default=False)]
Files = Annotated[list[str], typer.Argument(help="Files, folders, or glob patterns in quotes.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite files that exist already.")]
Workers = Annotated[
    int, typer.Option("--workers", "-j", min=0, help="Number of parallel workers; 0 means one per core.")
]
MaxPixels = Annotated[int, typer.Option("--max-pixels", min=1, help="Refuse images with more pixels than this.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Output folder, created if needed, with the folder structure of the inputs; or a file name, for a single "
        "input. By default each output file is next to its input.",
        show_default=False,
    ),
]

# Shared by `plan` and `profile`, which measure the same things.
SOURCE_OR_DATASET = typer.Argument(
    metavar="SOURCE_OR_DATASET", help="A dataset, or a folder or file to import.", show_default=False
)
Recipe = Annotated[
    Path | None,
    typer.Option(help="JSON file that describes how samples become batches (`loader.recipe`).", show_default=False),
]
Crop = Annotated[
    int | None,
    typer.Option(min=1, help="Side of the random crop in pixels, if there is no --recipe.", show_default="224"),
]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Number of images per batch.", show_default="64")]
Emulate = Annotated[
    str | None, typer.Option(help="Emulate a slower machine, as in storage=200MB/s,cores=2.", show_default=False)
]
Workdir = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        file_okay=False,
        help="Folder for temporary files: a few images in other formats.",
        show_default=False,
    ),
]


def parse_size(text: str) -> int:
    """Read a size of at least 1 byte, such as 256MiB, from the command line."""
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if size < 1:
        raise typer.BadParameter(f"a size must be at least 1 byte; got {text!r}")
    return size
