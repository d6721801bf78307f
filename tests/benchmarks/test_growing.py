# SPDX-License-Identifier: Apache-2.0
"""The benchmark of growing datasets runs, and adding 1 % writes at most 3 % of the bytes of a build."""

import json
import subprocess
import sys

import pytest


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_adding_costs_what_is_added(root, tmp_path):
    output = tmp_path / "growing.json"
    command = [sys.executable, str(root / "benchmarks" / "growing.py"), "--samples", "5000", "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(output.read_text())["rows"]}
    assert list(rows) == ["build", "add", "drop", "relabel", "open"]
    assert 0.01 < rows["add"]["share_of_bytes"] <= 0.03
    assert rows["drop"]["share_of_bytes"] <= 0.01
    assert rows["relabel"]["share_of_bytes"] <= 0.01
