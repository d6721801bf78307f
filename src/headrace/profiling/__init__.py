# SPDX-License-Identifier: Apache-2.0
"""The bottleneck study: what starves the training, by how much, and what would mend it."""

from __future__ import annotations

from headrace.profiling._course import Progress
from headrace.profiling._live import shown
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
from headrace.profiling._remedy import Remedy
from headrace.profiling._report import Report
from headrace.profiling._storage import ReadRate, measure_raw_files, measure_records
from headrace.profiling._verdict import Verdict, judge

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
