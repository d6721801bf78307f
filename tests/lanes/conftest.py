# SPDX-License-Identifier: Apache-2.0
"""Lets the tests import the model beside them and the spec's files, none of which is a package."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

for folder in (HERE, HERE.parents[1] / "spec"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
