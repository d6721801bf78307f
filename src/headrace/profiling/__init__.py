# SPDX-License-Identifier: Apache-2.0
"""The bottleneck study: what training waits for, by how much, and what would fix it.

`subjects/` lists the phases for each kind of subject, `stages/` measures each stage, `judging/` computes the
verdict, and `report/` prints and draws it. `Measurements` are passed from one to the next.
"""

from __future__ import annotations

from headrace.profiling._measurements import (
    Differential,
    Energy,
    FormatCost,
    FormatMix,
    MachineFacts,
    Measurements,
    Memory,
    ProfiledSource,
    Rate,
    RawAndRecords,
    RecipeSummary,
    Stage,
)
from headrace.profiling._profile import profile
from headrace.profiling.judging._remedy import Remedy
from headrace.profiling.judging._verdict import Verdict, judge
from headrace.profiling.report._report import Report
from headrace.profiling.report._text import shown
from headrace.profiling.subjects._schedule import ProfileProgress

__all__ = [
    "Differential",
    "Energy",
    "FormatCost",
    "FormatMix",
    "MachineFacts",
    "Measurements",
    "Memory",
    "ProfileProgress",
    "ProfiledSource",
    "Rate",
    "RawAndRecords",
    "RecipeSummary",
    "Remedy",
    "Report",
    "Stage",
    "Verdict",
    "judge",
    "profile",
    "shown",
]
