# SPDX-License-Identifier: Apache-2.0
"""Whatever a valid report holds, and whatever it lacks, it can be judged, printed and drawn."""

from __future__ import annotations

import copy
import io
import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.profiling import profiles

from headrace.errors import InvalidReport
from headrace.profiling import Report, judge
from headrace.profiling.report._charts import separated
from headrace.units import bytes_text, number_text, percent_text, seconds_text

TREES = [
    Report(measurements).to_json()
    for measurements in (profiles.full(), profiles.foreign(), profiles.even(), profiles.lonely())
]
whole = st.sampled_from([0, 1, 2, 3, 7, 10**15])
numbers = st.floats(1e-30, 1e30) | st.floats(1e-30, 1e-20) | whole


def leaves(tree: Any) -> list[tuple[Any, Any]]:
    """Every container in a tree, with each of its keys."""
    items = list(tree.items() if isinstance(tree, dict) else enumerate(tree)) if isinstance(tree, (dict, list)) else []
    return [(tree, key) for key, _ in items] + [pair for _, value in items for pair in leaves(value)]


@st.composite
def reports(draw: st.DrawFn) -> Report | None:
    """A report of which some members are gone and some figures absurd; None where that made it invalid."""
    tree = copy.deepcopy(draw(st.sampled_from(TREES)))
    measurements = tree["measurements"]
    for name in draw(st.sets(st.sampled_from(sorted(measurements)))) - {"machine", "source"}:
        del measurements[name]
    places = leaves(measurements)
    for number in draw(st.lists(st.integers(0, len(places) - 1), max_size=12)):
        container, key = places[number]
        if isinstance(container[key], bool):
            container[key] = draw(st.booleans())
        elif isinstance(container[key], (int, float)):
            container[key] = draw(whole if isinstance(container[key], int) else numbers)
        elif isinstance(container[key], str):
            container[key] = draw(st.sampled_from([container[key], ""]))
        elif isinstance(container, dict):
            container[key] = draw(st.sampled_from([container[key], type(container[key])()]))
    try:
        return Report.from_json(tree)
    except InvalidReport:
        return None


@settings(max_examples=40, deadline=None)
@given(report=reports())
def test_any_report_can_be_judged_printed_and_drawn(report):
    if report is None:
        return
    console = Console(file=io.StringIO(), width=100)
    report.show(console)

    assert report.verdict.sentence
    assert report.to_html().endswith("</html>")
    assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report
    assert judge(report.measurements) == report.verdict


@given(value=st.floats(1e-12, 1e18))
def test_numbers_keep_three_digits(value):
    shown = float(number_text(value).replace(",", ""))

    assert abs(shown - value) <= 0.0051 * value


def test_units_are_the_ones_that_people_use():
    assert [bytes_text(value) for value in (0, 999, 1e3, 2.27e6, 1.09e11, 5e15)] == [
        "0 B",
        "999 B",
        "1.00 kB",
        "2.27 MB",
        "109 GB",
        "5,000 TB",
    ]
    shares = (0, 1e-5, 0.004, 0.5, 0.996, 0.99999, 1)
    assert [percent_text(value) for value in shares] == [
        "0 %",
        "< 0.1 %",
        "0.4 %",
        "50 %",
        "99.6 %",
        "> 99.9 %",
        "100 %",
    ]
    assert [seconds_text(value) for value in (0, 2.4e-5, 0.0051, 3.2, 312)] == [
        "0 µs",
        "24.0 µs",
        "5.10 ms",
        "3.20 s",
        "5.20 min",
    ]


@given(places=st.lists(st.floats(0, 100), min_size=1, max_size=6))
def test_labels_are_moved_apart_and_keep_their_order(places):
    moved = separated(places, 10, 0, 200)

    in_order = [label for _, label in sorted(zip(places, moved, strict=True))]
    assert all(0 <= place <= 200 for place in moved)
    assert all(after - before >= 10 - 1e-6 for before, after in pairwise(in_order))
