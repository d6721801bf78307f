# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML page without scripts or network access; style and drawings are inline.

Each drawing is made twice, for wide and for narrow windows, and the style sheet shows the one that fits. All text is
escaped by Jinja2 or by the drawing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from headrace import units
from headrace.errors import MissingExtra
from headrace.profiling._measurements import Measurements, Rate
from headrace.profiling.judging._reconcile import model_run
from headrace.profiling.judging._remedies_stored import mix_rate, rated_formats
from headrace.profiling.judging._verdict import STAGE_WORDS, Verdict
from headrace.profiling.report import _summary
from headrace.profiling.report._charts import Bar, bar_chart, scaling_chart
from headrace.profiling.report._pipeline_chart import pipeline_chart
from headrace.profiling.report._summary import overall_rates, stage_rows
from headrace.terminal import printable

_TEMPLATES = Path(__file__).with_name("templates")
_FULL, _HALF, _NARROW = 1052.0, 492.0, 340.0
_CHARTS = ("pipeline", "stall", "scaling", "records", "formats")

_HEADLINES = {"trainer": "The trainer is the limit", "balanced": "Balanced", "unknown": "No verdict"}


class Chart(NamedTuple):
    """A drawing at both widths."""

    wide: str
    narrow: str


def render_page(measurements: Measurements, verdict: Verdict) -> str:
    """Fill the template; MissingExtra without Jinja2."""
    words = STAGE_WORDS.get(verdict.stage or "", "")
    page: str = find_template().render(
        m=measurements,
        verdict=verdict,
        headline=_HEADLINES.get(verdict.kind, f"{words[:1].upper()}{words[1:]} is the bottleneck"),
        rows=stage_rows(measurements, verdict),
        charts={**dict.fromkeys(_CHARTS), **dict(_charts(measurements, verdict))},
        facts=list(_summary.facts(measurements, verdict)),
        notes=list(_summary.method_notes(measurements, verdict)),
        formats=rated_formats(measurements),
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
        finalize=_escape_controls,
    )
    environment.filters.update(
        number=units.number_text,
        bytes=units.bytes_text,
        seconds=units.seconds_text,
        joules=units.joules_text,
        percent=units.percent_text,
        sentence=_summary.as_sentence,
        by_cores=_by_cores,
    )
    return environment.get_template("report.html.jinja")


def _escape_controls(value: Any) -> Any:
    """Escape control characters in plain text, line by line; drawings have done so already."""
    return "\n".join(map(printable, value.split("\n"))) if type(value) is str else value


def _by_cores(points: tuple[Rate, ...]) -> str:
    return " · ".join(f"{point.cores}: {units.number_text(point.rate)}" for point in points)


def _charts(measurements: Measurements, verdict: Verdict) -> Iterator[tuple[str, Chart]]:
    rows = stage_rows(measurements, verdict)
    if rows:
        yield "pipeline", _chart(lambda width: pipeline_chart(rows, verdict, width), _FULL)
    overall = [
        Bar(name, rate, kind="bar ours" if name == "both together" else "bar")
        for name, rate in overall_rates(measurements, verdict)
    ]
    if overall:
        yield "stall", _bars(overall, "Images per second of the trainer alone, the loader alone, and both together")
    records = list(_records_bars(measurements))
    if records:
        yield "records", _bars(records, "Images per second of open and read, files and records")
    formats = list(_format_bars(measurements))
    if formats:
        line = ("trainer", verdict.trainer) if verdict.trainer else None
        yield "formats", _bars(formats, "Predicted images per second by format", line)
    curves = dict(_curves(measurements))
    if curves:
        yield "scaling", _chart(lambda width: scaling_chart(curves, width), _HALF)


def _chart(draw: Callable[[float], str], wide: float) -> Chart:
    from markupsafe import Markup  # noqa: PLC0415 - a dependency of Jinja2

    return Chart(Markup(draw(wide)), Markup(draw(_NARROW)))  # noqa: S704 - the drawing escapes its text


def _bars(bars: list[Bar], label: str, line: tuple[str, float] | None = None) -> Chart:
    return _chart(lambda width: bar_chart(bars, width, label, line=line), _HALF)


def _records_bars(measurements: Measurements) -> Iterator[Bar]:
    found = measurements.raw_and_records
    for name, raw, records in found.pairs if found is not None else ():
        if raw:
            yield Bar(f"files, {name}", raw)
        if records:
            yield Bar(f"records, {name}", records, f"({records / raw:.1f}x)" if raw else "", "bar ours")


def _format_bars(measurements: Measurements) -> Iterator[Bar]:
    for cost, rate in rated_formats(measurements):
        if math.isfinite(rate):
            yield Bar(cost.format + (", on the device" if cost.place == "device" else ""), rate)
    model, mix = model_run(measurements), measurements.mix
    mixed = mix_rate(measurements, model)
    shares = [(name, share) for name, share in mix.shares.items() if share > 0] if mix is not None else []
    if mixed is not None and math.isfinite(mixed) and len(shares) > 1:
        words = " + ".join(f"{units.percent_text(share)} {name}" for name, share in shares)
        yield Bar(f"mix: {words}", min(mixed, model.trainer_ceiling), kind="bar ours")


def _curves(measurements: Measurements) -> Iterator[tuple[str, tuple[Rate, ...]]]:
    """Yield the stages that were measured with several numbers of cores."""
    for stage in measurements.stages:
        warm, cold = (
            tuple(point for point in points if point.rate > 0 and point.cores > 0)
            for points in (stage.rates, stage.cold_rates)
        )
        if stage.place == "cores" and len(warm) > 1:
            yield (f"{stage.name}, warm" if stage.name in ("open", "read") else stage.name), warm
        if len(cold) > 1:
            yield f"{stage.name}, cold", cold
