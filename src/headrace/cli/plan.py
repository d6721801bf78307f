# SPDX-License-Identifier: Apache-2.0
"""`headrace plan`: the mix of formats that suits a machine, and the machine that keeps a GPU busy."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import _batch, _options, _plan_known, _plan_tables
from headrace.cli._say import fail, say
from headrace.errors import HeadraceError
from headrace.units import parse_bytes

if TYPE_CHECKING:
    from headrace.cli._plan_known import Known
    from headrace.planning import Calibration, Plan, WhatIf

PLAN = Path("plan.json")


def plan(
    words: Annotated[list[str] | None, _options.SOURCE_OR_DATASET] = None,
    report: Annotated[
        Path | None, typer.Option(help="A profile's report: its costs, and where a what-if goes.", show_default=False)
    ] = None,
    disk_budget: Annotated[
        str | None, typer.Option(help="Take the fastest mix that fits in this much disk, as 500GB.", show_default=False)
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
        str | None, typer.Option(help="Only these, as hri:fast,raw.", show_default="all lossless")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(help="A plan whose costs and machine are taken: nothing is measured.", show_default=False),
    ] = None,
    what_if: Annotated[
        str | None,
        typer.Option(metavar="GRID", help="cores=2..96 storage=0.2..8GB/s step-ms=5..200", show_default=False),
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(
            metavar="PRICES",
            help="For a what-if: vcpu-hour=0.04 and, after commas, accelerator-hour=2.5, gb-month=0.1.",
            show_default=False,
        ),
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

    Speed is weighed against disk: each doubling of the dataset's size must make
    the run at least 10 % faster, so that five times the disk is taken for 1.25
    times the speed and not for 3 %. With --disk-budget the fastest mix that fits
    the budget is taken.

    \b
    headrace plan photos --step-ms 35 -o plan.json     measure, and plan
    headrace build photos photos.hr --plan plan.json   then build it
    headrace plan photos --emulate storage=200MB/s,cores=2 --disk-budget 500GB

    What if the machine were another? From a plan's costs, without measuring:

    \b
    headrace plan --what-if cores=2..96 storage=0.2..8GB/s step-ms=5..200 \\
        --price vcpu-hour=0.04,accelerator-hour=2.5,gb-month=0.1
    """
    from headrace import planning, profiling  # noqa: PLC0415 - bring the loader, which other verbs do not need

    source, grid = _divide(words or [], what_if)
    _refuse_needless(
        grid is not None, {"--step-ms": step_ms, "--emulate": emulate, "--renditions": renditions > 1 or None}, price
    )
    wanted = None if formats is None else _parse_formats(formats)
    if grid is not None and output == PLAN:
        output = output.with_name("what-if.json")
    try:
        budget = None if disk_budget is None else parse_bytes(disk_budget)
        machines = None if grid is None else (planning.parse_grid(grid), planning.parse_prices(price or ""))
        planning.parse_emulation(emulate or "")
        _prepare(output)  # what is wrong with the words, or not installed, is said before anything is measured
        planning.find_solver()
        if grid is not None and report is not None:
            profiling.Report.require_extras()  # the what-if is drawn on the report's page
        if source is None and calibration is None and report is None and grid is not None and PLAN.exists():
            calibration = PLAN
        known = _plan_known.find_known(calibration, report)
        found = known.calibration
        if found is None:
            making = _making(recipe, crop, batch_size)
            with _plan_tables.shown_progress() as hook:
                found = planning.calibrate(
                    _measured(source, report), **making, formats=wanted, quick=quick, workdir=workdir, progress=hook
                )
        elif (recipe, crop, batch_size) != (None, None, None):
            raise typer.BadParameter(
                "the costs are known, with their own crop and batch size: leave --recipe, --crop and --batch-size out"
            )
        if machines is not None:
            common = planning.Machine(cores=1, trainer_cores=known.trainer_cores, link_rate=known.link_rate or math.inf)
            told = planning.what_if(found, *machines, machine=common, disk_budget=budget, formats=wanted)
            _tell_what_if(told, output, report, known)
            return
        machine = known.machine(source, found, emulate)
        step = known.step if step_ms is None else step_ms / 1e3
        made = planning.plan(found, machine, step=step, disk_budget=budget, formats=wanted, renditions=renditions)
        made.save(output)
    except KeyboardInterrupt:
        typer.echo("interrupted; nothing was written", err=True)
        raise typer.Exit(_batch.INTERRUPTED) from None
    except (HeadraceError, OSError, ValueError) as error:
        fail(error)
        raise typer.Exit(_batch.FAILED) from None
    _tell_plan(made, output)
    _tell_next(made, _Run.of(known, source, recipe, crop, batch_size), output)


def _divide(words: list[str], what_if: str | None) -> tuple[str | None, str | None]:
    """Tell the source from the parts of a grid, which may stand in words of their own."""
    parts = [word for word in words if what_if is not None and "=" in word and not Path(word).exists()]
    sources = [word for word in words if word not in parts]
    if len(sources) > 1:
        raise typer.BadParameter(f"there is one source, not {', '.join(sources)}")
    return sources[0] if sources else None, None if what_if is None else " ".join([what_if, *parts])


def _refuse_needless(what_if: bool, given: dict[str, Any], price: str | None) -> None:
    if price is not None and not what_if:
        raise typer.BadParameter("--price is for a --what-if")
    needless = [name for name, value in given.items() if value is not None]
    if what_if and needless:
        raise typer.BadParameter(f"a --what-if has its own machines and steps: leave {', '.join(needless)} out")


def _parse_formats(text: str) -> list[str]:
    names = [name for name in map(str.strip, text.split(",")) if name]
    if not names:
        raise typer.BadParameter("name at least one format, as hri:fast,raw", param_hint="--formats")
    return names


def _prepare(output: Path) -> None:
    """Make the folder that the result goes to."""
    if output.is_dir():
        raise ValueError(f"{output} is a folder: name a file, such as {output / PLAN}")
    output.parent.mkdir(parents=True, exist_ok=True)


def _measured(source: str | None, report: Path | None) -> str:
    if source is None:
        lacking = "" if report is None else f"{report} has no costs of formats, for that was left out or ended: "
        raise typer.BadParameter(
            f"{lacking}give a SOURCE_OR_DATASET to measure, or --calibration plan.json or --report with what was "
            f"measured before"
        )
    return source


def _making(recipe: Path | None, crop: int | None, batch_size: int | None) -> dict[str, Any]:
    from headrace import planning  # noqa: PLC0415

    if recipe is not None:
        if crop is not None or batch_size is not None:
            raise typer.BadParameter("a recipe has its crop and batch size: leave --crop and --batch-size out")
        return {"recipe": recipe}
    return {"transform": planning.usual_transform(crop), "batch_size": batch_size or planning.USUAL_BATCH}


def _tell_plan(made: Plan, output: Path) -> None:
    _print(_plan_tables.plan_table(made))
    typer.echo(_plan_tables.plan_sentence(made))
    larger = _plan_tables.size_sentence(made)
    if larger is not None:
        say(larger)
    say(f"written {output}")


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    """What the plan is for, in the words of the commands that follow it."""

    source: str | None
    options: tuple[str, ...]
    """Of `headrace profile`, for batches like those that were planned for."""

    @classmethod
    def of(
        cls, known: Known, source: str | None, recipe: Path | None, crop: int | None, batch_size: int | None
    ) -> _Run:
        if known.report is not None:
            found = known.report.measurements
            path = found.source.path if source is None else source
            return cls(path, found.recipe.options or ())
        if recipe is not None:
            return cls(source, ("--recipe", str(recipe)))
        given = (("--crop", crop), ("--batch-size", batch_size))
        return cls(source, tuple(word for name, size in given if size is not None for word in (name, str(size))))


def _tell_next(made: Plan, run: _Run, output: Path) -> None:
    """Name the commands that build the dataset and show what it gives; a source that is not known cannot be named."""
    from headrace.planning._commands import command_line, new_dataset_path, shell_word  # noqa: PLC0415
    from headrace.sources import is_dataset  # noqa: PLC0415

    skip = ("--on-error", "skip") if _warn_of_left_out(made.calibration) else ()
    if run.source is None:
        say(f"next: headrace build with --plan {shell_word(str(output))}; `headrace build --help` has the rest")
        return
    target = new_dataset_path(run.source, is_dataset=is_dataset(Path(run.source)))
    say("next: " + command_line("headrace", "build", run.source, target, ("--plan", str(output), *skip)))
    size = made.calibration.batch_size
    say(f"then, in your code: headrace.Loader({target!r}, plan={str(output)!r}, batch_size={size})")
    step = ("--step-ms", f"{made.step * 1e3:.6g}") if made.step else ()
    say("and to see what it gives: " + command_line("headrace", "profile", target, (*run.options, *step)))


def _warn_of_left_out(found: Calibration) -> int:
    """Tell of images that were not measured because they cannot be decoded."""
    count = found.provenance.get("left_out") or 0
    if count:
        tried = found.sampled + count
        say(
            f"{count} of {tried} images could not be decoded and did not count, such as "
            f"{found.provenance.get('left_out_such_as')}",
            err=True,
        )
    return int(count)


def _tell_what_if(found: WhatIf, output: Path, folder: Path | None, known: Known) -> None:
    """Print the best machines; all points go to a file, and into the report if there is one."""
    found.save(output)
    if folder is not None and known.report is not None:
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
        drawn = profiling.Report(dataclasses.replace(known.report.measurements, what_if=grid))
        drawn.save(folder if folder.is_dir() else folder.parent)
    _print(_plan_tables.what_if_table(found))
    for line in _plan_tables.what_if_sentences(found):
        typer.echo(line)
    where = f" and {folder}" if folder is not None else ""
    say(f"written {len(found.points)} machine{'' if len(found.points) == 1 else 's'} to {output}{where}")


def _print(table: Any) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to import

    Console().print(table)
