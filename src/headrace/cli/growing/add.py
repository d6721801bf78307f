# SPDX-License-Identifier: Apache-2.0
"""`headrace add`: more samples for a dataset."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from headrace.cli.build import Kind, progress_hook
from headrace.cli.growing._shared import Growing, show_report
from headrace.cli.shared.options import Json, Quiet, Workers, parse_size
from headrace.cli.shared.output import exit_on_error, shown_progress


def add(
    dataset: Growing,
    source: Annotated[str, typer.Argument(help="A folder, a file, a glob pattern in quotes, or a dataset.")],
    kind: Annotated[Kind, typer.Option("--from", help="Layout of the source; auto detects it.")] = "auto",
    format_name: Annotated[
        str | None, typer.Option("--format", help="Format of the images.", show_default="as the dataset was built")
    ] = None,
    existing: Annotated[
        Literal["raise", "skip"],
        typer.Option(help="If the dataset has samples of the source already: raise stops, skip adds only the others."),
    ] = "raise",
    workers: Workers = 0,
    shard_size: Annotated[
        str, typer.Option(help="Start a new shard after this many bytes of the source, such as 256MiB or 1GB.")
    ] = "256MiB",
    on_error: Annotated[
        Literal["raise", "skip"],
        typer.Option(help="What to do if a sample cannot be stored: raise stops, skip omits the sample."),
    ] = "raise",
    split: Annotated[str | None, typer.Option(help="Add only this split, such as train.", show_default="all")] = None,
    mask_suffix: Annotated[
        str | None,
        typer.Option(help="Text that mask names have after the image name, such as _mask.", show_default="detected"),
    ] = None,
    verify: Annotated[bool, typer.Option(help="Decode each image after encoding and compare the pixels.")] = True,
    resume: Annotated[bool, typer.Option(help="Continue an interrupted addition instead of starting again.")] = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Add samples to a dataset, as a new version.

    Only the new samples are written. Programs that read the dataset are not
    affected; earlier versions stay, as DATASET@v1. The source must have the
    fields of the dataset. Labels are matched by the names of the classes.

    An interrupted addition continues when the same command is run again.

    \b
    headrace add photos.hr more-photos
    headrace add photos.hr photos --existing skip      what is new in a folder
    headrace log photos.hr
    """
    from headrace.building import growing  # noqa: PLC0415 - imports pyarrow, which other verbs do not need

    size = parse_size(shard_size)
    with (
        exit_on_error("interrupted; finished shards are kept: run the same command again to continue"),
        shown_progress(quiet=quiet) as update,
    ):
        report = growing.add(
            dataset,
            source,
            kind=kind,
            format=format_name,
            existing=existing,
            workers=workers or None,
            resume=resume,
            verify=verify,
            on_error=on_error,
            split=split,
            mask_suffix=mask_suffix,
            shard_size=size,
            progress=None if quiet else progress_hook(update),
        )
    show_report(report, "added", as_json=as_json, quiet=quiet)
