# SPDX-License-Identifier: Apache-2.0
"""`headrace plan`: the mix of formats that a machine deserves, and the machine that an accelerator deserves."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import _batch, _options, _plan_tables
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.planning import Calibration, Machine, WhatIf
    from headrace.profiling import Report

PLAN = Path("plan.json")


def plan(
    words: Annotated[list[str] | None, _options.SOURCE_OR_DATASET] = None,
    report: Annotated[
        Path | None, typer.Option(help="A profile's report: its costs, and where a what-if goes.", show_default=False)
    ] = None,
    disk_budget: Annotated[
        str | None, typer.Option(help="What the images may take, as 500GB.", show_default=False)
    ] = None,
    step_ms: Annotated[
        float | None, typer.Option(min=0.0, help="What a training step takes, in milliseconds.", show_default=False)
    ] = None,
    emulate: _options.Emulate = None,
    renditions: Annotated[int, typer.Option(min=1, max=2, help="2: the loader chooses as it goes.")] = 1,
    recipe: _options.Recipe = None,
    crop: _options.Crop = None,
    batch_size: _options.BatchSize = None,
    formats: Annotated[
        str | None, typer.Option(help="Only these, as hri:fast,raw.  [default: all lossless]", show_default=False)
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="A plan whose costs are taken: nothing is measured.", show_default=False)
    ] = None,
    what_if: Annotated[
        str | None,
        typer.Option(metavar="GRID", help="cores=2..96 storage=0.2..8GB/s step-ms=5..200", show_default=False),
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(help="vcpu-hour=0.04,accelerator-hour=2.5,gb-month=0.1, for a what-if.", show_default=False),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer images and rounds, less exact.")] = False,
    workdir: _options.Workdir = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the plan, or the what-if, is written.")] = PLAN,
) -> None:
    """Find the mix of formats with which this machine prepares most images.

    A few of your images are stored in each format and loaded as they will be;
    a linear program then divides them so that storage and cores finish
    together. Lossless: a lossy source keeps its own files, and what else is
    stored of it gives the same pixels.

    \b
    headrace plan photos --step-ms 35 -o plan.json     measure, and plan
    headrace build photos photos.hr --plan plan.json   then build it
    headrace plan photos --emulate storage=200MB/s,cores=2 --disk-budget 500GB

    What if the machine were another? From a plan's costs, without measuring:

    \b
    headrace plan --what-if cores=2..96 storage=0.2..8GB/s step-ms=5..200 \\
        --price vcpu-hour=0.04,accelerator-hour=2.5,gb-month=0.1
    """
    from headrace import planning  # noqa: PLC0415 - brings the loader, which other verbs do not need

    source, grid = _divide(words or [], what_if)
    try:
        with _plan_tables.shown_progress() as hook:
            known = None if report is None else _load_report(report)
            found = _calibration(source, calibration, known, output, what_if=grid is not None)
            if found is None:
                making = _making(recipe, crop, batch_size)
                chosen = None if formats is None else formats.split(",")
                found = planning.calibrate(
                    source, **making, formats=chosen, quick=quick, workdir=workdir, progress=hook
                )
        budget = None if disk_budget is None else planning.parse_bytes(disk_budget)
        wanted = None if formats is None else formats.split(",")
        if grid is not None:
            prices = planning.parse_prices(price or "")
            common = planning.Machine(cores=1, trainer_cores=_trainer_cores(known))
            machines = planning.what_if(
                found, planning.parse_grid(grid), prices, machine=common, disk_budget=budget, formats=wanted
            )
            _tell_what_if(machines, output, report, known)
            return
        machine = _machine(source, found, known, emulate)
        step = _step(step_ms, known)
        made = planning.plan(found, machine, step=step, disk_budget=budget, formats=wanted, renditions=renditions)
        made.save(output)
    except KeyboardInterrupt:
        typer.echo("interrupted; nothing was written", err=True)
        raise typer.Exit(_batch.INTERRUPTED) from None
    except (HeadraceError, OSError, ValueError) as error:
        typer.echo(f"failed {error}", err=True)
        raise typer.Exit(_batch.FAILED) from None
    _print(_plan_tables.plan_table(made))
    typer.echo(_plan_tables.plan_sentence(made))
    typer.echo(f"written {output}; next: headrace build {source or 'SOURCE'} DATASET --plan {output}")


def _divide(words: list[str], what_if: str | None) -> tuple[str | None, str | None]:
    """Tell the source from the parts of a grid, which may stand in words of their own."""
    parts = [
        word for word in words if what_if is not None and word.partition("=")[0] in ("cores", "storage", "step-ms")
    ]
    sources = [word for word in words if word not in parts]
    if len(sources) > 1:
        raise typer.BadParameter(f"there is one source, not {', '.join(sources)}")
    return sources[0] if sources else None, None if what_if is None else " ".join([what_if, *parts])


def _calibration(
    source: str | None, given: Path | None, known: Report | None, output: Path, *, what_if: bool
) -> Calibration | None:
    """The costs that are there already; None if the source is to be measured."""
    from headrace import planning  # noqa: PLC0415

    if given is not None:
        document = json.loads(given.read_bytes())
        inner = document.get("calibration", document) if isinstance(document, dict) else document
        return planning.Calibration.from_json(inner)
    if known is not None and known.measurements.calibration is not None:
        return planning.Calibration.from_json(known.measurements.calibration)
    if source is not None:
        return None
    earlier = output if output.exists() and not what_if else PLAN
    if what_if and earlier.exists():
        return planning.Plan.from_json(earlier).calibration
    raise typer.BadParameter(
        "give a SOURCE_OR_DATASET to measure, or --calibration plan.json or --report with what was measured before"
    )


def _making(recipe: Path | None, crop: int | None, batch_size: int | None) -> dict[str, Any]:
    from headrace import transforms  # noqa: PLC0415

    if recipe is not None:
        if crop is not None or batch_size is not None:
            raise typer.BadParameter("a recipe has its crop and batch size: leave --crop and --batch-size out")
        return {"recipe": recipe}
    usual = [transforms.RandomResizedCrop(crop or 224), transforms.HorizontalFlip()]
    return {"transform": usual, "batch_size": batch_size or 64}


def _machine(source: str | None, found: Calibration, known: Report | None, emulate: str | None) -> Machine:
    from headrace import planning  # noqa: PLC0415

    supposed = planning.parse_emulation(emulate or "")
    link = supposed.pop("link_rate", None)
    if known is not None and "storage_rate" not in supposed:
        read = [stage for stage in known.measurements.stages if stage.name == "read" and stage.n_bytes]
        rates = [rate.rate * stage.n_bytes for stage in read for rate in stage.cold_rates if stage.n_bytes]
        supposed |= {"storage_rate": max(rates)} if rates else {}
    machine = planning.find_machine(source, found, **supposed, trainer_cores=_trainer_cores(known))
    return machine if link is None else machine.replace(link_rate=link, emulated=True)


def _load_report(folder: Path) -> Report:
    from headrace.profiling import Report  # noqa: PLC0415

    return Report.load(folder)


def _trainer_cores(known: Report | None) -> float:
    differential = None if known is None else known.measurements.differential
    if differential is None or differential.stated:
        return 0.0
    return differential.trainer_cores or 0.0


def _step(step_ms: float | None, known: Report | None) -> float:
    if step_ms is not None:
        return step_ms / 1e3
    differential = None if known is None else known.measurements.differential
    return 0.0 if differential is None else differential.step_seconds or 0.0


def _tell_what_if(found: WhatIf, output: Path, folder: Path | None, known: Report | None) -> None:
    """Print the best machines; all points go to a file, and into the report if there is one."""
    path = output.with_name("what-if.json") if output == PLAN else output
    path.write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")
    if folder is not None and known is not None:
        from headrace import profiling  # noqa: PLC0415

        def shown(point: Any) -> Any:
            return profiling.WhatIfPoint(**{**point.to_json(), "binds": tuple(point.binds)})

        grid = profiling.WhatIf(
            points=tuple(map(shown, found.points)),
            best=tuple(map(shown, found.best)),
            prices=dataclasses.asdict(found.prices),
            batch_size=found.batch_size,
            images=found.images,
        )
        known = profiling.Report(dataclasses.replace(known.measurements, what_if=grid))
        known.save(folder if folder.is_dir() else folder.parent)
    _print(_plan_tables.what_if_table(found))
    where = f" and {folder}" if folder is not None else ""
    typer.echo(f"written {len(found.points)} machines to {path}{where}")


def _print(table: Any) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to import

    Console().print(table)
