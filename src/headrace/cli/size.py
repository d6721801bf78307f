# SPDX-License-Identifier: Apache-2.0
"""`headrace size`: how many cores, how fast a storage and how many offload workers a GPU needs, and at which price."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import _plan_known, _plan_tables
from headrace.cli.plan import PLAN, RecipeOptions, known_or_measured, parse_formats, prepare_output
from headrace.cli.shared import options as _options
from headrace.cli.shared.output import FAILED, INTERRUPTED, fail, say
from headrace.errors import HeadraceError
from headrace.units import parse_bytes, parse_rate

if TYPE_CHECKING:
    from headrace.cli._plan_known import Known
    from headrace.planning import MachineGrid, Sizing


def size(
    source: Annotated[str | None, _options.SOURCE_OR_DATASET] = None,
    cores: Annotated[str, typer.Option(help="Cores per GPU: a range (2..96) or a list (4,8,16).")] = "1..32",
    storage: Annotated[str, typer.Option(help="Storage rates: a range or a list.")] = "0.2..8GB/s",
    step_ms: Annotated[
        str | None,
        typer.Option(
            help="Milliseconds of the GPU per batch: a number, a range or a list. Default: the plan's or the report's.",
            show_default=False,
        ),
    ] = None,
    offload_workers: Annotated[str, typer.Option(help="Offload workers per GPU: a number or a list (0,1,2).")] = "0",
    offload_ms: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            help="Milliseconds that one offload worker takes per batch. Default: one core, as measured.",
            show_default=False,
        ),
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(
            metavar="PRICES",
            help="Prices: vcpu-hour=0.04 and, after commas, accelerator-hour=2.5, gb-month=0.1, offload-hour=0.1.",
            show_default=False,
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(help="A plan whose costs are used: nothing is measured.", show_default="plan.json if it exists"),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="A profile's report whose costs are used: nothing is measured."),
    ] = None,
    disk_budget: Annotated[
        str | None, typer.Option(help="Bytes that the images may take in total, as 500GB.", show_default=False)
    ] = None,
    recipe: _options.Recipe = None,
    crop: _options.Crop = None,
    batch_size: _options.BatchSize = None,
    formats: Annotated[
        str | None, typer.Option(help="Only these formats, as hri:fast,raw.", show_default="all lossless")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure fewer images and repeats; less exact.")] = False,
    workdir: _options.Workdir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all machines as JSON instead of the table.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write all machines to this JSON file.")
    ] = None,
) -> None:
    """Find the cheapest machine that keeps a GPU busy with your images.

    The costs per image are measured once, by `headrace plan` or here. For each
    combination of cores, storage and offload workers the best mix of formats is
    planned; nothing more is measured. One row is shown for each step time: the
    cheapest machine with which the GPU works at least 95 % of the time. Without
    prices it is the smallest.

    How many cores does a GPU need that takes 35 ms per batch?

    \b
    headrace plan photos --step-ms 35
    headrace size --cores 2..96

    At which price, for faster and slower models?

    \b
    headrace size --step-ms 5..200 --storage 0.2..8GB/s \\
        --price vcpu-hour=0.04,accelerator-hour=2.5,gb-month=0.1

    With 4 cores, how many offload workers that take 400 ms per batch?

    \b
    headrace size --cores 4 --storage 2GB/s --offload-workers 0,1,2,4,8 --offload-ms 400
    """
    from headrace import planning  # noqa: PLC0415 - brings the loader, which other verbs do not need

    wanted = None if formats is None else parse_formats(formats)
    try:
        budget = None if disk_budget is None else parse_bytes(disk_budget)
        prices = planning.parse_prices(price or "")
        if output is not None:
            prepare_output(output)
        planning.find_solver()
        if source is None and calibration is None and report is None and PLAN.exists():
            calibration = PLAN
        known = _plan_known.find_known(calibration, report)
        grid = _grid(cores, storage, step_ms, offload_workers, known)
        options = RecipeOptions(recipe, crop, batch_size)
        found = known_or_measured(known, source, report, options, formats=wanted, quick=quick, workdir=workdir)
        sizing = planning.size_machines(
            found,
            grid,
            prices,
            machine=planning.Machine(cores=1, trainer_cores=known.trainer_cores),
            offload_seconds=None if offload_ms is None else offload_ms / 1e3,
            disk_budget=budget,
            formats=wanted,
        )
        if output is not None:
            sizing.save(output)
    except KeyboardInterrupt:
        typer.echo("interrupted; nothing was written", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except (HeadraceError, OSError, ValueError) as error:
        fail(error)
        raise typer.Exit(FAILED) from None
    if as_json:
        typer.echo(json.dumps(sizing.to_json(), indent=1, allow_nan=False))
    elif not quiet:
        _show(sizing, output)


def _grid(cores: str, storage: str, step_ms: str | None, offload_workers: str, known: Known) -> MachineGrid:
    from headrace import planning  # noqa: PLC0415

    if step_ms is None and not known.step:
        raise typer.BadParameter("the time of a training step is not known: give --step-ms, as in --step-ms 35")
    steps = (known.step,) if step_ms is None else tuple(each / 1e3 for each in planning.parse_values(step_ms))
    workers = planning.parse_values(offload_workers)
    if any(each != int(each) for each in workers):
        raise typer.BadParameter(f"--offload-workers must be whole numbers; got {offload_workers!r}")
    return planning.MachineGrid(
        cores=planning.parse_values(cores, whole=True),
        storage_rates=planning.parse_values(storage, parse_rate),
        steps=steps,
        offload_workers=tuple(map(int, workers)),
    )


def _show(sizing: Sizing, output: Path | None) -> None:
    _plan_tables.print_table(_plan_tables.sizing_table(sizing))
    for line in _plan_tables.sizing_notes(sizing):
        typer.echo(line)
    if output is not None:
        count = len(sizing.machines)
        say(f"wrote {count} machine{'' if count == 1 else 's'} to {output}")
