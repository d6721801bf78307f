# SPDX-License-Identifier: Apache-2.0
"""The course of a profile: measurements one after the other, each with its share of the time that is left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

from headrace.measuring import NoiseMonitor

MIN_SECONDS = 0.1
"""For a measurement, however little time is left."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a profile is."""

    doing: str
    """What is being measured."""
    number: int
    total: int
    seconds: float
    """Since it began."""
    seconds_left: float
    """Of its time."""
    found: tuple[str, ...]
    """What was measured so far, a line each."""


ProgressHook = Callable[[Progress], None]


@dataclass(slots=True)
class _Phase:
    name: str
    weight: float
    work: Callable[[float], str | None]
    vital: bool
    optional: bool
    needed: bool


class OutOfTime(Exception):
    """A measurement was ended: the profile has promised to be done by now."""


@dataclass(slots=True)
class Course:
    """Phases in turn. One that cannot be measured is noted and the next one begins; Ctrl-C ends them all."""

    seconds: float
    """To divide among the phases."""
    hook: ProgressHook | None = None
    latest: float = math.inf
    """Seconds after which nothing long goes on."""
    watch: NoiseMonitor | None = None
    """Looks whether the machine has something else to do."""
    notes: list[str] = field(default_factory=list)
    complete: bool = True
    interrupted: bool = False
    missing: list[str] = field(default_factory=list)
    """Measurements that a verdict needs and that were not made."""
    _phases: list[_Phase] = field(default_factory=list)
    _found: list[str] = field(default_factory=list)
    _begun: float = field(default_factory=time.perf_counter)
    _number: int = 0

    def add(
        self,
        name: str,
        weight: float,
        work: Callable[[float], str | None],
        *,
        vital: bool = False,
        optional: bool = False,
        needed: bool = True,
    ) -> None:
        """Append a measurement.

        Args:
            name: What is measured, for people.
            weight: Its share of the time, beside the other phases' weights.
            work: Is called with its seconds, and gives a line about what it found, or None for nothing.
            vital: Whether an error in it ends the profile.
            optional: Whether it is left out if the time is over. The others are then short, for without them there
                would be no verdict.
            needed: Whether there is no verdict on a stage without it. Optional measurements are never needed.

        """
        self._phases.append(_Phase(name, weight, work, vital, optional, needed and not optional))

    @property
    def spent(self) -> float:
        return time.perf_counter() - self._begun

    @property
    def left(self) -> float:
        return self.seconds - self.spent

    def run(self) -> None:
        """Measure. KeyboardInterrupt is raised only where it came before anything was found."""
        try:
            for phase in self._phases:
                self._run(phase)
                self._number += 1
            self._tell("")
        except KeyboardInterrupt:
            if not self._found:
                raise
            remaining = self._phases[self._number :]
            if remaining:
                self.interrupted, self.complete = True, False
                self.missing += [phase.name for phase in remaining if phase.needed]
                self.notes.append(f"interrupted while measuring: {remaining[0].name}")

    @property
    def disturbed(self) -> tuple[str, ...]:
        """What was measured while other programs kept the machine busy."""
        return () if self.watch is None else self.watch.disturbed

    def _run(self, phase: _Phase) -> None:
        if self.left <= 0 and phase.optional:
            self._leave_out(phase, f"there was no time left for: {phase.name}")
            return
        self._tell(phase.name)
        remaining = sum(other.weight for other in self._phases[self._number :])
        try:
            with nullcontext() if self.watch is None else self.watch.during(phase.name):
                line = phase.work(max(MIN_SECONDS, self.left * phase.weight / remaining))
        except OutOfTime:
            self._leave_out(phase, f"there was not enough time for: {phase.name}")
        except Exception as error:
            if phase.vital:
                raise
            # Files that vanish, functions of the user's that want to be called otherwise: the rest is worth having.
            self._leave_out(phase, f"{phase.name} could not be measured: {type(error).__name__}: {error}")
        else:
            if line is not None:
                self._found.append(f"{phase.name}: {line}")

    def _leave_out(self, phase: _Phase, why: str) -> None:
        self.complete = False
        self.missing += [phase.name] if phase.needed else []
        self.notes.append(why)

    def go_on(self, doing: str) -> None:
        """Tell what a long phase has come to; raises OutOfTime if it should have been over."""
        if self.spent > self.latest:
            raise OutOfTime
        self._tell(doing)

    def _tell(self, doing: str) -> None:
        if self.hook is not None:
            self.hook(Progress(doing, self._number, len(self._phases), self.spent, self.left, tuple(self._found)))
