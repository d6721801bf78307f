# SPDX-License-Identifier: Apache-2.0
"""The bottleneck study: what the training waits for, by how much, and what would fix it.

`subjects/` knows what can be profiled and in what course, `measuring/` has the instruments, `judging/` makes a verdict
of the figures by arithmetic alone, and `showing/` tells people. What passes from one to the next are `Measurements`.
"""

from __future__ import annotations

from headrace.profiling._measurements import (
    Differential,
    Energy,
    FormatCost,
    Machine,
    Measurements,
    Memory,
    Mix,
    NearProng,
    Rate,
    RawAndRecords,
    RecipeSummary,
    Source,
    Stage,
    WhatIf,
    WhatIfPoint,
)
from headrace.profiling._profile import profile
from headrace.profiling._report import Report
from headrace.profiling.judging._judge import judge
from headrace.profiling.judging._remedy import Remedy
from headrace.profiling.judging._verdict import Verdict
from headrace.profiling.measuring._storage import ReadRate, measure_raw_files, measure_records
from headrace.profiling.showing._live import shown
from headrace.profiling.subjects._course import Progress

__all__ = [
    "Differential",
    "Energy",
    "FormatCost",
    "Machine",
    "Measurements",
    "Memory",
    "Mix",
    "NearProng",
    "Progress",
    "Rate",
    "RawAndRecords",
    "ReadRate",
    "RecipeSummary",
    "Remedy",
    "Report",
    "Source",
    "Stage",
    "Verdict",
    "WhatIf",
    "WhatIfPoint",
    "judge",
    "measure_raw_files",
    "measure_records",
    "profile",
    "shown",
]
