# SPDX-License-Identifier: Apache-2.0
"""Build datasets: from sources with `build`, which can resume, or sample by sample with `Writer`; and let them grow."""

from headrace.building._build import build
from headrace.building._report import BuildReport, Progress, Skipped
from headrace.building._writer import Writer

__all__ = ["BuildReport", "Progress", "Skipped", "Writer", "build"]

for _name in __all__:
    globals()[_name].__module__ = __name__  # so that reprs and tracebacks show the public path
del _name
