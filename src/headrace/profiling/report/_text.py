# SPDX-License-Identifier: Apache-2.0
"""The profile in a terminal: its progress, then the report with verdict, stages, remedies, formats and facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console, RenderableType, group
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from headrace.profiling._measurements import Measurements
from headrace.profiling.judging._remedies_stored import rated_formats
from headrace.profiling.judging._verdict import Verdict
from headrace.profiling.report._summary import StageRow, facts, method_notes, overall_rates, stage_rows
from headrace.profiling.subjects._schedule import ProfileProgress, ProgressHook
from headrace.terminal import printable
from headrace.units import bytes_text, joules_text, number_text, percent_text, rate_text, seconds_text

_BAR_LENGTH = 17
_STYLES = {"stage": "yellow", "trainer": "green", "balanced": "green", "unknown": "red"}


@group()
def render_text(measurements: Measurements, verdict: Verdict) -> Iterator[RenderableType]:
    """Lay out the report for a console of any width."""
    title = Text(printable(measurements.source.name))
    yield Panel(Text(verdict.sentence), title=title, title_align="left", border_style=_STYLES[verdict.kind])
    rows = stage_rows(measurements, verdict)
    if rows:
        yield Padding(_stages(rows, verdict), (1, 0, 0, 0))
    if verdict.remedies:
        yield from _remedies(verdict)
    if measurements.formats:
        yield Padding(_formats(measurements), (1, 0, 0, 0))
    yield Padding(_facts(measurements, verdict), (1, 0, 0, 0))
    yield from (Text(f"! {printable(caution)}", style="yellow") for caution in verdict.cautions)
    yield Text()
    yield from (Text(printable(note), style="dim") for note in method_notes(measurements, verdict))


def _table(title: str, columns: Iterable[tuple[str, bool]]) -> Table:
    """Return a table with columns given as (name, is a number)."""
    table = Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, is_number in columns:
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    return table


def _stages(rows: list[StageRow], verdict: Verdict) -> Table:
    """One row per stage; its bar ends at its ceiling, and `│` marks the trainer's rate."""
    table = _table(
        "Ceilings, images/s" + (" (│ the trainer)" if verdict.trainer else ""),
        [("stage", False), ("where", False), ("ceiling", True), ("", False), ("together", False)],
    )
    full = 2 * max(verdict.trainer or verdict.rate or 1.0, verdict.rate or 0.0)
    for row in rows:
        style = "bold yellow" if row.is_bottleneck else ""
        table.add_row(
            Text(row.title, style=style),
            Text(row.where, style=style),
            number_text(row.ceiling),
            _bar(row.ceiling, full, verdict.trainer, style),
            Text(number_text(row.shared) + (" ◀ bottleneck" if row.is_bottleneck else ""), style=style),
        )
    return table


def _bar(value: float, full: float, mark: float | None, style: str) -> Text:
    length = min(_BAR_LENGTH, max(1, round(_BAR_LENGTH * value / full)))
    letters = list(("━" * length).ljust(_BAR_LENGTH))
    if value > full:
        letters[-1] = "▶"
    if mark is not None:
        letters[min(_BAR_LENGTH - 1, round(_BAR_LENGTH * mark / full))] = "│"
    return Text("".join(letters), style=style or "cyan")


def _remedies(verdict: Verdict) -> Iterator[RenderableType]:
    """Remedies line by line; commands are not wrapped, so that they can be copied."""
    yield Text("What would help", style="bold italic")
    last = 0
    for remedy in verdict.remedies:
        same = " (no measurable difference to the one before)" if remedy.rank == last else ""
        last = remedy.rank
        yield Text()
        rate = f"{'at most ' if remedy.at_most else ''}{rate_text(remedy.rate)}, {number_text(remedy.gain)} x"
        title = Text(f"{remedy.rank}. {printable(remedy.title)}: ", style="bold")
        yield title.append(rate, style="green").append(same, style="dim")
        yield Padding(Text(printable(remedy.why), style="dim"), (0, 0, 0, 3))
        for line in remedy.command.splitlines():
            yield Text(f"   {printable(line)}", style="cyan", no_wrap=True, overflow="ignore")
        if remedy.code:
            yield Text(f"   in your code, pass to the loader: {printable(remedy.code)}", style="cyan")


def _formats(measurements: Measurements) -> Table:
    columns = [("format", False), ("decoded on", False), ("stored", True), ("read", True), ("core time", True)]
    table = _table("A sample in each format", [*columns, ("images/s", True)])
    for cost, rate in rated_formats(measurements):
        table.add_row(
            Text(printable(cost.format)),
            cost.place,
            bytes_text(cost.stored_bytes),
            bytes_text(cost.read_bytes),
            seconds_text(cost.cpu_seconds),
            number_text(rate),
        )
    return table


def _facts(measurements: Measurements, verdict: Verdict) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in (*facts(measurements, verdict), *_results(measurements, verdict)):
        table.add_row(name, Text(printable(value)))
    return table


def _results(measurements: Measurements, verdict: Verdict) -> Iterator[tuple[str, str]]:
    yield from ((name, rate_text(rate)) for name, rate in overall_rates(measurements, verdict))
    if verdict.stall is not None:
        yield "the trainer waits", percent_text(verdict.stall)
    found = measurements.raw_and_records
    for name, raw, records in found.pairs if found is not None else ():
        if raw and records:
            yield f"files | records, {name}", f"{number_text(raw)} | {rate_text(records)}, {records / raw:.1f} x"
    if measurements.memory is not None:
        yield "peak memory", bytes_text(measurements.memory.peak_bytes)
    energy = measurements.energy
    if energy is not None:
        how = f"estimate: {energy.watts:g} W per core" if energy.estimated and energy.watts else energy.meter
        yield "energy per image", f"{joules_text(energy.joules)} ({how})"


@contextmanager
def shown(console: Console | None = None) -> Iterator[ProgressHook]:
    """Yield a progress hook for `profile` that prints each finding, and in a terminal shows a bar below them."""
    screen, printed = console or Console(stderr=True), 0
    columns = (SpinnerColumn(), BarColumn(20), TextColumn("{task.description}"))
    if screen.is_terminal:
        screen.print("Ctrl-C ends the profile with the results so far", style="dim")
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("listing images", total=None)

        def update(now: ProfileProgress) -> None:
            nonlocal printed
            lines = [printable(line) for line in now.found[printed:]]
            printed = len(now.found)
            if now.doing and not screen.is_terminal:
                lines.append(f"[{now.number + 1}/{now.total}] {printable(now.doing)} …")
            for line in lines:
                screen.print(line, highlight=False, markup=False, soft_wrap=True)
            left = max(0.0, now.seconds_left)
            doing = f"about {left:.0f} s left: {escape(printable(now.doing))}" if now.doing else "done"
            bar.update(task, description=doing, completed=now.seconds, total=now.seconds + left)

        yield update
