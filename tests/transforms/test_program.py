# SPDX-License-Identifier: Apache-2.0
"""The core's own test of draws and programs, which needs no Python: cpp/tests/program.cpp."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CPP = Path(__file__).parents[2] / "cpp"
SOURCES = [
    *(CPP / "tests" / name for name in ("program.cpp", "plain_operations.cpp")),
    *(
        CPP / "src" / "transform" / name
        for name in ("draws.cpp", "program.cpp", "program_check.cpp", "program_ops.cpp")
    ),
]


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_passes_do_what_operations_do_one_by_one(tmp_path):
    """On random lists, whole pictures are compared; a digest of programs is the same on every machine."""
    binary = tmp_path / "program"
    includes = [f"-I{CPP / 'include'}", f"-I{CPP / 'src'}"]
    flags = ["-std=c++20", "-O1", "-ffp-contract=off", "-pthread"]
    subprocess.run(["c++", *flags, *includes, *map(str, SOURCES), "-o", str(binary)], check=True)

    ran = subprocess.run([str(binary)], capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout
