# SPDX-License-Identifier: Apache-2.0
"""The benchmark of augmentations: our recipes run, and tables are made of what was measured."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from benchmarks._loaders.cases import PROGRAMS
from benchmarks._transforms import report
from benchmarks._transforms.cases import LIBRARIES, RECIPES, choose
from benchmarks.machine import ROOT


def test_every_library_has_a_program():
    for library in LIBRARIES:
        assert (PROGRAMS / f"recipe_{library.program}.py").is_file()
        assert library.command()[1].endswith(f"recipe_{library.program}.py")


def test_names_are_checked():
    assert choose("", ("a", "b"), "recipes") == ["a", "b"]
    assert choose("b", ("a", "b"), "recipes") == ["b"]
    with pytest.raises(ValueError, match="--recipes must be from a, b; got c"):
        choose("a,c", ("a", "b"), "recipes")


def test_tables_show_what_was_measured():
    """Ratios to ours, what an operation adds to the crop, and a dash for what was not measured."""
    rows = [
        {"source": "jpegs", "recipe": recipe, "program": program, "cpu_ms": cpu_ms}
        for recipe, program, cpu_ms in [
            ("plain", "headrace", 1.0),
            ("plain", "timm", 3.0),
            ("deit", "headrace", 2.0),
            ("deit", "timm", 9.0),
            ("mixup", "headrace", 1.25),
            ("mixup", "timm", 5.0),
        ]
    ]

    recipes, operations = report.tables({"rows": rows})

    assert [row[1:] for row in recipes.rows] == [["1.00", "3.00", "–", "3.0x", "–"], ["2.00", "9.00", "–", "4.5x", "–"]]  # noqa: RUF001
    assert list(operations.rows) == [["MixUp", "0.25", "2.00", "–"]]  # noqa: RUF001


@pytest.mark.slow
def test_our_recipes_run(tmp_path):
    """Those that need no operation which may be missing; a recipe that cannot run is named."""
    pytest.importorskip("torch")
    names = ["plain", "crops", "erasing_random", "mixup", "cutmix"]
    options = ["--images=8", "--batch-size=4", "--epochs=1", "--rounds=1", "--workers=1", "--peers=headrace"]
    command = [sys.executable, str(ROOT / "benchmarks" / "transforms.py"), f"--recipes={','.join(names)}", *options]

    done = subprocess.run([*command, "-o", tmp_path / "t.json"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "t.json").read_text())
    assert document["failed"] == []
    assert {(row["source"], row["recipe"]) for row in document["rows"]} == {
        (source, name) for source in ("jpegs", "photos") for name in names
    }
    assert set(names) <= {recipe.name for recipe in RECIPES}
