# SPDX-License-Identifier: Apache-2.0
"""`headrace plan`: the mix of formats that suits a machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.shared import costs
from headrace.cli.shared import options as shared
from headrace.cli.shared.output import counted, exit_on_error, say
from headrace.units import bytes_per_second_text, bytes_text, cores_text

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.planning import Plan, Prediction
    from headrace.profiling import Report


def plan(
    source: Annotated[str | None, shared.SOURCE_OR_DATASET] = None,
    step_ms: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Milliseconds of a training step per batch. Default: the report's or the earlier plan's, or 0.",
            show_default=False,
        ),
    ] = None,
    disk_budget: costs.DiskBudget = None,
    emulate: shared.Emulate = None,
    renditions: Annotated[
        int, typer.Option(min=1, max=2, help="With 2, store two formats per image; the loader chooses while it runs.")
    ] = 1,
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
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the plan to this file.")] = costs.PLAN,
) -> None:
    """Find the mix of formats with which this machine prepares the most images.

    A sample of your images is stored in each format and loaded as in training;
    a linear program then divides the images among the formats so that storage
    and cores are equally busy. Pixels never change: formats are lossless, and
    files of a lossy source are kept as they are.

    Speed is weighed against disk: each doubling of the dataset's size must make
    the run at least 10 % faster. With --disk-budget, the fastest mix that fits
    the budget is taken.

    \b
    headrace plan photos --step-ms 35 -o plan.json     measure and plan
    headrace build photos photos.hr --plan plan.json   then build the dataset
    headrace plan photos --emulate storage=200MB/s,cores=2 --disk-budget 500GB

    `headrace size` finds the machine that keeps a GPU busy.
    """
    from headrace import planning  # noqa: PLC0415 - brings the loader, which other verbs do not need

    names = costs.parse_formats(formats)
    with exit_on_error("interrupted; nothing was written"):
        costs.prepare_output(output)
        known, read = costs.find_costs(calibration, report, source)
        with costs.shown_steps(quiet=quiet) as hook:
            made = planning.plan(
                source,
                step=known.step if step_ms is None else step_ms / 1e3,
                disk_budget=disk_budget,
                emulate=emulate,
                renditions=renditions,
                recipe=recipe,
                crop=crop,
                batch_size=batch_size,
                formats=names,
                calibration=known.calibration,
                machine=known.machine,
                quick=quick,
                workdir=workdir,
                progress=hook,
            )
        made.save(output)
    if as_json:
        typer.echo(json.dumps(made.to_json(), indent=1, allow_nan=False))
    elif not quiet:
        _show_plan(made, output)
        options = _profile_options(read, recipe, crop, batch_size)
        path = read.measurements.source.path if source is None and read is not None else source
        _show_next(made, output, path, options)


def _show_plan(made: Plan, output: Path) -> None:
    costs.print_table(_table(made))
    say(_summary(made))
    faster = made.fastest_single
    if faster is not None:
        times = faster.stored_bytes / max(made.predicted.stored_bytes, 1)
        budget = -(-int(faster.stored_bytes) // 10**6)
        say(
            f"{costs.mix_text(faster.shares)} alone would be {faster.rate / made.predicted.rate - 1:.0%} faster and "
            f"take {times:.1f}x the disk; each doubling of the size must bring 10 %. "
            f"To use it anyway: --disk-budget {budget}MB"
        )
    say(f"wrote {output}")


def _table(made: Plan) -> Table:
    """Return a table with a row per single format, and one for the mix."""
    machine = [cores_text(made.machine.cores), f"storage {bytes_per_second_text(made.machine.storage_rate)}"]
    if made.step:
        machine.append(f"step {made.step * 1e3:.3g} ms per batch of {made.calibration.batch_size}")
    emulated = " (emulated)" if made.machine.emulated else ""
    table = costs.new_table(f"{made.calibration.images:,} images, {', '.join(machine)}{emulated}")
    table.add_column("format", min_width=costs.longest_name(single.shares for single in made.singles))
    for name in ("images/s", "without\nthe trainer", "limited by", "on disk", "to build"):
        table.add_column(name, justify="left" if name == "limited by" else "right", no_wrap=name != "limited by")
    for single in made.singles:
        too_large = made.disk_budget is not None and single.stored_bytes > made.disk_budget * (1 + 1e-9)
        table.add_row(*_row(single, note=", over budget" if too_large else ""), style="dim" if too_large else None)
    if len(made.shares) > 1:
        table.add_section()
        table.add_row(*_row(made.predicted), style="bold")
    return table


def _row(prediction: Prediction, note: str = "") -> tuple[str, ...]:
    return (
        costs.mix_text(prediction.shares),
        f"{prediction.rate:,.0f}",
        f"{prediction.preparation_rate:,.0f}",
        ", ".join(prediction.bottlenecks),
        f"{bytes_text(prediction.stored_bytes)}{note}",
        _duration_text(prediction.build_seconds),
    )


def _duration_text(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _summary(made: Plan) -> str:
    """Return the result in one line."""
    mix, single = costs.mix_text(made.predicted.shares), made.best_single
    rate = f"{made.predicted.rate:,.0f} images/s"
    limit = f"limited by {' and '.join(made.predicted.bottlenecks) or 'nothing'}"
    if len(made.shares) == 1:
        return f"one format is best: {mix}, {rate}, {limit}"
    gain = ""
    if single is not None and made.gain >= 1:
        gain = f", {made.gain:.2f}x the best single format ({costs.mix_text(single.shares)})"
    both = "; every image is stored in both, and the loader chooses" if made.renditions == 2 else ""
    return f"{mix}: {rate}{gain}, {limit}{both}"


def _profile_options(
    report: Report | None, recipe: Path | None, crop: int | None, batch_size: int | None
) -> tuple[str, ...]:
    """Return options of `headrace profile` for batches like those that were planned for."""
    if report is not None:
        return tuple(report.measurements.recipe.options or ())
    given = (("--recipe", recipe), ("--crop", crop), ("--batch-size", batch_size))
    return tuple(word for name, value in given if value is not None for word in (name, str(value)))


def _show_next(made: Plan, output: Path, source: str | None, options: tuple[str, ...]) -> None:
    """Print the commands that build, load and profile the planned dataset."""
    from headrace.planning.commands import command_line, new_dataset_path, shell_word  # noqa: PLC0415
    from headrace.sources import is_dataset  # noqa: PLC0415

    found = made.calibration
    skipped = int(found.provenance.get("left_out") or 0)
    if skipped:
        say(
            f"{skipped} of {counted(found.sampled + skipped, 'image')} could not be decoded and did not count, such as "
            f"{found.provenance.get('left_out_such_as')}",
            err=True,
        )
    if source is None:
        say(f"next: headrace build with --plan {shell_word(str(output))}; see `headrace build --help`")
        return
    target = new_dataset_path(source, is_dataset=is_dataset(Path(source)))
    skip = ("--on-error", "skip") if skipped else ()
    say("next: " + command_line("headrace", "build", source, target, ("--plan", str(output), *skip)))
    say(f"then, in your code: headrace.Loader({target!r}, plan={str(output)!r}, batch_size={found.batch_size})")
    step = ("--step-ms", f"{made.step * 1e3:.6g}") if made.step else ()
    say("and to measure the result: " + command_line("headrace", "profile", target, (*options, *step)))
