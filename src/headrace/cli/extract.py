# SPDX-License-Identifier: Apache-2.0
"""`headrace extract`: write the images of a dataset to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.shared import options
from headrace.cli.shared.output import counted, exit_on_error, say
from headrace.units import bytes_text


def extract(
    dataset: options.Dataset,
    output: Annotated[Path, typer.Argument(help="Folder to write to, created if needed.", show_default=False)],
    field: Annotated[
        list[str] | None,
        typer.Option(help="Image or mask field to extract; may be repeated.", show_default="all"),
    ] = None,
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format", help="Format to extract, if the dataset stores each image in several.", show_default="the first"
        ),
    ] = None,
    start: Annotated[int, typer.Option(min=0, help="Number of the first sample to extract, counted from 0.")] = 0,
    count: Annotated[int | None, typer.Option(min=0, help="Number of samples to extract.", show_default="all")] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write the images of a dataset to files, exactly as they are stored.

    Files are named after the keys of the samples and are always inside the
    output folder. Existing files are not overwritten.

    \b
    headrace extract photos.hr photos-again
    headrace extract photos.hr some --start 100 --count 10
    """
    from headrace import records  # noqa: PLC0415 - imports pyarrow, which other verbs do not need

    files = n_bytes = 0
    with exit_on_error(f"interrupted; the files in {output} are complete"):
        opened = records.open_dataset(dataset)
        stop = len(opened) if count is None else start + count
        view = opened.select(slice(start, stop))
        for path in records.extract(view, output, fields=field or None, format=format_name):
            files, n_bytes = files + 1, n_bytes + path.stat().st_size
    if as_json:
        typer.echo(json.dumps({"path": str(output), "files": files, "bytes": n_bytes}))
    elif not quiet:
        say(f"extracted {counted(files, 'image')}, {bytes_text(n_bytes)}, to {output}")
