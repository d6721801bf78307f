# SPDX-License-Identifier: Apache-2.0
"""The benchmark of tensors runs and writes what it measured."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.machine import ROOT
from benchmarks.tensors import SIZES


def test_it_measures_every_size(tmp_path):
    """A short run writes the rates of memcpy and of the loader."""
    command = [sys.executable, "benchmarks/tensors.py", "--megabytes", "1", "--batch-megabytes", "1", "--rounds", "1"]
    subprocess.run([*command, "-o", tmp_path / "tensors.json"], cwd=ROOT, check=True, capture_output=True)
    document = json.loads((tmp_path / "tensors.json").read_text())

    assert [row["name"] for row in document["rows"]] == list(SIZES)
    assert all(row[way] > 0 for row in document["rows"] for way in ("memcpy", "in_order", "shuffled"))
