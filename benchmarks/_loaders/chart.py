# SPDX-License-Identifier: Apache-2.0
"""A case as a chart: one bar a loader, its length the CPU time of an image. SVG, written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from benchmarks._loaders.report import case_title, milliseconds, steady_cpu_ms

_WIDTH = 760
_LEFT = 290  # of the bars; names stand before it
_RIGHT = 90  # of the longest; figures stand behind it
_TOP = 64
_ROW = 24
_BAR = 16

_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600;font-size:15px}.note{fill:#59636e}"
    ".peer{fill:#b3bcc7}.ours{fill:#0a7d6b}.page{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#9198a1}.peer{fill:#57606a}.ours{fill:#2dbfa4}"
    ".page{fill:#0d1117}}"
)


def svg(case: Mapping[str, Any]) -> str:
    """The loaders of a case with most workers, the costliest first."""
    workers = max(row["workers"] for row in case["rows"])
    rows = [row for row in case["rows"] if row["workers"] == workers]
    rows.sort(key=steady_cpu_ms, reverse=True)
    longest = steady_cpu_ms(rows[0])
    height = _TOP + _ROW * len(rows) + 12
    title = case_title(case, workers)
    size = f'width="{_WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="page" {size}/>',
        f'<text class="title" x="16" y="26">{escape(title)}</text>',
        '<text class="note" x="16" y="46">milliseconds of CPU an image after the first epoch; less is better</text>',
    ]
    for number, row in enumerate(rows):
        top = _TOP + number * _ROW
        baseline = top + _BAR - 3
        cost = steady_cpu_ms(row)
        length = max(1.0, (_WIDTH - _LEFT - _RIGHT) * cost / longest)
        kind = "ours" if row["ours"] else "peer"
        parts += [
            f'<text x="{_LEFT - 10}" y="{baseline}" text-anchor="end">{escape(row["label"])}</text>',
            f'<rect class="{kind}" x="{_LEFT}" y="{top}" width="{length:.1f}" height="{_BAR}" rx="2"/>',
            f'<text x="{_LEFT + length + 8:.1f}" y="{baseline}">{milliseconds(cost)}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
