# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the builder runs and writes down what it found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "build.py"


def test_it_measures_against_the_bound(tmp_path, run_python):
    pytest.importorskip("skimage")
    output = tmp_path / "build.json"
    options = ["--images", 6, "--side", 48, "--rounds", 1, "--workers", 1, "--only", "hri:dense", "-o", output]
    printed = run_python(SCRIPT, *options).stdout
    document = json.loads(output.read_text())
    names = [row["name"] for row in document["rows"]]
    assert "headrace hri:dense" in names
    assert "decode + encode hri:dense, threads" in names
    assert document["images"] == 6
    assert all(row["seconds"] > 0 and row["cpu_seconds"] > 0 and row["peak_mb"] > 0 for row in document["rows"])
    assert "| headrace hri:dense | 1 |" in printed
