# SPDX-License-Identifier: Apache-2.0
"""How tables and figures are written."""

import io

import pytest
from benchmarks.tables import NOTHING, Table, count, figures, share, times
from rich.console import Console

TABLE = Table(
    title="kodak",
    columns=("codec", "of PNG", "x PNG"),
    rows=[("PNG", "1.000", "1.00x"), ("hri:fast", "0.842", "24.5x")],
    notes=["A note."],
    bold=frozenset({"hri:fast"}),
)


def test_markdown_has_a_line_per_row_and_bold_where_asked():
    assert TABLE.markdown().splitlines() == [
        "| codec | of PNG | x PNG |",
        "|---|---:|---:|",
        "| PNG | 1.000 | 1.00x |",
        "| **hri:fast** | **0.842** | **24.5x** |",
        "",
        "A note.",
    ]


def test_terminal_shows_every_entry_and_note():
    stream = io.StringIO()
    Console(file=stream, width=80).print(TABLE.rich())

    for text in ("kodak", "hri:fast", "0.842", "24.5x", "A note."):
        assert text in stream.getvalue()


def test_square_brackets_are_not_taken_for_markup():
    stream = io.StringIO()
    Console(file=stream, width=80).print(Table(columns=("a", "b"), rows=[("[red]", "1")]).rich())

    assert "[red]" in stream.getvalue()


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="must have 2 entries, one per column"):
        Table(columns=("a", "b"), rows=[("lonely",)])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.934, "0.93"), (9.994, "9.99"), (14.21, "14.2"), (99.94, "99.9"), (2104.4, "2104"), (None, NOTHING)],
)
def test_figures_are_three_or_whole(value, text):
    assert figures(value) == text


def test_ratios_and_counts():
    assert share(0.84249) == "0.842"
    assert times(14.21) == "14.2x"
    assert count(18273112) == "18 273 112"
    assert {share(None), times(None), count(None)} == {NOTHING}
