# SPDX-License-Identifier: Apache-2.0
"""Making datasets: from sources with `build`, sample by sample with `Writer`. Resumable; the same bytes each time."""

from headrace.building._build import build
from headrace.building._progress import Progress
from headrace.building._report import BuildReport, Skipped
from headrace.building._writer import Writer

__all__ = ["BuildReport", "Progress", "Skipped", "Writer", "build"]

for _name in __all__:
    globals()[_name].__module__ = __name__  # so that reprs and tracebacks show the public path
del _name
