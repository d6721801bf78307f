# SPDX-License-Identifier: Apache-2.0
"""`headrace log`: the versions of a dataset."""

from __future__ import annotations

import dataclasses
import json
import time

import typer

from headrace.cli.shared import options
from headrace.cli.shared.output import FAILED, cell, counted, exit_on_error
from headrace.units import bytes_text


def log(dataset: options.Dataset, as_json: options.Json = False) -> None:
    """List the versions of a dataset, the oldest first.

    Each version can be used wherever a dataset can, as DATASET@v2.

    \b
    headrace log photos.hr
    headrace info photos.hr@v2
    headrace log photos.hr --json | jq '.[].samples'
    """
    from headrace.building import growing  # noqa: PLC0415 - imports pyarrow, which other verbs do not need

    with exit_on_error():
        entries = growing.log(dataset)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(entry) for entry in entries]))
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import
    from rich.table import Table  # noqa: PLC0415 - slow to import

    table = Table("version", "written", "change", "samples", "size", "fingerprint", box=None)
    for entry in entries:
        written = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.seconds))
        if entry.problem:
            table.add_row(cell(entry.address), written, cell(f"cannot be opened: {entry.problem}"), "", "", "")
            continue
        where = f" ({entry.source})" if entry.source else ""
        table.add_row(
            cell(entry.address),
            written,
            cell(f"{entry.action} {counted(entry.changed, 'sample')}{where}"),
            str(entry.samples),
            bytes_text(entry.n_bytes),
            entry.fingerprint[:12],
        )
    console = Console()
    if not console.is_terminal:
        console = Console(width=1000)  # in a pipe or file, nothing is cut off
    console.print(table)
    if any(entry.problem for entry in entries):
        raise typer.Exit(FAILED)
