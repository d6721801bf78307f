# SPDX-License-Identifier: Apache-2.0
"""The core's own tests, which need no Python: cpp/tests, compiled in the development build."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "dev"
# A name and arguments, where the defaults would take long.
TESTS = [
    ["engine"],
    ["jpeg"],
    ["parity"],
    ["pixels"],
    ["platform"],
    ["png"],
    ["pool"],
    ["program"],
    ["scheduler"],
    ["stress", "2"],
]


@pytest.fixture(scope="module")
def binaries() -> Path:
    """Compile what changed. The core itself is the one that `make setup` has compiled."""
    assert (BUILD / "CMakeCache.txt").exists(), f"make setup configures {BUILD}"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    command = ["cmake", "--build", str(BUILD), "--target", "core_tests", "--parallel", "2"]
    built = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert built.returncode == 0, built.stdout + built.stderr
    return BUILD / "tests"


def test_every_source_with_a_main_is_run() -> None:
    """`operations` runs on ARM alone (`make arm`)."""
    sources = {path.stem for path in (ROOT / "cpp" / "tests").glob("*.cpp") if "\nint main(" in path.read_text()}

    assert sources - {"operations"} == {name for name, *_ in TESTS}


@pytest.mark.parametrize("test", TESTS, ids=[name for name, *_ in TESTS])
def test_the_core(binaries: Path, test: list[str]) -> None:
    name, *arguments = test
    ran = subprocess.run(
        [binaries / name, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
