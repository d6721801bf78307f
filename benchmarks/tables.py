# SPDX-License-Identifier: Apache-2.0
"""A table of text cells that prints on a terminal and renders as Markdown, and how figures are written in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table as RichTable

if TYPE_CHECKING:
    from collections.abc import Sequence

NOTHING = "–"  # noqa: RUF001 - a dash, as tables have it


@dataclass(frozen=True)
class Table:
    """Rows of finished cells under named columns. The first column is text, the others are figures."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    notes: Sequence[str] = ()
    bold: frozenset[str] = field(default_factory=frozenset)  # first cells of the rows to set in bold

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"row {row!r} has {len(row)} cells, the table has {len(self.columns)} columns")

    def markdown(self) -> str:
        """The table as GitHub-flavoured Markdown, without its title; notes follow as a paragraph each."""
        lines = [_markdown_row(self.columns), "|---|" + "---:|" * (len(self.columns) - 1)]
        lines += [_markdown_row([f"**{cell}**" for cell in row] if row[0] in self.bold else row) for row in self.rows]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines)

    def rich(self) -> RichTable:
        """The table for a Rich console."""
        table = RichTable(title=self.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        table.caption = "\n".join(escape(note) for note in self.notes) or None
        table.caption_justify = "left"
        for index, column in enumerate(self.columns):
            # Headings of several words stand on several lines: the table fits 80 columns.
            table.add_column(
                escape(column.replace(" ", "\n") if index else column),
                justify="right" if index else "left",
                no_wrap=True,
            )
        for row in self.rows:
            table.add_row(*(escape(cell) for cell in row), style="bold" if row[0] in self.bold else None)
        return table


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def share(value: float | None) -> str:
    """A ratio of sizes: `0.842`."""
    return NOTHING if value is None else f"{value:.3f}"


def times(value: float | None) -> str:
    """A ratio of speeds, three figures: `0.93x`, `14.2x`, `104x`."""
    return NOTHING if value is None else f"{figures(value)}x"


def figures(value: float | None) -> str:
    """A number to about three figures, never in scientific notation: `0.93`, `14.2`, `2104`."""
    if value is None:
        return NOTHING
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def count(value: int | None) -> str:
    """A whole number with thin grouping: `18 273 112`."""
    return NOTHING if value is None else f"{value:,}".replace(",", " ")
