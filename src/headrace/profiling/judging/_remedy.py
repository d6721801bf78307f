# SPDX-License-Identifier: Apache-2.0
"""One remedy: the rate that a changed model predicts, and the command or code that makes the change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headrace.planning.commands import command_line, usual_dataset_path
from headrace.profiling._measurements import Measurements
from headrace.profiling.judging._model import RunModel

RemedyKind = Literal["records", "format", "plan", "workers", "cores", "cache", "offload", "collate", "stage"]

MIN_GAIN = 1.03
"""Predictions are not exact enough for a smaller gain."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """A change, and the rate that it would give."""

    kind: RemedyKind
    title: str
    rate: float
    """Predicted images per second in training."""
    gain: float
    """Predicted rate over today's rate."""
    rank: int = 1
    """Position in the list; remedies that differ by less than the uncertainty share a rank."""
    command: str = ""
    """Shell commands, one per line, that run as printed; may be empty."""
    code: str = ""
    """Keyword arguments for the loader, as Python; may be empty."""
    why: str
    at_most: bool = False
    """True if the rate is an upper bound and not a prediction."""


def make_remedy(kind: RemedyKind, title: str, rate: float, *, now: RunModel, **members: Any) -> Remedy:
    """Make a remedy from a predicted rate, limited to the trainer's ceiling; `members` are other fields of it."""
    rate = min(rate, now.trainer_ceiling)
    return Remedy(kind=kind, title=title, rate=rate, gain=rate / now.rate, **members)


def is_foreign(measurements: Measurements) -> bool:
    """Whether the loader is not Headrace's; the formats of its images are then unknown."""
    return measurements.source.kind == "loader" and not measurements.source.formats


def source_path(measurements: Measurements) -> str | None:
    """Return the path from which a command can read the images; None if unknown."""
    source = measurements.source
    return source.path or (None if source.kind == "loader" else source.name)


def run_options(measurements: Measurements) -> tuple[str, ...] | None:
    """Return the options of `headrace plan` and `headrace profile` for this run; None if no options can."""
    options, found = measurements.recipe.options, measurements.differential
    if options is None:
        return None
    step = () if found is None or not found.step_seconds else ("--step-ms", f"{found.step_seconds * 1e3:.6g}")
    emulated = () if measurements.machine.emulated is None else ("--emulate", measurements.machine.emulated)
    return (*options, *step, *emulated)


def build_command(measurements: Measurements, *options: str) -> str:
    """Return the command that builds a new dataset; empty if the source is unknown."""
    path, source = source_path(measurements), measurements.source
    if path is None:
        return ""
    target = source.build_to or usual_dataset_path(path, is_dataset=source.kind != "folder")
    return command_line("headrace", "build", path, target, options)
