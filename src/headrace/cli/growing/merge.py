# SPDX-License-Identifier: Apache-2.0
"""`headrace merge`: one new dataset from several."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.build import progress_hook
from headrace.cli.shared.options import Json, Quiet
from headrace.cli.shared.output import counted, exit_on_error, say, shown_progress
from headrace.units import bytes_text


def merge(
    datasets: Annotated[
        list[str], typer.Argument(help="Datasets, or versions as in photos.hr@v3.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the new dataset.", show_default=False)],
    resume: Annotated[bool, typer.Option(help="Continue an interrupted merge instead of starting again.")] = True,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Replace the dataset at --output if it is finished.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make one dataset of several, without encoding images again.

    The datasets must have the same fields. Labels are matched by the names of
    the classes. Dropped samples are not copied: to give a dataset that has
    grown or shrunk a compact form, merge it alone.

    An interrupted merge continues when the same command is run again.

    \b
    headrace merge spring.hr autumn.hr -o year.hr
    headrace merge photos.hr -o compact.hr
    """
    from headrace.building import growing  # noqa: PLC0415 - imports pyarrow, which other verbs do not need

    with (
        exit_on_error("interrupted; finished shards are kept: run the same command again to continue"),
        shown_progress(quiet=quiet) as update,
    ):
        report = growing.merge(
            datasets, output, resume=resume, force=force, progress=None if quiet else progress_hook(update)
        )
    if as_json:
        typer.echo(json.dumps({**dataclasses.asdict(report), "path": str(report.path)}))
    elif not quiet and report.was_finished:
        say(f"nothing to do: {report.path} is already merged from these datasets")
    elif not quiet:
        say(
            f"merged {counted(len(datasets), 'dataset')}: {report.path} has {counted(report.samples, 'sample')} in "
            f"{counted(report.shards, 'shard')}, {bytes_text(report.n_bytes)}"
        )
