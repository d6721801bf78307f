# SPDX-License-Identifier: Apache-2.0
"""What the verbs for versions share: which samples are meant, and how the result is printed."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.shared.output import counted, say
from headrace.files import read_file
from headrace.units import bytes_text

if TYPE_CHECKING:
    from headrace.building.growing import VersionReport

Growing = Annotated[Path, typer.Argument(help="Folder of the dataset; its newest version is used.", show_default=False)]
Keys = Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", help="Keys of the samples.", show_default=False)]
KeyFile = Annotated[Path | None, typer.Option("--keys", help="Text file with one key per line.", show_default=False)]
Rows = Annotated[
    str | None,
    typer.Option(
        "--rows",
        help="Numbers of samples of the newest version, such as 7 or 100:200 or 0,5,10:20.",
        show_default=False,
    ),
]


_ROWS = re.compile(r"\d*:\d*|\d+(:\d+)?(,\d+(:\d+)?)*")


def chosen_samples(keys: list[str] | None, key_file: Path | None, rows: str | None) -> list[str] | list[int] | slice:
    """Return the samples that the options name, for `headrace.drop` and `headrace.relabel`."""
    if sum(bool(each) for each in (keys, key_file, rows)) != 1:
        raise typer.BadParameter("name the samples in one way: by KEY, with --keys FILE or with --rows")
    if rows:
        return parse_rows(rows)
    if key_file is None:
        return keys or []
    listed = [line for line in read_file(key_file).decode().splitlines() if line]
    if not listed:
        raise typer.BadParameter(f"{key_file} must have one key per line; it is empty", param_hint="--keys")
    return listed


def parse_rows(text: str) -> list[int] | slice:
    """Read `0,5,10:20`. A single range may be open, as in `100:`."""
    if not _ROWS.fullmatch(text):
        raise typer.BadParameter(
            f"rows must be numbers and ranges, such as 0,5,10:20, or one open range, as in 100:; got {text!r}",
            param_hint="--rows",
        )
    pieces = [[int(number) if number else None for number in piece.split(":")] for piece in text.split(",")]
    if len(pieces) == 1 and len(pieces[0]) == 2:
        return slice(*pieces[0])
    numbers: list[int] = []
    for first, *more in pieces:
        numbers += range(first or 0, more[0] or 0) if more else [first or 0]
    return numbers


def show_report(report: VersionReport, verb: str, *, as_json: bool, quiet: bool) -> None:
    """Print what a change has made."""
    if as_json:
        described: dict[str, Any] = {**dataclasses.asdict(report), "path": str(report.path), "address": report.address}
        typer.echo(json.dumps(described))
    elif not quiet and report.was_finished:
        say(f"nothing to do: {report.path} has all samples; its newest version is {report.version}")
    elif not quiet:
        say(
            f"{verb} {counted(report.changed, 'sample')}: {report.address} has {counted(report.samples, 'sample')}; "
            f"{bytes_text(report.n_bytes)} written"
        )
