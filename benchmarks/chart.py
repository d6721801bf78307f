# SPDX-License-Identifier: Apache-2.0
"""A bar chart as SVG, readable on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_WIDTH = 760
_LEFT = 290  # where bars begin; labels end before it
_RIGHT = 150  # kept free behind the longest bar, for its figure
_TOP = 64
_ROW = 24
_BAR = 16

_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600;font-size:15px}.note{fill:#59636e}"
    ".peer{fill:#b3bcc7}.ours{fill:#0a7d6b}.page{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#9198a1}.peer{fill:#57606a}.ours{fill:#2dbfa4}"
    ".page{fill:#0d1117}}"
)


class Bar(NamedTuple):
    """One row of a chart."""

    label: str
    value: float
    text: str
    ours: bool


def svg(title: str, note: str, bars: Sequence[Bar]) -> str:
    """Draw horizontal bars, from the top down, with their figures behind them."""
    longest = max(bar.value for bar in bars)
    height = _TOP + _ROW * len(bars) + 12
    size = f'width="{_WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="page" {size}/>',
        f'<text class="title" x="16" y="26">{escape(title)}</text>',
        f'<text class="note" x="16" y="46">{escape(note)}</text>',
    ]
    for number, bar in enumerate(bars):
        top = _TOP + number * _ROW
        baseline = top + _BAR - 3
        length = max(1.0, (_WIDTH - _LEFT - _RIGHT) * bar.value / longest)
        kind = "ours" if bar.ours else "peer"
        parts += [
            f'<text x="{_LEFT - 10}" y="{baseline}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect class="{kind}" x="{_LEFT}" y="{top}" width="{length:.1f}" height="{_BAR}" rx="2"/>',
            f'<text x="{_LEFT + length + 8:.1f}" y="{baseline}">{escape(bar.text)}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
