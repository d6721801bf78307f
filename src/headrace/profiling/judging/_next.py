# SPDX-License-Identifier: Apache-2.0
"""What to do after a profile: the one command, or the one change to the code, that comes next."""

from __future__ import annotations

from headrace.planning.commands import command_line
from headrace.profiling._measurements import Measurements
from headrace.profiling.judging._remedy import run_options, source_path
from headrace.profiling.judging._verdict import Verdict

_PLANNED = ("format", "device", "plan")


def next_step(measurements: Measurements, verdict: Verdict, report: str | None = None) -> str | None:
    """Name the next step; None if there is nothing to do.

    Args:
        measurements: Of the profile.
        verdict: On these.
        report: The folder in which the report was saved, if it was: a plan then measures nothing again.

    """
    if measurements.interrupted:
        return "run the same command again, to its end"
    if not verdict.remedies or verdict.kind == "unknown":
        return None
    first, path = verdict.remedies[0], source_path(measurements)
    options = run_options(measurements)
    if first.kind in _PLANNED and path is not None:
        if report is not None and measurements.calibration is not None:
            return command_line("headrace", "plan", path, ("--report", report, "-o", "plan.json"))
        if options is not None:
            return command_line("headrace", "plan", path, options, ("-o", "plan.json"))
    if first.command:
        return " && ".join(first.command.splitlines())
    return f"give your loader {first.code}" if first.code else first.title
