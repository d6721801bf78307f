# SPDX-License-Identifier: Apache-2.0
"""The benchmark of builds measures each writer beside the bound."""

import json
import subprocess
import sys

import pytest
from benchmarks._build.contenders import BOUND


def test_it_measures_beside_the_bound(root, tmp_path):
    pytest.importorskip("skimage")
    output = tmp_path / "build.json"
    options = ["--images", "6", "--height", "48", "--rounds", "1", "--workers", "1", "--only", "hri:dense"]
    command = [sys.executable, str(root / "benchmarks" / "build.py"), *options, "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert done.returncode == 0, done.stderr
    document = json.loads(output.read_text())
    names = [row["name"] for row in document["rows"]]
    assert names == [BOUND, "Headrace, hri:dense", "Headrace, hri:dense, not verified"]
    assert document["images"] == 6
    assert document["command"] == "python benchmarks/build.py --images 6 --only hri:dense"
    assert all(row["seconds"] > 0 and row["cpu_seconds"] > 0 and row["peak_mb"] > 0 for row in document["rows"])
    assert [row["n_bytes"] > 0 for row in document["rows"]] == [False, True, True]
    assert "| Headrace, hri:dense | 1 |" in done.stdout
