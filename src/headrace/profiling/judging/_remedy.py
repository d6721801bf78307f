# SPDX-License-Identifier: Apache-2.0
"""One remedy, and how one is made: the rate that a changed pipeline has, and the command that changes it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

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
    """Images a second, training."""
    gain: float
    """Times today's rate."""
    command: str
    """Lines for a shell, or for Python."""
    why: str
    at_most: bool = False
    """Whether the rate is what the change could give at best, not what it will."""


def offer(
    kind: RemedyKind,
    title: str,
    rate: float,
    *,
    now: Pipeline,
    command: str,
    why: str,
    at_most: bool = False,
) -> Remedy:
    """Make a remedy of a predicted rate, which the trainer's ceiling bounds."""
    ceilings = [load.ceiling for load in now.loads if load.stage == "step" and load.place == "trainer"]
    bounded = min([rate, *ceilings])
    gain = bounded / now.rate
    return Remedy(kind=kind, title=title, rate=bounded, gain=gain, command=command, why=why, at_most=at_most)


def is_foreign(measurements: Measurements) -> bool:
    """Whether the run has someone else's loader, which does not say in what format its images are."""
    return measurements.source.kind == "loader" and not measurements.source.formats


def source_word(measurements: Measurements) -> str:
    """The source, as a shell takes it; what a loader was made from is for the user to say."""
    return "SOURCE" if measurements.source.kind == "loader" else _word(measurements.source.name)


def build_command(measurements: Measurements, option: str) -> str:
    """Build a new dataset beside the source."""
    name, kind = measurements.source.name, measurements.source.kind
    if kind == "loader":
        return f"headrace build SOURCE SOURCE.hr {option}"
    if kind == "dataset":
        target = f"{name.rstrip('/').removesuffix('.hr')}.new.hr"
    else:
        target = f"{name.rstrip('/')}.hr" if PurePath(name).name not in ("", "..") else "dataset.hr"
    return f"headrace build {source_word(measurements)} {_word(target)} {option}"


def _word(path: str) -> str:
    """Quote a path, and keep one that begins with a dash from being taken for an option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)
