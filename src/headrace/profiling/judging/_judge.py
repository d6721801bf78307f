# SPDX-License-Identifier: Apache-2.0
"""`judge`: the verdict on a profile's measurements, checked against its own figures."""

from __future__ import annotations

from dataclasses import replace

from headrace.profiling._measurements import Measurements
from headrace.profiling.judging._consistency import contradictions
from headrace.profiling.judging._reconcile import run_pipeline
from headrace.profiling.judging._verdict import Verdict, find_verdict


def judge(measurements: Measurements) -> Verdict:
    """Give the verdict on what was measured. Figures that contradict one another are named among its cautions."""
    pipeline = run_pipeline(measurements)
    verdict = find_verdict(measurements, pipeline)
    found = contradictions(measurements, verdict, pipeline)
    cautions = (f"Two figures of this report contradict each other: {each}." for each in found)
    return replace(verdict, cautions=(*verdict.cautions, *cautions))
