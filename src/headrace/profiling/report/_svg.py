# SPDX-License-Identifier: Apache-2.0
"""Drawings in SVG: shapes with classes that the page's style sheet colours, and words that cannot break out.

A drawing has no colours, fonts or ids of its own, so that it follows the page's light and dark scheme and several can
stand on one page. Lengths are those of the screen, in pixels, where it is shown at its own width.
"""

from __future__ import annotations

import math
from html import escape

from headrace.profiling.report._summary import printable

LETTER = 7.5
"""Mean width of a letter at the charts' 13 pixels, for places that have no browser to ask."""

WIDE_LETTER = 9.0
"""The widest that a digit is, in bold."""


class Drawing:
    """Shapes in the order of painting."""

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
        """Draw one of four shapes round a point, so that series differ by more than colour."""
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
        """Give the SVG, for a page to hold as it is."""
        size = f'viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}" height="{self.height:g}"'
        label = _safe(self._label)
        return f'<svg class="chart" {size} role="img" aria-label="{label}">' + "".join(self._parts) + "</svg>"

    def _shape(self, name: str, attributes: str, kind: str, tip: str) -> None:
        title = f"<title>{_safe(tip)}</title>" if tip else ""
        self._parts.append(f'<{name} {attributes} class="{kind}">{title}</{name}>')


def ticks(full: float, count: int = 4) -> list[float]:
    """Round numbers from 0 up to `full`, about `count` of them."""
    if not full > 0 or not math.isfinite(full):
        return [0.0]
    rough = full / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    return [step * number for number in range(int(full / step * 1.0001) + 1)]


def spread(places: list[float], gap: float, top: float, bottom: float) -> list[float]:
    """Move labels apart until they are `gap` from each other, in their order and within `top` and `bottom`."""
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
    """Cut words that would not fit in `width` pixels."""
    most = max(3, int(width / LETTER))
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _safe(words: str) -> str:
    return escape(printable(words))
