# SPDX-License-Identifier: Apache-2.0
"""The report as one page that needs no network: style and drawings are in it, and no script at all.

A drawing cannot be reflowed, so each is made twice, for wide and for narrow windows, and the style sheet shows the one
that fits. Every word from outside passes through Jinja2's escaping, or the drawing's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from headrace import units as figures
from headrace.errors import MissingExtra
from headrace.profiling._measurements import Measurements, Rate, WhatIf, WhatIfPoint
from headrace.profiling.judging._shown import energy_parts, format_rates, rate_of_mix
from headrace.profiling.judging._verdict import STAGE_WORDS, Verdict
from headrace.profiling.report._summary import (
    best_words,
    facts,
    measured_rows,
    method_notes,
    printable,
    sentence_text,
    stage_rows,
    whole_rates,
)
from headrace.profiling.report._svg_charts import Bar, bar_chart, map_chart, scaling_chart, share_chart
from headrace.profiling.report._svg_pipeline import pipeline_chart

_TEMPLATES = Path(__file__).with_name("templates")
_FULL, _HALF, _NARROW = 1052.0, 492.0, 340.0
_MOST_PANELS = 4
_CHARTS = ("pipeline", "stall", "wait", "scaling", "records", "formats", "energy")

_KIND_WORDS = {"trainer": "The trainer is the limit", "balanced": "Balanced", "unknown": "No verdict"}


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing at both widths."""

    wide: str
    narrow: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart of the what-if, for one step time."""

    title: str
    chart: Chart
    words: str


def render_page(measurements: Measurements, verdict: Verdict) -> str:
    """Fill the template; MissingExtra without Jinja2."""
    page: str = find_template().render(
        m=measurements,
        verdict=verdict,
        headline=_headline(verdict),
        rows=stage_rows(measurements, verdict),
        measured=list(measured_rows(measurements)),
        charts={**dict.fromkeys(_CHARTS), **dict(_charts(measurements, verdict))},
        panels=list(_panels(measurements.what_if)),
        facts=list(facts(measurements, verdict)),
        notes=list(method_notes(measurements, verdict)),
        formats=format_rates(measurements),
    )
    return page


@cache
def find_template() -> Any:
    """Return the page's template; MissingExtra without Jinja2."""
    try:
        import jinja2  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra(f"the report's page needs Jinja2 ({error}): pip install 'headrace[report]'") from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters.update(
        number=figures.number_text,
        bytes=figures.bytes_text,
        seconds=figures.seconds_text,
        joules=figures.joules_text,
        percent=figures.percent_text,
        sentence=sentence_text,
    )
    return environment.get_template("report.html.jinja")


def _shown(value: Any) -> Any:
    """Replace what a browser would obey rather than show; drawings have done so already."""
    return printable(value) if type(value) is str else value


def _headline(verdict: Verdict) -> str:
    words = STAGE_WORDS.get(verdict.stage or "", "")
    return _KIND_WORDS.get(verdict.kind, f"{words[:1].upper()}{words[1:]} is the bottleneck")


def _charts(measurements: Measurements, verdict: Verdict) -> Iterator[tuple[str, Chart]]:
    rows = stage_rows(measurements, verdict)
    if rows:
        yield "pipeline", _chart(lambda width: pipeline_chart(rows, verdict, width), _FULL)
    for name, bars, line in (
        ("stall", list(_stall_bars(measurements, verdict)), None),
        ("records", list(_records_bars(measurements)), None),
        ("formats", list(_format_bars(measurements)), ("trainer", verdict.trainer) if verdict.trainer else None),
    ):
        if bars:
            yield name, _bars(bars, _LABELS[name], line)
    curves = dict(_curves(measurements))
    if curves:
        yield "scaling", _chart(lambda width: scaling_chart(curves, width), _HALF)
    stall = verdict.stall
    if stall is not None:
        times = {"training": 1 - stall, "waiting for data": stall}
        words = {"training": "busy", "waiting for data": "stalled"}
        yield "wait", _chart(lambda width: share_chart(times, words, width, "Share of the trainer's time"), _HALF)
    parts = energy_parts(measurements)
    if parts:
        joules = {name: figures.joules_text(value) for name, value in parts.items()}
        yield "energy", _chart(lambda width: share_chart(parts, joules, width, "Energy per image"), _HALF)


_LABELS = {
    "stall": "ImageSample a second of the trainer alone, the loader alone, and both together",
    "records": "ImageSample a second of open and read, files against records",
    "formats": "Predicted images a second by format",
}


def _chart(draw: Callable[[float], str], wide: float) -> Chart:
    from markupsafe import Markup  # noqa: PLC0415 - comes with Jinja2

    return Chart(Markup(draw(wide)), Markup(draw(_NARROW)))  # noqa: S704 - the drawing escapes its words


def _bars(bars: list[Bar], label: str, line: tuple[str, float] | None) -> Chart:
    return _chart(lambda width: bar_chart(bars, width, label, line=line), _HALF)


def _stall_bars(measurements: Measurements, verdict: Verdict) -> Iterator[Bar]:
    for name, rate in whole_rates(measurements, verdict):
        yield Bar(name, rate, kind="bar ours" if name == "both together" else "bar")


def _records_bars(measurements: Measurements) -> Iterator[Bar]:
    pair = measurements.raw_and_records
    if pair is None:
        return
    for name, raw, records in (("cold", pair.raw_cold, pair.records_cold), ("warm", pair.raw_warm, pair.records_warm)):
        if raw:
            yield Bar(f"files, {name}", raw)
        if records:
            yield Bar(f"records, {name}", records, f"({records / raw:.1f}x)" if raw else "", "bar ours")


def _format_bars(measurements: Measurements) -> Iterator[Bar]:
    for cost, rate in format_rates(measurements):
        if math.isfinite(rate):
            yield Bar(cost.format + (", on the device" if cost.place == "device" else ""), rate)
    mix, mixed = measurements.mix, rate_of_mix(measurements)
    shares = [(name, share) for name, share in mix.shares.items() if share > 0] if mix is not None else []
    if mixed is not None and math.isfinite(mixed) and len(shares) > 1:
        words = " + ".join(f"{figures.percent_text(share)} {name}" for name, share in shares)
        yield Bar(f"mix: {words}", mixed, kind="bar ours")


def _curves(measurements: Measurements) -> Iterator[tuple[str, tuple[Rate, ...]]]:
    """Stages that workers share, measured with more than one number of them."""
    for stage in measurements.stages:
        warm = tuple(point for point in stage.rates if point.rate > 0 and point.cores > 0)
        cold = tuple(point for point in stage.cold_rates if point.rate > 0 and point.cores > 0)
        if stage.place == "cores" and len(warm) > 1:
            yield (f"{stage.name}, warm" if stage.name in ("open", "read") else stage.name), warm
        if len(cold) > 1:
            yield f"{stage.name}, cold", cold


def _panels(grid: WhatIf | None) -> Iterator[Panel]:
    """One map a step time; of many, some from the shortest to the longest."""
    if grid is None:
        return
    best = {point.step: point for point in grid.best}
    steps = sorted({point.step for point in grid.points})
    count = min(_MOST_PANELS, len(steps))
    for number in range(count):
        step = steps[round(number * (len(steps) - 1) / max(count - 1, 1))]
        yield _panel([point for point in grid.points if point.step == step], best.get(step), grid)


def _panel(points: list[WhatIfPoint], best: WhatIfPoint | None, grid: WhatIf) -> Panel:
    step = points[0].step
    ceiling = f", {figures.number_text(grid.batch_size / step)} images/s at most" if grid.batch_size and step else ""
    marked = best if best is not None and any(point == best for point in points) else None
    chart = _chart(lambda width: map_chart(points, marked, width), _HALF)
    words = best_words(best, grid) if best is not None else ""
    return Panel(f"Step of {figures.seconds_text(step)}{ceiling}", chart, words)
