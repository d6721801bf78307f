# SPDX-License-Identifier: Apache-2.0
"""The bottleneck study: what the training waits for, by how much, and what would fix it.

`subjects/` knows what can be profiled and in which phases, `stages/` measures each stage alone, `judging/` derives the
verdict by arithmetic alone, and `report/` prints and draws it. `Measurements` pass from one to the next.
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
from headrace.profiling.judging._judge import judge
from headrace.profiling.judging._remedy import Remedy
from headrace.profiling.judging._verdict import Verdict
from headrace.profiling.report._live import shown
from headrace.profiling.report._report import Report
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
    "RecipeSummary",
    "Remedy",
    "Report",
    "Source",
    "Stage",
    "Verdict",
    "WhatIf",
    "WhatIfPoint",
    "judge",
    "profile",
    "shown",
]
