# SPDX-License-Identifier: Apache-2.0
"""A table that prints on a terminal and renders as Markdown, and how figures are written in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

if TYPE_CHECKING:
    from collections.abc import Sequence

NOTHING = "–"  # noqa: RUF001 - a dash, as tables have it


@dataclass(frozen=True)
class Table:
    """Rows of strings under named columns. The first column is text, the others are figures."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    notes: Sequence[str] = ()
    bold: frozenset[str] = field(default_factory=frozenset)  # rows in bold, by their first entry

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row must have {len(self.columns)} entries, one per column; got {row!r}")

    def markdown(self) -> str:
        """Return GitHub-flavoured Markdown, without the title; each note is a paragraph."""
        lines = [_markdown_row(self.columns), "|---|" + "---:|" * (len(self.columns) - 1)]
        lines += [_markdown_row([f"**{cell}**" for cell in row] if row[0] in self.bold else row) for row in self.rows]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines)

    def rich(self) -> RichTable:
        """Return a table for a Rich console."""
        table = RichTable(title=self.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        table.caption = "\n".join(escape(note) for note in self.notes) or None
        table.caption_justify = "left"
        for index, column in enumerate(self.columns):
            # One word per line in headings, so that the table fits 80 columns.
            table.add_column(
                escape(column.replace(" ", "\n") if index else column),
                justify="right" if index else "left",
                no_wrap=True,
            )
        for row in self.rows:
            table.add_row(*(escape(cell) for cell in row), style="bold" if row[0] in self.bold else None)
        return table


def show(table: Table) -> None:
    """Print a table: drawn on a terminal, else as Markdown."""
    console = Console()
    if console.is_terminal:
        console.print(table.rich())
    else:
        print(f"\n{table.title}\n\n{table.markdown()}")


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def share(value: float | None) -> str:
    """A ratio of sizes: `0.842`."""
    return NOTHING if value is None else f"{value:.3f}"


def times(value: float | None) -> str:
    """A ratio of speeds, three digits: `0.93x`, `14.2x`, `104x`."""
    return NOTHING if value is None else f"{figures(value)}x"


def figures(value: float | None) -> str:
    """A number with about three digits, never in scientific notation: `0.93`, `14.2`, `2104`."""
    if value is None:
        return NOTHING
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def count(value: int | None) -> str:
    """A whole number with thin grouping: `18 273 112`."""
    return NOTHING if value is None else f"{value:,}".replace(",", " ")
