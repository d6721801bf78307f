# SPDX-License-Identifier: Apache-2.0
"""Makes the benchmarks importable, which are no part of the installed package."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


@pytest.fixture
def root() -> Path:
    return ROOT
