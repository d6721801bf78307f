# SPDX-License-Identifier: Apache-2.0
"""The report in a terminal: the verdict, the stages with the trainer's line, the remedies, and what it all rests on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headrace.profiling._measurements import Measurements
from headrace.profiling.judging._shown import format_rates
from headrace.profiling.judging._verdict import Verdict
from headrace.profiling.report._summary import Row, best_words, facts, method_notes, printable, stage_rows, whole_rates
from headrace.units import (
    bytes_text,
    joules_text,
    number_text,
    percent_text,
    rate_text,
    seconds_text,
)

_BAR = 17
_STYLES = {"stage": "yellow", "trainer": "green", "balanced": "green", "unknown": "red"}


def render_text(measurements: Measurements, verdict: Verdict) -> RenderableType:
    """Lay out the report for a console of any width."""
    return Group(*_parts(measurements, verdict))


def _parts(measurements: Measurements, verdict: Verdict) -> Iterator[RenderableType]:
    title = f"{printable(measurements.source.name)}"
    yield Panel(Text(verdict.sentence), title=Text(title), title_align="left", border_style=_STYLES[verdict.kind])
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
    table = Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, is_number in columns:
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    return table


def _stages(rows: list[Row], verdict: Verdict) -> Table:
    """One row a stage; its bar ends at its ceiling, and `│` marks the trainer's rate."""
    table = _table(
        "Ceilings, images/s" + (" (│ the trainer)" if verdict.trainer else ""),
        [("stage", False), ("where", False), ("ceiling", True), ("", False), ("together", False)],
    )
    reference = verdict.trainer or verdict.rate or 1.0
    full = 2 * max(reference, verdict.rate or 0.0)
    for row in rows:
        style = "bold yellow" if row.binds else ""
        table.add_row(
            Text(row.title, style=style),
            Text(row.where, style=style),
            number_text(row.ceiling),
            _bar(row.ceiling, full, verdict.trainer, style),
            Text(number_text(row.shared) + (" ◀ bottleneck" if row.binds else ""), style=style),
        )
    return table


def _bar(value: float, full: float, mark: float | None, style: str) -> Text:
    length = min(_BAR, max(1, round(_BAR * value / full)))
    letters = list(("━" * length).ljust(_BAR))
    if value > full:
        letters[-1] = "▶"
    if mark is not None:
        letters[min(_BAR - 1, round(_BAR * mark / full))] = "│"
    return Text("".join(letters), style=style or "cyan")


def _remedies(verdict: Verdict) -> Iterator[RenderableType]:
    """Remedies line by line: a command may be longer than the terminal is wide, and is copied whole all the same."""
    yield Text("What would help", style="bold italic")
    last = 0
    for remedy in verdict.remedies:
        at_most = "at most " if remedy.at_most else ""
        level = " (no measurable difference from the one before)" if remedy.rank == last else ""
        last = remedy.rank
        yield Text()
        title = Text(f"{remedy.rank}. {printable(remedy.title)}: ", style="bold")
        title.append(f"{at_most}{rate_text(remedy.rate)}, {number_text(remedy.gain)} x", style="green")
        yield title.append(level, style="dim")
        yield Padding(Text(printable(remedy.why), style="dim"), (0, 0, 0, 3))
        for line in printable(remedy.command).splitlines():
            yield Text(f"   {line}", style="cyan", no_wrap=True, overflow="ignore")
        if remedy.code:
            yield Text(f"   in your code, give the loader: {printable(remedy.code)}", style="cyan")


def _formats(measurements: Measurements) -> Table:
    columns = [("format", False), ("decoded on", False), ("stored", True), ("read", True), ("core time", True)]
    table = _table("A sample in each format", [*columns, ("images/s", True)])
    for cost, rate in format_rates(measurements):
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
    for name, value in facts(measurements, verdict):
        table.add_row(name, Text(printable(value)))
    for name, value in _measured(measurements, verdict):
        table.add_row(name, Text(value))
    return table


def _measured(measurements: Measurements, verdict: Verdict) -> Iterator[tuple[str, str]]:
    pair = measurements.raw_and_records
    yield from ((name, rate_text(rate)) for name, rate in whole_rates(measurements, verdict))
    if verdict.stall is not None:
        yield "the trainer waits", percent_text(verdict.stall)
    if pair is not None:
        for name, raw, records in (
            ("cold", pair.raw_cold, pair.records_cold),
            ("warm", pair.raw_warm, pair.records_warm),
        ):
            if raw and records:
                yield f"files | records, {name}", f"{number_text(raw)} | {rate_text(records)}, {records / raw:.1f} x"
    if measurements.near is not None:
        yield "offload worker", rate_text(measurements.near.rate)
    grid = measurements.what_if
    if grid is not None:
        yield from ((f"what if, step {seconds_text(best.step)}", best_words(best, grid)) for best in grid.best)
    if measurements.memory is not None:
        yield "memory at most", bytes_text(measurements.memory.peak_bytes)
    if measurements.energy is not None:
        energy = measurements.energy
        stated = f" (estimate: {energy.watts:g} W a core)" if energy.estimated and energy.watts else ""
        yield "energy per image", joules_text(energy.joules) + (stated or f" ({energy.meter})")
