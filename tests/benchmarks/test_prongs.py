# SPDX-License-Identifier: Apache-2.0
"""The benchmark of two prongs runs and writes down what it found, beside the models and the bars."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "prongs.py"


@pytest.mark.slow
def test_it_measures_each_strategy_beside_its_model(tmp_path):
    output = tmp_path / "prongs.json"
    options = [
        "--sources",
        "cifar",
        "--shares",
        "0.5",
        "--trainers",
        "none,slow",
        "--seconds",
        "0.3",
        "-o",
        str(output),
    ]
    done = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(output.read_text())
    rows = {(row["trainer"], row["strategy"]): row for row in document["rows"]}
    assert {"CPU only", "mte", "wrr", "paced"} <= {strategy for _, strategy in rows}
    assert all(row["rate"] > 0 and row["modelled"] > 0 and row["simulated"] > 0 for row in rows.values())
    assert rows["none", "paced"]["near_rate"] > 0
    assert document["watts"]["near"] > 0
    assert "judged by" in done.stdout
