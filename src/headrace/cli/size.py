# SPDX-License-Identifier: Apache-2.0
"""`headrace size`: how many cores, how fast a storage and how many offload workers a GPU needs, and at which price."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.shared import costs
from headrace.cli.shared import options as shared
from headrace.cli.shared.output import counted, exit_on_error, say
from headrace.units import bytes_per_second_text, parse_bytes, parse_rate

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.planning import MachineGrid, SizedMachine, Sizing

_MAX_ROWS = 12


def size(
    source: Annotated[str | None, shared.SOURCE_OR_DATASET] = None,
    cores: Annotated[str, typer.Option(help="Cores per GPU: a range (2..96) or a list (4,8,16).")] = "1..32",
    storage: Annotated[
        str, typer.Option(help="Storage rates: a range (0.2..8GB/s) or a list (0.5,2GB/s).")
    ] = "0.2..8GB/s",
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
            help="Prices, as in vcpu-hour=0.04,accelerator-hour=2.5,gb-month=0.1,offload-hour=0.1. Others are 0.",
            show_default=False,
        ),
    ] = None,
    disk_budget: costs.DiskBudget = None,
    recipe: shared.Recipe = None,
    crop: shared.Crop = None,
    batch_size: shared.BatchSize = None,
    formats: costs.Formats = None,
    calibration: costs.CalibrationFile = None,
    report: costs.ReportFolder = None,
    quick: costs.Quick = False,
    workdir: shared.Workdir = None,
    as_json: shared.Json = False,
    quiet: shared.Quiet = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Also write all machines to this JSON file.", show_default=False),
    ] = None,
) -> None:
    """Find the cheapest machine that keeps a GPU busy with your images.

    The costs per image are measured once, by `headrace plan` or here. For each
    combination of cores, storage and offload workers the best mix of formats is
    planned; nothing more is measured. One row is shown for each step time: the
    cheapest machine with which the GPU works at least 95 % of the time. Without
    prices it is the smallest. Costs are read from plan.json if it exists and
    nothing else is named.

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

    names = costs.parse_formats(formats)
    if source is None and calibration is None and report is None and costs.PLAN.exists():
        calibration = costs.PLAN
    with exit_on_error("interrupted; nothing was written"):
        budget = None if disk_budget is None else parse_bytes(disk_budget)
        prices = planning.parse_prices(price or "")
        if output is not None:
            costs.prepare_output(output)
        planning.find_solver()
        known, _ = costs.find_costs(calibration, report, source)
        grid = _grid(cores, storage, step_ms, offload_workers, known.step)
        found = known.calibration
        if found is None:
            with costs.shown_steps(quiet=quiet) as hook:
                found = planning.calibrate(
                    source,
                    recipe=recipe,
                    crop=crop,
                    batch_size=batch_size,
                    formats=names,
                    quick=quick,
                    workdir=workdir,
                    progress=hook,
                )
        elif any(option is not None for option in (recipe, crop, batch_size)):
            raise typer.BadParameter(
                "the costs were measured with their own crop and batch size: omit --recipe, --crop and --batch-size"
            )
        trainer_cores = 0.0 if known.machine is None else known.machine.trainer_cores
        sizing = planning.size_machines(
            found,
            grid,
            prices,
            trainer_cores=trainer_cores,
            offload_seconds=None if offload_ms is None else offload_ms / 1e3,
            disk_budget=budget,
            formats=names,
        )
        if output is not None:
            sizing.save(output)
    if as_json:
        typer.echo(json.dumps(sizing.to_json(), indent=1, allow_nan=False))
    elif not quiet:
        _show(sizing, output)


def _grid(cores: str, storage: str, step_ms: str | None, offload_workers: str, known_step: float | None) -> MachineGrid:
    from headrace import planning  # noqa: PLC0415

    if step_ms is not None:
        steps = tuple(each / 1e3 for each in planning.parse_values(step_ms))
    elif known_step:
        steps = (known_step,)
    else:
        raise typer.BadParameter("the time of a training step is not known: give --step-ms, as in --step-ms 35")
    workers = planning.parse_values(offload_workers)
    if any(each != int(each) for each in workers):
        raise typer.BadParameter(f"--offload-workers must be integers; got {offload_workers!r}")
    return planning.MachineGrid(
        cores=planning.parse_values(cores, integers=True),
        storage_rates=planning.parse_values(storage, parse_rate),
        steps=steps,
        offload_workers=tuple(map(int, workers)),
    )


def _show(sizing: Sizing, output: Path | None) -> None:
    costs.print_table(_table(sizing))
    waiting = [each for each in sizing.best if not each.keeps_busy]
    if waiting:
        steps = ", ".join(f"{each.step * 1e3:.3g}" for each in waiting[:_MAX_ROWS])
        instead = "the one with the most images for the money" if sizing.prices.are_given else "the fastest"
        say(f"none of these machines keeps the GPU busy with a step of {steps} ms; {instead} is shown")
    if len(sizing.best) > _MAX_ROWS:
        say(f"{len(sizing.best) - _MAX_ROWS} more steps are not shown; --json prints all")
    if output is not None:
        say(f"wrote {counted(len(sizing.points), 'machine')} to {output}")


def _table(sizing: Sizing) -> Table:
    """Return a table with the best machine for each step; prices and offload workers only where there are some."""
    currency, priced = sizing.prices.currency, sizing.prices.are_given
    offloads = any(each.offload_workers for each in sizing.points)
    cheapest = "cheapest" if priced else "smallest"
    table = costs.new_table(f"the {cheapest} machine that keeps the GPU busy, batches of {sizing.batch_size}")
    names = ["step", "cores", "storage", "mix", "images/s", "busy"]
    names[3:3] = ["offload\nworkers"] if offloads else []
    names += [f"{currency}/hour", f"million\nimages/{currency}"] if priced else []
    narrow = costs.longest_name(each.shares for each in sizing.best)
    for name in names:
        mix = name == "mix"
        table.add_column(name, justify="left" if mix else "right", no_wrap=not mix, min_width=narrow if mix else None)
    for each in sizing.best[:_MAX_ROWS]:
        row = _row(each, offloads=offloads, priced=priced)
        table.add_row(*row, style=None if each.keeps_busy else "dim")
    return table


def _row(each: SizedMachine, *, offloads: bool, priced: bool) -> Iterator[str]:
    yield from (f"{each.step * 1e3:.3g} ms", f"{each.cores:g}", bytes_per_second_text(each.storage_rate))
    if offloads:
        yield f"{each.offload_workers}"
    yield from (costs.mix_text(each.shares), f"{each.rate:,.0f}", f"{each.busy:.0%}")
    if priced:
        free = each.images_per_dollar == float("inf")
        yield from (f"{each.dollars_per_hour:.2f}", "any" if free else f"{each.images_per_dollar / 1e6:.3g}")
