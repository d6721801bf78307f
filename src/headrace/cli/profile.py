# SPDX-License-Identifier: Apache-2.0
"""`headrace profile`: find what limits training, and what would make it faster."""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.shared import options as _options
from headrace.cli.shared.output import INTERRUPTED, exit_on_error, say
from headrace.errors import MissingExtra, ProfileError

if TYPE_CHECKING:
    from headrace.profiling import Report


def profile(
    source: Annotated[Path, _options.SOURCE_OR_DATASET],
    recipe: _options.Recipe = None,
    crop: _options.Crop = None,
    batch_size: _options.BatchSize = None,
    step_ms: Annotated[
        float | None, typer.Option(min=0.001, help="Milliseconds of a training step per batch.", show_default=False)
    ] = None,
    train: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Call this function with each batch as the training step, instead of --step-ms.",
            show_default=False,
        ),
    ] = None,
    cold: Annotated[
        bool, typer.Option("--cold", help="Read from storage: evict pages from the page cache, or bypass it.")
    ] = False,
    cores: Annotated[
        str | None,
        typer.Option(
            help="Measure stages with these numbers of cores, as in 1,2,4 (default: 1 to all).", show_default=False
        ),
    ] = None,
    emulate: _options.Emulate = None,
    quick: Annotated[bool, typer.Option("--quick", help="Finish within a minute.")] = False,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="Measure for about this many seconds.", show_default="150")
    ] = None,
    watts: Annotated[
        float,
        typer.Option(min=0.0, help="Power of a busy core in watts, to estimate energy if no counter can be read."),
    ] = 10.0,
    workdir: _options.Workdir = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            file_okay=False,
            help="Write report.json and the page index.html to this folder.",
            show_default=False,
        ),
    ] = None,
    as_json: _options.Json = False,
    quiet: _options.Quiet = False,
) -> None:
    """Measure what limits a training run, stage by stage, and what would make it faster.

    Needs no root and changes nothing. Give the time of a training step, or the
    function itself, to find out whether the trainer waits for data. Ctrl-C ends
    the profile with the results so far and exit code 130. The last line names
    the next command.

    \b
    headrace profile photos --step-ms 35                  a folder of images
    headrace profile photos.hr --quick -o report          a dataset; an HTML page
    headrace profile photos --train mymodel.train:step    with the training itself
    headrace profile photos.hr --emulate storage=200MB/s,cores=2
    """
    from headrace import profiling  # noqa: PLC0415 - imports the loader, which other verbs do not need

    if step_ms is not None and train is not None:
        raise typer.BadParameter("--step-ms and --train exclude each other: give one of them")
    step: Any = None if step_ms is None else step_ms / 1e3
    counts = None if cores is None else parse_cores(cores)
    with exit_on_error("interrupted; nothing was written"):
        if train is not None:
            step = load_function(train)
        _check_first(output)
        with nullcontext() if quiet else profiling.shown() as hook:
            report = profiling.profile(
                source,
                step,
                recipe=recipe,
                crop=crop,
                batch_size=batch_size,
                cold=cold,
                cores=counts,
                emulate=emulate,
                quick=quick,
                seconds=seconds,
                watts=watts,
                workdir=workdir,
                progress=hook,
            )
        if output is not None:
            report.save(output)
        if as_json:
            typer.echo(json.dumps(report.to_json(), indent=1, allow_nan=False))
        elif not quiet:
            _show(report, output)
        if report.measurements.interrupted:
            typer.echo("interrupted: the report has the results so far", err=True)
            raise typer.Exit(INTERRUPTED)


def _show(report: Report, output: Path | None) -> None:
    report.show()
    if output is not None:
        say(f"wrote {output / 'index.html'} and {output / 'report.json'}")
    following = report.next_step(output)
    say(f"next: {following}" if following else "next: nothing; no change to the loader would gain much")


def _check_first(output: Path | None) -> None:
    """Check before the measurements what would otherwise fail after them."""
    from headrace import planning, profiling  # noqa: PLC0415

    if output is not None:
        profiling.Report.require_extras()
        output.mkdir(parents=True, exist_ok=True)
        if not os.access(output, os.W_OK | os.X_OK):
            raise ProfileError(f"the report's folder must be writable; {output} is not: choose another one with -o")
    try:
        planning.find_solver()
    except MissingExtra as error:
        typer.echo(f"no mix of formats will be computed: {error}", err=True)


def parse_cores(text: str) -> list[int]:
    """Read `1,2,4`."""
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise typer.BadParameter(f"--cores must be a list of positive integers; got {text!r}; write 1,2,4")
    return counts


def load_function(name: str) -> Callable[[Any], Any]:
    """Import `package.module:function`; modules of the current folder are found too, as with `python -m`.

    Calls of it raise ProfileError with the file and line of the original error.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise typer.BadParameter(f"--train must be package.module:function; got {name!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise typer.BadParameter(f"--train {name!r} cannot be imported: {error}") from None
    if not callable(found):
        raise typer.BadParameter(f"--train must name a function of a batch; {name} is a {type(found).__name__}")

    def step(batch: Any) -> Any:
        try:
            return found(batch)
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            raise ProfileError(
                f"{name} raised {type(error).__name__}: {error} ({at.filename}, line {at.lineno})"
            ) from error

    return step
