# SPDX-License-Identifier: Apache-2.0
"""`headrace verify`: check every byte of a dataset against its checksums."""

from __future__ import annotations

import dataclasses
import json

import typer

from headrace.cli.shared import options
from headrace.cli.shared.output import FAILED, counted, exit_on_error, say
from headrace.units import bytes_per_second_text, bytes_text

_MAX_SHOWN = 100


def verify(
    dataset: options.Dataset,
    workers: options.Workers = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Check every byte of a dataset against its checksums.

    Each damaged sample is reported by its key. Damage outside of any sample is
    reported by file and offset. If anything is damaged, the exit code is 1.

    \b
    headrace verify photos.hr
    headrace verify photos.hr --json | jq '.problems[].key'
    """
    from headrace import records  # noqa: PLC0415 - imports pyarrow, which other verbs do not need

    with exit_on_error():
        report = records.verify(dataset, workers=workers or None)
    if as_json:
        typer.echo(json.dumps({"ok": report.ok, **dataclasses.asdict(report)}))
    else:
        for problem in report.problems[:_MAX_SHOWN]:
            say(f"damaged {problem}", err=True)
        if len(report.problems) > _MAX_SHOWN:
            say(f"{len(report.problems) - _MAX_SHOWN} more are not shown; --json prints all", err=True)
    if not report.ok:
        say(
            f"{counted(len(report.problems), 'problem')} in {dataset}; restore the damaged files, or build the "
            "dataset again",
            err=True,
        )
        raise typer.Exit(FAILED)
    if not quiet and not as_json:
        say(
            f"{dataset} is intact: {counted(report.samples, 'sample')}, {bytes_text(report.n_bytes)} checked in "
            f"{report.seconds:.1f} s ({bytes_per_second_text(report.n_bytes / max(report.seconds, 1e-9))})"
        )
