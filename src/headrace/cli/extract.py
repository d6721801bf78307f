# SPDX-License-Identifier: Apache-2.0
"""`headrace extract`: the images of a dataset back to files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import _batch
from headrace.cli._say import fail, say
from headrace.errors import HeadraceError
from headrace.units import bytes_text


def extract(
    dataset: Annotated[Path, typer.Argument(help="The dataset's folder.", show_default=False)],
    output: Annotated[Path, typer.Argument(help="The folder to write to.", show_default=False)],
    field: Annotated[
        list[str] | None, typer.Option(help="An image or mask field; all by default.", show_default=False)
    ] = None,
    format_name: Annotated[
        str | None, typer.Option("--format", help="Which rendition, where there are several.", show_default=False)
    ] = None,
    start: Annotated[int, typer.Option(min=0, help="The first sample.")] = 0,
    count: Annotated[int | None, typer.Option(min=0, help="How many samples.", show_default=False)] = None,
) -> None:
    """Write the images of a dataset to files, as they are stored.

    Files are named after the samples' keys, always below the output folder.
    Nothing is overwritten.

    \b
    headrace extract photos.hr photos-again
    headrace extract photos.hr some --start 100 --count 10
    """
    from headrace import records  # noqa: PLC0415 - brings pyarrow, which other verbs do not need

    written = n_bytes = 0
    try:
        opened = records.open_dataset(dataset)
        stop = len(opened) if count is None else start + count
        view = opened.select(slice(start, stop))
        for path in records.extract(view, output, fields=field or None, format=format_name):
            written, n_bytes = written + 1, n_bytes + path.stat().st_size
    except (HeadraceError, OSError, KeyError, ValueError) as error:
        fail(error)
        raise typer.Exit(_batch.FAILED) from None
    say(f"extracted {written} images, {bytes_text(n_bytes)}, to {output}")
