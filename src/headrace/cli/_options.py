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
