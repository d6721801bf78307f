# SPDX-License-Identifier: Apache-2.0
"""The options that several verbs share, each with its words in one place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Force = Annotated[bool, typer.Option("--force", "-f", help="Replace files that exist already.")]
Workers = Annotated[
    int, typer.Option("--workers", "-j", min=0, help="Files worked on at a time; 0 for one a core.", show_default=False)
]
MaxPixels = Annotated[int, typer.Option("--max-pixels", min=1, help="Refuse images with more pixels than this.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="A folder, made if need be, in which the inputs' folders are repeated; or a file, for a single input. "
        "By default each result lies beside its input.",
        show_default=False,
    ),
]

# Of `plan` and `profile`, which measure the same things.
SOURCE_OR_DATASET = typer.Argument(
    metavar="SOURCE_OR_DATASET", help="A dataset, or a folder or file to import.", show_default=False
)
Recipe = Annotated[
    Path | None, typer.Option(help="How samples become batches, as a loader gives it.", show_default=False)
]
Crop = Annotated[
    int | None,
    typer.Option(min=1, help="Edge of a random crop, without a recipe.", show_default="224"),
]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Images in a batch.", show_default="64")]
Emulate = Annotated[str | None, typer.Option(help="Another machine: storage=200MB/s,cores=2.", show_default=False)]
Workdir = Annotated[
    Path | None,
    typer.Option(
        exists=True, file_okay=False, help="For a few images in other formats, meanwhile.", show_default=False
    ),
]
