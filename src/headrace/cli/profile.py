# SPDX-License-Identifier: Apache-2.0
"""`headrace profile`: what limits the training, and what would make it faster."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.shared import options as _options
from headrace.cli.shared.output import FAILED, INTERRUPTED, fail, say
from headrace.errors import HeadraceError, MissingExtra, ProfileError


def profile(
    source: Annotated[Path, _options.SOURCE_OR_DATASET],
    recipe: _options.Recipe = None,
    crop: _options.Crop = None,
    batch_size: _options.BatchSize = None,
    step_ms: Annotated[
        float | None, typer.Option(min=0.001, help="What a training step takes, in milliseconds.", show_default=False)
    ] = None,
    train: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION", help="The training step itself, a function of a batch.", show_default=False
        ),
    ] = None,
    cold: Annotated[bool, typer.Option("--cold", help="Read from storage, not from memory.")] = False,
    cores: Annotated[str | None, typer.Option(help="Numbers of cores, as 1,2,4.", show_default="one to all")] = None,
    emulate: _options.Emulate = None,
    quick: Annotated[bool, typer.Option("--quick", help="End within a minute.")] = False,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="Measure for about this many seconds.", show_default="150")
    ] = None,
    watts: Annotated[
        float, typer.Option(min=0.0, help="What a busy core draws, in watts, where no counter can be read.")
    ] = 10.0,
    workdir: _options.Workdir = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", file_okay=False, help="A folder for report.json and index.html.", show_default=False
        ),
    ] = None,
) -> None:
    """Measure what limits a training run, stage by stage, and what would make it faster.

    Needs no root, and changes nothing. Say how long a training step takes, or
    which function does it, to learn whether the trainer waits for data. Ctrl-C
    ends it with what was measured so far, without a verdict on what was not;
    the exit code is then 130. The last line names the next command.

    \b
    headrace profile photos --step-ms 35                  a folder of images
    headrace profile photos.hr --quick -o report          a dataset; an HTML page
    headrace profile photos --train mymodel.train:step    with the training itself
    headrace profile photos.hr --emulate storage=200MB/s,cores=2
    """
    from headrace import profiling  # noqa: PLC0415 - brings the loader, which other verbs do not need

    if step_ms is not None and train is not None:
        raise typer.BadParameter("give --step-ms or --train: both say how long a step takes")
    step: Any = None if step_ms is None else step_ms / 1e3
    counts = None if cores is None else parse_cores(cores)
    try:
        if train is not None:
            step = load_function(train)
        _check_first(output)
        with profiling.shown() as hook:
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
        report.show()
        if output is not None:
            report.save(output)
            say(f"written {output / 'index.html'} and report.json beside it")
        following = report.next_step(output)
        say(f"next: {following}" if following else "next: nothing; no change to the loader would gain much")
        if report.measurements.interrupted:
            typer.echo("interrupted: the report holds what was measured until then", err=True)
            raise typer.Exit(INTERRUPTED)
    except KeyboardInterrupt:
        typer.echo("interrupted; nothing was written", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except (HeadraceError, OSError, ValueError) as error:
        fail(error)
        raise typer.Exit(FAILED) from None


def _check_first(output: Path | None) -> None:
    """Find out before the measurements what would otherwise fail, or be missing, after them."""
    from headrace import planning, profiling  # noqa: PLC0415

    if output is not None:
        profiling.Report.require_extras()
        output.mkdir(parents=True, exist_ok=True)
        if not os.access(output, os.W_OK | os.X_OK):
            raise ProfileError(f"the report's folder must be writable; {output} is not: name another one with -o")
    try:
        planning.find_solver()
    except MissingExtra as error:
        typer.echo(f"no mix of formats will be looked for: {error}", err=True)


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

    What it raises on a batch becomes a ProfileError that says where: the profile has no other way to go on.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise typer.BadParameter(f"{name!r} names no function; write package.module:function")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise typer.BadParameter(f"{name!r} cannot be imported: {error}") from None
    if not callable(found):
        raise typer.BadParameter(f"{name} is a {type(found).__name__} and cannot be called with a batch")

    def step(batch: Any) -> Any:
        try:
            return found(batch)
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            raise ProfileError(
                f"{name} raised {type(error).__name__}: {error} ({at.filename}, line {at.lineno})"
            ) from error

    return step
