# SPDX-License-Identifier: Apache-2.0
"""The drawing of the pipeline: one bar per stage up to its ceiling, with the rates of the run and of the trainer.

Stages are grouped by place. The scale is linear and ends a little above the trainer's rate: longer bars are cut and
marked with an arrow.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import TypeAlias

from headrace.profiling.judging._verdict import Verdict
from headrace.profiling.report._charts import LETTER, Drawing
from headrace.profiling.report._summary import StageRow
from headrace.units import number_text, rate_text

_LABEL = "The pipeline: the ceiling of each stage, the trainer's rate and the rate of the run"
_TOP, _ROW, _HEADING = 74.0, 42.0, 26.0

_Scale: TypeAlias = Callable[[float], float]
"""From a rate to a position in pixels."""


def pipeline_chart(rows: list[StageRow], verdict: Verdict, width: float) -> str:
    """Draw the rows in `width` pixels."""
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row.place)]
    bottom = _TOP + _ROW * len(rows) + _HEADING * len(groups)
    drawing = Drawing(width, bottom + 6, _LABEL)
    scale_end = _scale_end(rows, verdict)

    def position(rate: float) -> float:
        return (width - 2) * min(rate / scale_end, 1.0)

    _draw_legend(drawing, verdict, has_groups=any(len(members) > 1 for members in groups))
    if verdict.trainer:
        x = position(verdict.trainer)
        drawing.line(x, _TOP - 6, x, bottom, "trainer", tip=f"the trainer alone: {rate_text(verdict.trainer)}")
        anchor = "end" if x > 0.7 * width else "start" if x < 0.3 * width else "middle"
        drawing.text(x, _TOP - 12, f"trainer {number_text(verdict.trainer)}", "trainer-word", anchor=anchor)
    y = _TOP
    for members in groups:
        together = f", together {number_text(members[0].shared)}" if len(members) > 1 else ""
        drawing.text(0, y + 16, members[0].where + together, "muted")
        drawing.line(0, y + 22, width, y + 22, "grid")
        y += _HEADING
        for row in members:
            _draw_stage(drawing, row, verdict, y, position)
            if together and row.shared < scale_end:
                drawing.line(position(row.shared), y + 20, position(row.shared), y + 35, "joint")
            y += _ROW
    return drawing.render()


def _scale_end(rows: list[StageRow], verdict: Verdict) -> float:
    """Return the end of the scale: a little above the longest bar, but at most well above the trainer's rate."""
    reference = max(verdict.trainer or 0.0, verdict.rate or 0.0)
    longest = max(row.ceiling for row in rows)
    return min(1.08 * longest, 2.2 * reference) if reference else 1.08 * longest


def _draw_legend(drawing: Drawing, verdict: Verdict, *, has_groups: bool) -> None:
    """Name the filled part of the bars and the marks; side by side if there is room."""
    x, y = 0.0, 0.0
    if verdict.rate:
        words = f"the run, {rate_text(verdict.rate)}"
        drawing.rect(0, 4, 18, 10, "run")
        drawing.text(25, 13, words, "stage")
        if drawing.width > 600:
            x = 25 + LETTER * len(words) + 24
        else:
            y = 22.0
    if has_groups:
        drawing.line(x + 9, y, x + 9, y + 16, "joint")
        drawing.text(x + 25, y + 13, "all stages of a place together", "stage")


def _draw_stage(drawing: Drawing, row: StageRow, verdict: Verdict, y: float, position: _Scale) -> None:
    """Draw a stage: its name and ceiling, and below them its bar, filled up to the rate of the run."""
    name, kind = (f"▶ {row.title}", "bottleneck-word") if row.is_bottleneck else (row.title, "stage")
    is_cut = position(row.ceiling) >= position(float("inf"))
    value = number_text(row.ceiling) + (" →" if is_cut else "") + (" bottleneck" if row.is_bottleneck else "")
    detail = f" ({row.detail})" if row.detail else ""
    shared = f"; {row.where} with all its stages {rate_text(row.shared)}" if row.shared < 0.999 * row.ceiling else ""
    tip = f"{row.title}{detail}: at most {rate_text(row.ceiling)}{shared}"
    drawing.text(0, y + 14, name, kind)
    drawing.text(drawing.width, y + 14, value, "value", anchor="end")
    bar = "ceiling bottleneck" if row.is_bottleneck else "ceiling"
    drawing.rect(0, y + 20, position(row.ceiling), 14, bar, tip=tip)
    if verdict.rate:
        drawing.rect(0, y + 20, position(min(verdict.rate, row.ceiling)), 14, "run", round_=0)
    if verdict.trainer:
        drawing.line(position(verdict.trainer), y + 17, position(verdict.trainer), y + 37, "trainer")
