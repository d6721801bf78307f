# SPDX-License-Identifier: Apache-2.0
"""Measurements go to JSON and come back the same; what is no report is refused by name and never misread."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.profiling import profiles

import headrace.profiling
from headrace.errors import InvalidReport
from headrace.profiling import Measurements, Report

SOURCE = {"kind": "folder", "name": "photos"}
SUBJECTS = {
    "full": profiles.full(),
    "partial": profiles.partial(),
    "foreign": profiles.foreign(),
    "even": profiles.even(),
    "hostile": profiles.full('</script><img src=x onerror=alert(1)> \x1b[31m \udcff \u202e"'),
    "calibrated": replace(profiles.even(), calibration={"version": 1, "costs": [{"format": "png", "cpu": 0.5}]}),
}


@pytest.mark.parametrize("measurements", SUBJECTS.values(), ids=SUBJECTS)
def test_a_report_comes_back_from_json_as_it_was(measurements):
    report = Report(measurements)

    back = Report.from_json(json.loads(json.dumps(report.to_json(), allow_nan=False)))

    assert back == report


def test_the_specification_names_every_member():
    spec = (Path(__file__).parents[2] / "spec" / "report.md").read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", spec))
    kinds = [kind for name in headrace.profiling.__all__ if is_dataclass(kind := getattr(headrace.profiling, name))]
    written = [Report, *(kind for kind in kinds if kind.__module__.endswith(("_measurements", "_verdict", "_remedy")))]

    assert len(written) >= 14
    assert [field.name for kind in written for field in fields(kind) if field.name not in words] == []


def leaves(tree: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every value that is no object or list, and to every object and list."""
    if path:
        yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in items:
        yield from leaves(value, (*path, name))


@contextmanager
def changed(tree: Any, path: tuple[str | int, ...], value: Any) -> Iterator[None]:
    """Put a value in place of another, for a while."""
    for name in path[:-1]:
        tree = tree[name]
    held, tree[path[-1]] = tree[path[-1]], value
    yield
    tree[path[-1]] = held


def test_a_value_of_a_wrong_kind_is_refused_wherever_it_stands():
    tree = Report(profiles.full()).to_json()
    places = list(leaves(tree["measurements"]))

    assert len(places) > 150
    for path in places:
        for wrong in (-1.5, [[]], {"": {}}, float("nan"), 10**400, 1e-320):
            refused = pytest.raises(InvalidReport, match=rf"measurements.{path[0]}\b")
            with changed(tree, ("measurements", *path), wrong), refused:
                Report.from_json(tree)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"headrace": "plan"}, "not a report of a profile"),
        ({"version": 2}, "version of a report must be 1; got 2"),
        ({"measurements": None}, "measurements must be an object; got None"),
        ({"measurements": {"machine": {"cores": 2}}}, "measurements must have a member 'source'"),
        ({"measurements": {"machine": {"cores": 2, "gpus": 1}, "source": SOURCE}}, "machine has a member 'gpus'"),
        ({"measurements": {"machine": {"cores": 0}, "source": SOURCE}}, r"machine\.cores must be at least 1; got 0"),
        (
            {"measurements": {"machine": {"cores": True}, "source": SOURCE}},
            "must be an integer >= 0; got True",
        ),
    ],
)
def test_what_is_wrong_is_named(change, message):
    tree = {**Report(profiles.even()).to_json(), **change}

    with pytest.raises(InvalidReport, match=message):
        Report.from_json(tree)


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe", b"[" * 100_000], ids=repr)
def test_a_file_that_is_no_report_is_named(tmp_path, content):
    file = tmp_path / "report.json"
    file.write_bytes(content)

    with pytest.raises(InvalidReport, match=r"report\.json"):
        Report.load(tmp_path)


def test_a_figure_that_is_not_finite_is_named_in_writing():
    report = Report(
        Measurements(machine=SUBJECTS["full"].machine, source=SUBJECTS["full"].source, seconds=float("inf"))
    )

    with pytest.raises(InvalidReport, match=r"measurements\.seconds must be a finite number; got inf"):
        report.to_json()
