# SPDX-License-Identifier: Apache-2.0
"""The verbs for versions: what they print, what they refuse, and their JSON."""

from __future__ import annotations

import json

import pytest
from tests.building.growing.samples import check, write
from typer.testing import CliRunner

import headrace
from headrace.cli import app
from headrace.cli.growing._shared import parse_rows


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "a.hr", range(20))


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_a_day_with_versions(path, tmp_path):
    more = write(tmp_path / "b.hr", range(15, 25))
    assert "has 5 of 10 samples of the source already" in run("add", path, more, code=1)
    assert "added 5 samples" in run("add", path, more, "--existing", "skip")
    assert "nothing to do" in run("add", path, more, "--existing", "skip")
    assert "dropped 2 samples" in run("drop", path, "3", "24")
    assert json.loads(run("drop", path, "--rows", "0:2,5", "--json"))["changed"] == 3
    keys = tmp_path / "keys.txt"
    keys.write_text("7\n8\n")
    assert "relabeled 2 samples" in run("relabel", path, "--keys", keys, "--to", "cow")
    keys.write_text("7\tant\n9\t1\n")
    assert json.loads(run("relabel", path, "--keys", keys, "--json"))["address"] == f"{path}@v6"
    assert "must be one of the classes ant, bee, cow" in run("relabel", path, "7", "--to", "dog", code=1)
    run("relabel", path, "7", "--to", "dog", "--new-class")
    assert headrace.open(path).classes == ["ant", "bee", "cow", "dog"]

    listed = run("log", path)
    assert "add 5 samples (b.hr)" in listed
    assert f"{path}@v7" in listed
    assert [entry["action"] for entry in json.loads(run("log", path, "--json"))][:3] == ["build", "add", "drop"]
    assert "version  7: relabel 1 sample; 5 samples dropped so far" in run("info", path)
    assert json.loads(run("info", f"{path}@v2", "--json"))["samples"] == 25
    assert "25 samples" in run("verify", f"{path}@v2")
    run("extract", f"{path}@v1", tmp_path / "files", "--count", "2")
    assert "merged 2 datasets" in run("merge", f"{path}@v1", f"{path}@v2", "-o", tmp_path / "c.hr")
    check(headrace.open(tmp_path / "c.hr"), [*range(20), *range(25)])
    assert "nothing to do" in run("merge", f"{path}@v1", f"{path}@v2", "-o", tmp_path / "c.hr")

    shown = run("gc", path, "--keep", "2", "--dry-run")
    assert "would remove 5 versions" in shown
    assert "versions/000003.json" in shown
    assert "2 versions of" in run("gc", path, "--keep", "v2")
    assert json.loads(run("gc", path, "--keep", "newest", "--json"))["kept"] == [7]
    assert "has no version 1; it has 7" in run("gc", path, "--keep", "1", code=1)
    assert "cannot be opened" not in run("log", path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["drop", "PATH"], "name the samples in one way"),
        (["drop", "PATH", "1", "--rows", "2"], "name the samples in one way"),
        (["drop", "PATH", "--rows", "a:b"], "rows must be numbers and ranges"),
        (["relabel", "PATH", "1"], "give the new value with --to"),
        (["relabel", "PATH", "1", "--to", "x", "--field", "score"], "must be a number"),
        (["gc", "PATH", "--keep", "a"], "keep must be numbers of versions"),
    ],
)
def test_options_that_do_not_fit_are_explained(path, arguments, message):
    output = run(*(str(path) if word == "PATH" else word for word in arguments), code=2)
    assert message in " ".join(output.replace("│", " ").split())
    assert headrace.open(path).version == 1


def test_rows_of_a_command_line():
    assert parse_rows("7") == [7]
    assert parse_rows("0,5,10:13") == [0, 5, 10, 11, 12]
    assert parse_rows("100:") == slice(100, None)
    assert parse_rows(":5") == slice(None, 5)


@pytest.mark.parametrize("verb", ["add", "drop", "relabel", "merge", "log", "gc"])
def test_help_shows_examples(verb):
    assert f"headrace {verb} " in run(verb, "--help")
