# SPDX-License-Identifier: Apache-2.0
"""`headrace verify`: every byte of a dataset against its checksums."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import _batch
from headrace.cli._say import fail, say
from headrace.units import bytes_text

_MOST_SHOWN = 100


def verify(
    dataset: Annotated[Path, typer.Argument(help="The dataset's folder.", show_default=False)],
    workers: Annotated[
        int, typer.Option("--workers", "-j", min=0, help="Shards read at a time; 0 for one a core.")
    ] = 0,
) -> None:
    """Check every byte of a dataset.

    Each damaged sample is named, and for bytes that belong to none the file
    and the offset. The exit code is 1 if anything is wrong.

    \b
    headrace verify photos.hr
    """
    from headrace import records  # noqa: PLC0415 - brings pyarrow, which other verbs do not need

    try:
        report = records.verify(dataset, workers=workers or None)
    except OSError as error:
        fail(error)
        raise typer.Exit(_batch.FAILED) from None
    for problem in report.problems[:_MOST_SHOWN]:
        say(f"damaged {problem}", err=True)
    if not report.ok:
        say(f"{len(report.problems)} problems in {dataset}; restore what is named, or build again", err=True)
        raise typer.Exit(_batch.FAILED)
    rate = report.n_bytes / max(report.seconds, 1e-9)
    say(
        f"{dataset} is whole: {report.samples} samples, {bytes_text(report.n_bytes)} checked in "
        f"{report.seconds:.1f} s ({bytes_text(rate)}/s)"
    )
