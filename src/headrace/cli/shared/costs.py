# SPDX-License-Identifier: Apache-2.0
"""What `plan` and `size` share: options, costs that were measured earlier, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.shared.output import shown_progress

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.planning import KnownCosts, ProgressHook
    from headrace.profiling import Report

PLAN = Path("plan.json")

CalibrationFile = Annotated[
    Path | None,
    typer.Option("--calibration", help="Use the costs of this earlier plan and measure nothing.", show_default=False),
]
ReportFolder = Annotated[
    Path | None,
    typer.Option("--report", help="Use the costs of this profile's report and measure nothing.", show_default=False),
]
DiskBudget = Annotated[
    str | None,
    typer.Option(help="Take the fastest formats that fit in this much disk, as in 500GB.", show_default=False),
]
Formats = Annotated[
    str | None, typer.Option(help="Consider only these formats, as in hri:fast,raw.", show_default="all lossless")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Measure fewer images with fewer repeats: faster, and less exact.")
]


def find_costs(calibration: Path | None, report: Path | None, source: str | None) -> tuple[KnownCosts, Report | None]:
    """Read the costs of an earlier plan, calibration or report; without them a source is needed."""
    from headrace import planning, profiling  # noqa: PLC0415 - brings the loader, which other verbs do not need

    if calibration is not None and report is not None:
        raise typer.BadParameter("--calibration and --report both have costs: give one of them")
    read = None if report is None else profiling.Report.load(report)
    known = planning.KnownCosts() if read is None else read.costs
    if calibration is not None:
        known = planning.KnownCosts.read(calibration)
    if known.calibration is None and source is None:
        missing = f"{report} has no costs of formats: its profile omitted them or ended early; " if read else ""
        raise typer.BadParameter(
            f"{missing}give a SOURCE_OR_DATASET to measure, or earlier measurements with --calibration plan.json "
            f"or --report"
        )
    return known, read


def parse_formats(text: str | None) -> list[str] | None:
    """Read `hri:fast,raw`."""
    if text is None:
        return None
    names = [name for name in map(str.strip, text.split(",")) if name]
    if not names:
        raise typer.BadParameter("name at least one format, as in hri:fast,raw", param_hint="--formats")
    return names


def prepare_output(output: Path) -> None:
    """Create the folder of an output file."""
    if output.is_dir():
        raise ValueError(f"--output must be a file, such as {output / PLAN}; got the folder {output}")
    output.parent.mkdir(parents=True, exist_ok=True)


def mix_text(shares: Mapping[str, float]) -> str:
    """Return `62% hri:fast + 38% raw`, or the name of a single format."""
    return (
        " + ".join(f"{share:.0%} {name}" for name, share in shares.items()) if len(shares) > 1 else next(iter(shares))
    )


def new_table(title: str) -> Table:
    from rich import box  # noqa: PLC0415 - slow to import
    from rich.table import Table  # noqa: PLC0415

    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)


def longest_name(mixes: Iterable[Mapping[str, float]]) -> int:
    """Return the width of a column of mixes that breaks between formats, and not within a name."""
    return max((len(name) for shares in mixes for name in shares), default=0)


def print_table(table: Table) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to import

    Console().print(table)


@contextmanager
def shown_steps(*, quiet: bool) -> Iterator[ProgressHook]:
    """Show the steps of a calibration."""
    with shown_progress(quiet=quiet) as update:
        update(description="listing the source")
        yield lambda done, total, what: update(completed=done, total=total, description=what)
