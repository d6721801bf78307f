# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite files that exist already.")]
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        "-j",
        min=0,
        help="Number of files to process in parallel (default: one per core).",
        show_default=False,
    ),
]
MaxPixels = Annotated[int, typer.Option("--max-pixels", min=1, help="Refuse images with more pixels than this number.")]
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
    typer.Option(
        min=1, help="Side of the random crop in pixels, if there is no --recipe (default 224).", show_default="224"
    ),
]
BatchSize = Annotated[
    int | None, typer.Option(min=1, help="Number of images per batch (default 64).", show_default="64")
]
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
