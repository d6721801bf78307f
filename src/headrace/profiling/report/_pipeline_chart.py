# SPDX-License-Identifier: Apache-2.0
"""The drawing of the pipeline: one bar per stage up to its ceiling, the rate of the run, and the trainer's rate.

On a wide page the bars are vertical, on a narrow one horizontal. The scale is linear and ends a little above the
trainer's rate: longer bars are cut and marked with an arrow.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from headrace.profiling.judging._verdict import Verdict
from headrace.profiling.report._charts import LETTER, Drawing, shortened, ticks
from headrace.profiling.report._summary import StageRow
from headrace.units import brief_text, number_text, rate_text

_LABEL = "The pipeline: the ceiling of each stage, the trainer's rate and the rate of the run"
_WIDE = 600
_JOINT = "all stages of a place together"

_Scale = Callable[[float], float]
"""From a rate to a coordinate."""


def pipeline_chart(rows: list[StageRow], verdict: Verdict, width: float) -> str:
    """Draw the rows with vertical or horizontal bars, depending on the width."""
    draw = _vertical if width >= _WIDE else _horizontal
    return draw(rows, verdict, width)


def _full(rows: list[StageRow], verdict: Verdict) -> float:
    """Return the end of the scale: a little above the highest bar, or well above the trainer's rate."""
    reference = max(verdict.trainer or 0.0, verdict.rate or 0.0)
    highest = max(row.ceiling for row in rows)
    return min(1.08 * highest, 2.2 * reference) if reference else 1.08 * highest


def _tip(row: StageRow) -> str:
    detail = f" ({row.detail})" if row.detail else ""
    shared = f"; {row.where} with all its stages {rate_text(row.shared)}" if row.shared < 0.999 * row.ceiling else ""
    return f"{row.title}{detail}: at most {rate_text(row.ceiling)}{shared}"


def _vertical(rows: list[StageRow], verdict: Verdict, width: float) -> str:
    height, left, right, top, bottom = 372.0, 52.0, 14.0, 56.0, 66.0
    drawing = Drawing(width, height, _LABEL)
    full, ground = _full(rows, verdict), height - bottom
    pitch = (width - left - right) / len(rows)
    bar = min(72.0, 0.66 * pitch)

    def level(rate: float) -> float:
        return ground - (ground - top) * min(rate / full, 1.0)

    for tick in ticks(full):
        drawing.line(left, level(tick), width - right, level(tick), "grid")
        drawing.text(left - 8, level(tick) + 4, brief_text(tick), "muted", anchor="end")
    for number, row in enumerate(rows):
        middle = left + (number + 0.5) * pitch
        kind = "ceiling bottleneck" if row.is_bottleneck else "ceiling"
        drawing.rect(middle - bar / 2, level(row.ceiling), bar, ground - level(row.ceiling), kind, tip=_tip(row))
        if row.ceiling > full:
            drawing.path(_cut(middle - bar / 2, top, bar), "cut")
    joint = any(len(list(group)) > 1 for _, group in groupby(rows, key=lambda row: row.place))
    _draw_rates(drawing, verdict, (left, width - right), level, joint=joint)
    for number, row in enumerate(rows):
        middle = left + (number + 0.5) * pitch
        value = brief_text(row.ceiling) + (" ↑" if row.ceiling > full else "")
        drawing.text(middle, level(row.ceiling) - 7, value, "value", anchor="middle")
        if row.is_bottleneck:
            drawing.text(middle, level(row.ceiling) - 24, "▼ bottleneck", "bottleneck-word", anchor="middle")
        drawing.text(middle, ground + 18, shortened(row.title, pitch), "stage", anchor="middle")
    position = 0
    for _, group in groupby(rows, key=lambda row: row.place):
        members = list(group)
        start, end = left + position * pitch, left + (position + len(members)) * pitch
        position += len(members)
        _group(drawing, members, (start + 6, end - 6), level)
    return drawing.render()


def _cut(x: float, y: float, width: float) -> list[tuple[float, float]]:
    """Return a zigzag across the top of a bar that is cut."""
    n = 6
    return [(x + width * number / n, y + (3 if number % 2 else 9)) for number in range(n + 1)]


def _draw_rates(drawing: Drawing, verdict: Verdict, span: tuple[float, float], level: _Scale, *, joint: bool) -> None:
    """Fill the chart up to the run's rate, draw the trainer's line, and name both in a legend."""
    left, right = span
    ground, x = level(0.0), left
    if verdict.rate:
        surface = level(verdict.rate)
        drawing.rect(left, surface, right - left, ground - surface, "run", round_=0)
        drawing.line(left, surface, right, surface, "run-line")
        words = f"the run, {rate_text(verdict.rate)}"
        drawing.rect(x, 6, 18, 10, "run")
        drawing.line(x, 6, x + 18, 6, "run-line")
        drawing.text(x + 25, 15, words, "stage")
        x += 25 + LETTER * len(words) + 24
    if verdict.trainer:
        words = f"the trainer could process {rate_text(verdict.trainer)}"
        drawing.line(left, level(verdict.trainer), right, level(verdict.trainer), "trainer", tip=words)
        drawing.line(x, 11, x + 22, 11, "trainer")
        drawing.text(x + 29, 15, words, "stage")
        x += 29 + LETTER * len(words) + 24
    if joint:
        drawing.line(x, 11, x + 22, 11, "joint")
        drawing.text(x + 29, 15, _JOINT, "stage")


def _group(drawing: Drawing, members: list[StageRow], span: tuple[float, float], level: _Scale) -> None:
    """Name a place below its stages, with their rate together."""
    (start, end), ground = span, level(0.0)
    drawing.path([(start, ground + 28), (start, ground + 33), (end, ground + 33), (end, ground + 28)], "bracket")
    words = members[0].where
    if len(members) > 1:
        shared = members[0].shared
        words += f", together {number_text(shared)}"
        if level(shared) > level(float("inf")):
            tip = f"{members[0].where}, taking turns: {rate_text(shared)}"
            drawing.line(start, level(shared), end, level(shared), "joint", tip=tip)
    drawing.text((start + end) / 2, ground + 50, shortened(words, end - start + 2 * LETTER), "muted", anchor="middle")


def _horizontal(rows: list[StageRow], verdict: Verdict, width: float) -> str:
    pitch, top, head = 42.0, 74.0, 26.0
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row.place)]
    ground = top + pitch * len(rows) + head * len(groups)
    drawing = Drawing(width, ground + 6, _LABEL)
    full = _full(rows, verdict)

    def reach(rate: float) -> float:
        return (width - 2) * min(rate / full, 1.0)

    if verdict.rate:
        drawing.rect(0, 4, 18, 10, "run")
        drawing.text(25, 13, f"the run, {rate_text(verdict.rate)}", "stage")
    if any(len(members) > 1 for members in groups):
        drawing.line(9, 22, 9, 38, "joint")
        drawing.text(25, 35, _JOINT, "stage")
    if verdict.trainer:
        x = reach(verdict.trainer)
        drawing.line(x, top - 6, x, ground, "trainer", tip=f"the trainer alone: {rate_text(verdict.trainer)}")
        anchor = "end" if x > 0.7 * width else "start" if x < 0.3 * width else "middle"
        drawing.text(x, top - 12, f"trainer {number_text(verdict.trainer)}", "trainer-word", anchor=anchor)
    y = top
    for members in groups:
        together = f", together {number_text(members[0].shared)}" if len(members) > 1 else ""
        drawing.text(0, y + 16, members[0].where + together, "muted")
        drawing.line(0, y + 22, width, y + 22, "grid")
        y += head
        for row in members:
            _stage(drawing, row, verdict, y, reach)
            if together and row.shared < full:
                drawing.line(reach(row.shared), y + 20, reach(row.shared), y + 35, "joint")
            y += pitch
    return drawing.render()


def _stage(drawing: Drawing, row: StageRow, verdict: Verdict, y: float, reach: _Scale) -> None:
    """Draw a stage: name and ceiling, and below them its bar with the rate of the run in it."""
    name, kind = (f"▶ {row.title}", "bottleneck-word") if row.is_bottleneck else (row.title, "stage")
    cut = reach(row.ceiling) >= reach(float("inf"))
    value = number_text(row.ceiling) + (" →" if cut else "") + (" bottleneck" if row.is_bottleneck else "")
    drawing.text(0, y + 14, name, kind)
    drawing.text(drawing.width, y + 14, value, "value", anchor="end")
    bar = "ceiling bottleneck" if row.is_bottleneck else "ceiling"
    drawing.rect(0, y + 20, reach(row.ceiling), 14, bar, tip=_tip(row))
    if verdict.rate:
        drawing.rect(0, y + 20, reach(min(verdict.rate, row.ceiling)), 14, "run", round_=0)
    if verdict.trainer:
        drawing.line(reach(verdict.trainer), y + 17, reach(verdict.trainer), y + 37, "trainer")
