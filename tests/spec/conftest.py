# SPDX-License-Identifier: Apache-2.0
"""Lets the tests of the spec import its files, which are no package, by their place in the tree."""

import sys
from pathlib import Path

SPEC = str(Path(__file__).resolve().parents[2] / "spec")

if SPEC not in sys.path:
    sys.path.append(SPEC)
