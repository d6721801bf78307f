# SPDX-License-Identifier: Apache-2.0
"""The pipeline as a picture: each stage a bar as high as its ceiling, and the run as high as the slowest place.

Wide, the gates stand side by side and the trainer's line runs across them; narrow, they lie one below the other and the
line runs down. The scale is linear and ends a little above the trainer: what is far above it is cut, with an arrow.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from headrace.profiling.judging._verdict import Verdict
from headrace.profiling.report._summary import Row
from headrace.profiling.report._svg import LETTER, Drawing, shortened, ticks
from headrace.units import brief_text, number_text, rate_text

_LABEL = "The pipeline: the ceiling of each stage, the trainer's rate and the rate of the run"
_WIDE = 600
_JOINT = "all stages of a place together"

_Level = Callable[[float], float]
"""From a rate to its height in the drawing."""


def pipeline_chart(rows: list[Row], verdict: Verdict, width: float) -> str:
    """Draw the rows in as much room as there is."""
    draw = _columns if width >= _WIDE else _lines
    return draw(rows, verdict, width)


def _full(rows: list[Row], verdict: Verdict) -> float:
    """The scale's end: all that matters lies below, and what is cut is cut far from the trainer's line."""
    reference = max(verdict.trainer or 0.0, verdict.rate or 0.0)
    highest = max(row.ceiling for row in rows)
    return min(1.08 * highest, 2.2 * reference) if reference else 1.08 * highest


def _tip(row: Row) -> str:
    detail = f" ({row.detail})" if row.detail else ""
    shared = f"; {row.where} with all its stages {rate_text(row.shared)}" if row.shared < 0.999 * row.ceiling else ""
    return f"{row.title}{detail}: at most {rate_text(row.ceiling)}{shared}"


def _columns(rows: list[Row], verdict: Verdict, width: float) -> str:
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
        kind = "gate binds" if row.binds else "gate"
        drawing.rect(middle - bar / 2, level(row.ceiling), bar, ground - level(row.ceiling), kind, tip=_tip(row))
        if row.ceiling > full:
            drawing.path(_cut(middle - bar / 2, top, bar), "cut")
    joint = any(len(list(group)) > 1 for _, group in groupby(rows, key=lambda row: row.place))
    _water(drawing, verdict, (left, width - right), level, joint=joint)
    for number, row in enumerate(rows):
        middle = left + (number + 0.5) * pitch
        value = brief_text(row.ceiling) + (" ↑" if row.ceiling > full else "")
        drawing.text(middle, level(row.ceiling) - 7, value, "value", anchor="middle")
        if row.binds:
            drawing.text(middle, level(row.ceiling) - 24, "▼ bottleneck", "binds-word", anchor="middle")
        drawing.text(middle, ground + 18, shortened(row.title, pitch), "stage", anchor="middle")
    position = 0
    for _, group in groupby(rows, key=lambda row: row.place):
        members = list(group)
        start, end = left + position * pitch, left + (position + len(members)) * pitch
        position += len(members)
        _group(drawing, members, (start + 6, end - 6), level)
    return drawing.render()


def _cut(x: float, y: float, width: float) -> list[tuple[float, float]]:
    """A zigzag over the top of a column that goes on."""
    n = 6
    return [(x + width * number / n, y + (3 if number % 2 else 9)) for number in range(n + 1)]


def _water(drawing: Drawing, verdict: Verdict, span: tuple[float, float], level: _Level, *, joint: bool) -> None:
    """Fill the chart to the run's rate, draw the trainer's line, and name every line above."""
    left, right = span
    ground, x = level(0.0), left
    if verdict.rate:
        surface = level(verdict.rate)
        drawing.rect(left, surface, right - left, ground - surface, "water", round_=0)
        drawing.line(left, surface, right, surface, "surface")
        words = f"the run, {rate_text(verdict.rate)}"
        drawing.rect(x, 6, 18, 10, "water")
        drawing.line(x, 6, x + 18, 6, "surface")
        drawing.text(x + 25, 15, words, "stage")
        x += 25 + LETTER * len(words) + 24
    if verdict.trainer:
        words = f"the trainer could take {rate_text(verdict.trainer)}"
        drawing.line(left, level(verdict.trainer), right, level(verdict.trainer), "trainer", tip=words)
        drawing.line(x, 11, x + 22, 11, "trainer")
        drawing.text(x + 29, 15, words, "stage")
        x += 29 + LETTER * len(words) + 24
    if joint:
        drawing.line(x, 11, x + 22, 11, "joint")
        drawing.text(x + 29, 15, _JOINT, "stage")


def _group(drawing: Drawing, members: list[Row], span: tuple[float, float], level: _Level) -> None:
    """Name a place under its stages, and say what they come to together."""
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


def _lines(rows: list[Row], verdict: Verdict, width: float) -> str:
    pitch, top, head = 42.0, 74.0, 26.0
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row.place)]
    ground = top + pitch * len(rows) + head * len(groups)
    drawing = Drawing(width, ground + 6, _LABEL)
    full = _full(rows, verdict)

    def reach(rate: float) -> float:
        return (width - 2) * min(rate / full, 1.0)

    if verdict.rate:
        drawing.rect(0, 4, 18, 10, "water")
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
            _line(drawing, row, verdict, y, reach)
            if together and row.shared < full:
                drawing.line(reach(row.shared), y + 20, reach(row.shared), y + 35, "joint")
            y += pitch
    return drawing.render()


def _line(drawing: Drawing, row: Row, verdict: Verdict, y: float, reach: _Level) -> None:
    """A stage's name and ceiling, and its gate below them with the water in it; the trainer's line stays in sight."""
    name, kind = (f"▶ {row.title}", "binds-word") if row.binds else (row.title, "stage")
    cut = reach(row.ceiling) >= reach(float("inf"))
    value = number_text(row.ceiling) + (" →" if cut else "") + (" bottleneck" if row.binds else "")
    drawing.text(0, y + 14, name, kind)
    drawing.text(drawing.width, y + 14, value, "value", anchor="end")
    drawing.rect(0, y + 20, reach(row.ceiling), 14, "gate binds" if row.binds else "gate", tip=_tip(row))
    if verdict.rate:
        drawing.rect(0, y + 20, reach(min(verdict.rate, row.ceiling)), 14, "water", round_=0)
    if verdict.trainer:
        drawing.line(reach(verdict.trainer), y + 17, reach(verdict.trainer), y + 37, "trainer")
