# SPDX-License-Identifier: Apache-2.0
"""Measure lossless image codecs side by side: `python benchmarks/codec.py [FOLDER…]`, `--help` for more.

One process on one pinned core, process CPU time, codecs in turn image by image, best of 7; every lossless row is
verified. docs/benchmarks.md says more.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from benchmarks._codec.main import app

    app()
