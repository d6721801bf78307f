# SPDX-License-Identifier: Apache-2.0
"""Drawings in SVG, and the smaller charts: bars, and speed-up by cores.

A drawing has CSS classes instead of colors, fonts and ids, so that it follows the page's light or dark scheme and
several fit on one page. Lengths are in pixels. All text is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from headrace.profiling._measurements import Rate
from headrace.terminal import printable
from headrace.units import number_text, percent_text, rate_text

LETTER = 7.5
"""Approximate width of a letter in pixels at the charts' font size of 13 pixels."""

WIDE_LETTER = 9.0
"""Largest width of a bold digit."""


class Drawing:
    """An SVG image: shapes in the order in which they are painted."""

    def __init__(self, width: float, height: float, label: str) -> None:
        self.width, self.height = width, height
        self._label = label
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, *, tip: str = "", round_: float = 2
    ) -> None:
        size = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" rx="{round_:g}"'
        self._shape("rect", size, kind, tip)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str, *, tip: str = "") -> None:
        self._shape("line", f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"', kind, tip)

    def path(self, points: list[tuple[float, float]], kind: str, *, tip: str = "", closed: bool = False) -> None:
        steps = " ".join(f"{'L' if number else 'M'}{x:.1f} {y:.1f}" for number, (x, y) in enumerate(points))
        self._shape("path", f'd="{steps}{" Z" if closed else ""}"', kind, tip)

    def mark(self, x: float, y: float, number: int, kind: str, *, tip: str = "") -> None:
        """Draw one of four shapes at a point, so that series differ by more than color."""
        r = 4.0
        if number % 4 == 0:
            self._shape("circle", f'cx="{x:.1f}" cy="{y:.1f}" r="{r:g}"', kind, tip)
        elif number % 4 == 1:
            self.rect(x - r, y - r, 2 * r, 2 * r, kind, tip=tip, round_=0)
        elif number % 4 == 2:
            self.path([(x, y - r - 1), (x + r + 1, y + r), (x - r - 1, y + r)], kind, tip=tip, closed=True)
        else:
            self.path([(x, y - r - 1), (x + r + 1, y), (x, y + r + 1), (x - r - 1, y)], kind, tip=tip, closed=True)

    def text(self, x: float, y: float, words: str, kind: str = "", *, anchor: str = "start") -> None:
        style = f' class="{kind}"' if kind else ""
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{_safe(words)}</text>')

    def render(self) -> str:
        """Return the SVG, safe to embed in a page."""
        size = f'viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}" height="{self.height:g}"'
        label = _safe(self._label)
        return f'<svg class="chart" {size} role="img" aria-label="{label}">' + "".join(self._parts) + "</svg>"

    def _shape(self, name: str, attributes: str, kind: str, tip: str) -> None:
        title = f"<title>{_safe(tip)}</title>" if tip else ""
        self._parts.append(f'<{name} {attributes} class="{kind}">{title}</{name}>')


def separated(places: list[float], gap: float, top: float, bottom: float) -> list[float]:
    """Move labels until they are `gap` apart, in the same order and between `top` and `bottom`."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    floor = top
    for index in order:
        moved[index] = max(moved[index], floor)
        floor = moved[index] + gap
    ceiling = bottom
    for index in reversed(order):
        moved[index] = min(moved[index], ceiling)
        ceiling = moved[index] - gap
    return moved


def shortened(words: str, width: float) -> str:
    """Cut text that does not fit in `width` pixels."""
    count = max(3, int(width / LETTER))
    return words if len(words) <= count else f"{words[: count - 1]}…"


def _safe(words: str) -> str:
    return escape(printable(words))


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a bar chart; `kind` is its CSS class."""

    name: str
    value: float
    note: str = ""
    kind: str = "bar"


def bar_chart(bars: Sequence[Bar], width: float, label: str, *, line: tuple[str, float] | None = None) -> str:
    """Draw horizontal bars, each below its name; `line` is the name and value of a reference line."""
    pitch, top = 40.0, 24.0 if line else 4.0
    drawing = Drawing(width, top + pitch * len(bars) + 4, label)
    full = max([bar.value for bar in bars] + ([line[1]] if line else [])) or 1.0
    for number, bar in enumerate(bars):
        y = top + number * pitch
        length = (width - 2) * bar.value / full
        value = number_text(bar.value) + (f"  {bar.note}" if bar.note else "")
        drawing.text(0, y + 13, shortened(bar.name, width - WIDE_LETTER * len(value) - 8), "stage")
        drawing.text(width, y + 13, value, "value", anchor="end")
        drawing.rect(0, y + 19, max(length, 1.5), 13, bar.kind, tip=f"{bar.name}: {rate_text(bar.value)} {bar.note}")
        if line:
            x = (width - 2) * line[1] / full
            drawing.line(x, y + 16, x, y + 35, "tick")  # beside the text, not through it
    if line:
        drawing.line(0, 9, 14, 9, "tick")
        drawing.text(20, 13, f"{line[0]} {number_text(line[1])}", "muted")
    return drawing.render()


def scaling_chart(curves: Mapping[str, Sequence[Rate]], width: float) -> str:
    """Draw the speed-up over one core by number of cores; the dashed line is perfect scaling."""
    left, right, top, bottom = 32.0, 146.0, 34.0, 40.0
    height = 300.0 if width > 400 else 280.0
    drawing = Drawing(width, height, "Speed-up of each stage by number of cores")
    max_cores = max(point.cores for curve in curves.values() for point in curve)
    speeds = {name: _speed_ups(curve) for name, curve in curves.items()}
    full = max(max_cores, *(value for points in speeds.values() for _, value in points)) * 1.02

    def place(cores: float, speed: float) -> tuple[float, float]:
        x = left + (width - left - right) * (cores - 1) / max(max_cores - 1, 1)
        return x, height - bottom - (height - top - bottom) * speed / full

    for count in _axis(curves, 26 * max_cores / (width - left - right)):
        drawing.line(left, place(1, count)[1], width - right, place(1, count)[1], "grid")
        drawing.text(left - 7, place(1, count)[1] + 4, f"{count}x", "muted", anchor="end")
        drawing.text(place(count, 0)[0], height - bottom + 18, f"{count}", "muted", anchor="middle")
    drawing.text((left + width - right) / 2, height - 4, "cores", "muted", anchor="middle")
    drawing.path([place(1, 1), place(max_cores, max_cores)], "ideal", tip="perfect scaling")
    drawing.path([(left, 10), (left + 24, 10)], "ideal")
    drawing.text(left + 31, 14, "perfect scaling", "muted")
    ends = [place(*points[-1])[1] for points in speeds.values()]
    labels = separated(ends, 32, top + 8, height - bottom - 16)
    for number, (name, points) in enumerate(speeds.items()):
        kind = f"series series-{number % 6}"
        drawing.path([place(*point) for point in points], f"{kind} stroke")
        rates = {point.cores: point.rate for point in curves[name]}
        for cores, speed in points:
            tip = f"{name}, {cores:g} cores: {rate_text(rates[int(cores)])}, {speed:.2f} times one core"
            drawing.mark(*place(cores, speed), number, f"{kind} point", tip=tip)
        end_cores, end_speed = points[-1]
        x, y = width - right + 34, labels[number]
        drawing.line(place(*points[-1])[0] + 6, ends[number], x - 15, y - 3, "leader")
        drawing.mark(x - 9, y - 3, number, f"{kind} point")
        drawing.text(x, y + 1, shortened(name, right - 34), "stage")
        loss = 1 - (end_speed / points[0][1]) / (end_cores / points[0][0])
        words = f"{percent_text(max(loss, 0.0))} lost" if len(points) > 1 else "one point"
        drawing.text(x, y + 15, f"{end_speed:.1f}x, {words}", "muted")
    return drawing.render()


def _speed_ups(curve: Sequence[Rate]) -> list[tuple[float, float]]:
    """Return (cores, speed-up over one core); if a curve starts later, its first point defines one core."""
    points = sorted(curve, key=lambda point: point.cores)
    one = points[0].rate / points[0].cores
    return [(float(point.cores), point.rate / one) for point in points]


def _axis(curves: Mapping[str, Sequence[Rate]], gap: float) -> list[int]:
    """Return the numbers of cores at the axes: first, last, and between them those `gap` apart."""
    cores = sorted({point.cores for curve in curves.values() for point in curve})
    kept: list[int] = []
    for number in reversed(cores):
        if not kept or kept[-1] - number >= gap:
            kept.append(number)
    return [*kept[:-1], cores[0]] if len(kept) > 1 else kept
