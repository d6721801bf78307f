# SPDX-License-Identifier: Apache-2.0
"""One remedy, and how one is made: the rate that a changed pipeline has, and the command or code that changes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.planning.commands import command_line, usual_dataset_path
from headrace.profiling._measurements import Measurements
from headrace.profiling.judging._pipeline import Pipeline

RemedyKind = Literal["records", "format", "device", "plan", "workers", "cores", "cache", "near", "collate", "stage"]

WORTHWHILE = 1.03
"""A smaller gain than this is within what such predictions are off by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """A change, and what it would give."""

    kind: RemedyKind
    title: str
    rate: float
    """ImageSample a second, training."""
    gain: float
    """Times today's rate."""
    rank: int = 1
    """Its place in the list. Remedies of one rank differ by less than the figures are wide."""
    command: str = ""
    """Lines for a shell that run as printed; empty if no command applies the change."""
    code: str = ""
    """Keyword arguments to give to the loader, as Python; empty if none apply the change."""
    why: str
    at_most: bool = False
    """Whether the rate is what the change could give at best, not what it will."""


def offer(
    kind: RemedyKind,
    title: str,
    rate: float,
    *,
    now: Pipeline,
    why: str,
    command: str = "",
    code: str = "",
    at_most: bool = False,
) -> Remedy:
    """Make a remedy of a predicted rate, which the trainer's ceiling bounds."""
    bounded = min(rate, trainer_ceiling(now))
    gain = bounded / now.rate
    return Remedy(kind=kind, title=title, rate=bounded, gain=gain, command=command, code=code, why=why, at_most=at_most)


def trainer_ceiling(now: Pipeline) -> float:
    """What the trainer could take; infinite where it was not measured."""
    return min(
        (load.ceiling for load in now.loads if load.stage == "step" and load.place == "trainer"), default=float("inf")
    )


def is_foreign(measurements: Measurements) -> bool:
    """Whether the run has someone else's loader, which does not say in what format its images are."""
    return measurements.source.kind == "loader" and not measurements.source.formats


def source_path(measurements: Measurements) -> str | None:
    """What a command can read the images from; None where only the user knows."""
    source = measurements.source
    return source.path or (None if source.kind == "loader" else source.name)


def run_options(measurements: Measurements) -> tuple[str, ...] | None:
    """Options of `headrace plan` and `headrace profile` that describe this run; None if options cannot."""
    options, found = measurements.recipe.options, measurements.differential
    if options is None:
        return None
    step = () if found is None or not found.step_seconds else ("--step-ms", f"{found.step_seconds * 1e3:.6g}")
    emulated = () if measurements.machine.emulated is None else ("--emulate", measurements.machine.emulated)
    return (*options, *step, *emulated)


def build_target(measurements: Measurements) -> str | None:
    """Where a new dataset goes; None where the source is not known."""
    path = source_path(measurements)
    if path is None:
        return None
    return measurements.source.build_to or usual_dataset_path(path, is_dataset=measurements.source.kind != "folder")


def build_command(measurements: Measurements, *options: str) -> str:
    """Build a new dataset from the source; without a known source there is no command."""
    path, target = source_path(measurements), build_target(measurements)
    return "" if path is None or target is None else command_line("headrace", "build", path, target, options)
