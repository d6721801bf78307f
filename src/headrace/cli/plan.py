# SPDX-License-Identifier: Apache-2.0
"""`headrace plan`: the mix of formats that suits a machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from headrace.cli import _plan_known, _plan_tables
from headrace.cli.shared import options as _options
from headrace.cli.shared.output import FAILED, INTERRUPTED, fail, say
from headrace.errors import HeadraceError
from headrace.units import parse_bytes

if TYPE_CHECKING:
    from headrace.cli._plan_known import Known
    from headrace.planning import Calibration, Plan

PLAN = Path("plan.json")


def plan(
    source: Annotated[str | None, _options.SOURCE_OR_DATASET] = None,
    report: Annotated[
        Path | None, typer.Option(help="A profile's report, whose costs and machine are used.", show_default=False)
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
    quick: Annotated[bool, typer.Option("--quick", help="Fewer images and rounds, less exact.")] = False,
    workdir: _options.Workdir = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the plan is written.")] = PLAN,
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

    `headrace size` answers which other machine would keep a GPU busy.
    """
    from headrace import planning  # noqa: PLC0415 - brings the loader, which other verbs do not need

    wanted = None if formats is None else parse_formats(formats)
    try:
        budget = None if disk_budget is None else parse_bytes(disk_budget)
        # Wrong options and missing extras are reported before anything is measured.
        planning.parse_emulation(emulate or "")
        prepare_output(output)
        planning.find_solver()
        known = _plan_known.find_known(calibration, report)
        options = RecipeOptions(recipe, crop, batch_size)
        found = known_or_measured(known, source, report, options, formats=wanted, quick=quick, workdir=workdir)
        machine = known.machine(source, found, emulate)
        step = known.step if step_ms is None else step_ms / 1e3
        made = planning.plan(found, machine, step=step, disk_budget=budget, formats=wanted, renditions=renditions)
        made.save(output)
    except KeyboardInterrupt:
        typer.echo("interrupted; nothing was written", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except (HeadraceError, OSError, ValueError) as error:
        fail(error)
        raise typer.Exit(FAILED) from None
    _tell_plan(made, output)
    _tell_next(made, _Run.of(known, source, recipe, crop, batch_size), output)


def parse_formats(text: str) -> list[str]:
    names = [name for name in map(str.strip, text.split(",")) if name]
    if not names:
        raise typer.BadParameter("name at least one format, as hri:fast,raw", param_hint="--formats")
    return names


def prepare_output(output: Path) -> None:
    """Make the folder that the result goes to."""
    if output.is_dir():
        raise ValueError(f"{output} is a folder: name a file, such as {output / PLAN}")
    output.parent.mkdir(parents=True, exist_ok=True)


class RecipeOptions(NamedTuple):
    """The options that say how samples become batches."""

    recipe: Path | None
    crop: int | None
    batch_size: int | None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `calibrate`."""
        from headrace import planning  # noqa: PLC0415

        if self.recipe is not None:
            if self.crop is not None or self.batch_size is not None:
                raise typer.BadParameter("a recipe has its own crop and batch size: omit --crop and --batch-size")
            return {"recipe": self.recipe}
        transform = planning.usual_transform(self.crop)
        return {"transform": transform, "batch_size": self.batch_size or planning.USUAL_BATCH}


def known_or_measured(
    known: Known, source: str | None, report: Path | None, options: RecipeOptions, **arguments: Any
) -> Calibration:
    """Return the costs that are known; measure them if they are not."""
    from headrace import planning  # noqa: PLC0415

    if known.calibration is not None:
        if options != (None, None, None):
            raise typer.BadParameter(
                "the costs were measured with their own crop and batch size: omit --recipe, --crop and --batch-size"
            )
        return known.calibration
    if source is None:
        missing = (
            "" if report is None else f"{report} has no costs of formats: its profile omitted them or ended early; "
        )
        raise typer.BadParameter(
            f"{missing}give a SOURCE_OR_DATASET to measure, or earlier measurements with --calibration plan.json "
            f"or --report"
        )
    made = options.arguments()
    with _plan_tables.shown_progress() as hook:
        return planning.calibrate(source, **made, **arguments, progress=hook)


def _tell_plan(made: Plan, output: Path) -> None:
    _plan_tables.print_table(_plan_tables.plan_table(made))
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
    from headrace.planning.commands import command_line, new_dataset_path, shell_word  # noqa: PLC0415
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
