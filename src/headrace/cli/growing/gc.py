# SPDX-License-Identifier: Apache-2.0
"""`headrace gc`: remove what no version of a dataset needs."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from headrace.cli.growing._shared import Growing
from headrace.cli.shared.options import Json, Quiet
from headrace.cli.shared.output import counted, exit_on_error, say
from headrace.units import bytes_text


def gc(
    dataset: Growing,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Versions to keep, as in 3,5; the others are removed, except the newest. 'newest' keeps only that.",
            show_default="all",
        ),
    ] = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Also remove what an interrupted `headrace add` has written.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Show what would be removed, and stop.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Remove files that no version of a dataset needs.

    Without options all versions are kept. With --keep, other versions are
    removed first; a program that reads one of them gets an error. Nothing that
    a kept version needs is ever removed. Shards whose samples are dropped in
    all kept versions are removed.

    \b
    headrace gc photos.hr --dry-run
    headrace gc photos.hr --keep newest
    headrace gc photos.hr --keep 3,5
    """
    from headrace.building import growing  # noqa: PLC0415 - imports pyarrow, which other verbs do not need

    with exit_on_error():
        report = growing.collect_garbage(dataset, keep=_numbers(keep), unfinished=unfinished, dry_run=dry_run)
    if as_json:
        typer.echo(json.dumps({**dataclasses.asdict(report), "path": str(report.path)}))
    elif not quiet:
        for name in report.files if dry_run else ():
            say(name)
        say(
            f"{'would remove' if dry_run else 'removed'} {counted(len(report.versions), 'version')} and "
            f"{counted(len(report.files), 'file')}, {bytes_text(report.n_bytes)}; "
            f"{counted(len(report.kept), 'version')} of {report.path} kept: {', '.join(map(str, report.kept))}"
        )


def _numbers(text: str | None) -> list[int] | None:
    if text is None or text == "newest":
        return None if text is None else []
    try:
        return [int(part.strip().removeprefix("v")) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"keep must be numbers of versions, such as 3,5, or 'newest'; got {text!r}", param_hint="--keep"
        ) from None
