# SPDX-License-Identifier: Apache-2.0
"""The phases of a profile: each takes the findings so far and returns new ones; the schedule divides the time.

Findings are immutable, so Ctrl-C or a failing phase keeps the results of all phases before it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from headrace.measuring import NoiseMonitor
from headrace.profiling._measurements import Differential, Measurements, Stage, StageName
from headrace.profiling.stages._runs import TimedRun

MIN_SECONDS = 0.1
"""For a phase, even if no time is left."""
_ORDER = get_args(StageName)


@dataclass(frozen=True, slots=True)
class ProfileProgress:
    """Progress of a profile."""

    doing: str
    """The current measurement; empty at the end."""
    number: int
    total: int
    seconds: float
    """Elapsed."""
    seconds_left: float
    found: tuple[str, ...]
    """What was measured so far, one line each."""


ProgressHook = Callable[[ProfileProgress], None]


@dataclass(frozen=True, slots=True)
class Findings:
    """What the phases have measured so far."""

    measurements: Measurements
    loader_run: TimedRun | None = None
    """The loader alone; the trainer runs on its batch."""
    summary: str | None = None
    """One line about the last phase, for the progress display."""

    def add(
        self,
        summary: str | None,
        *,
        stages: Sequence[Stage] = (),
        notes: Sequence[str] = (),
        differential: Mapping[str, Any] | None = None,
        loader_run: TimedRun | None = None,
        **changes: Any,
    ) -> Findings:
        """Return findings with more stages and notes, and with other fields of the measurements replaced."""
        found = self.measurements
        if differential:
            changes["differential"] = replace(found.differential or Differential(), **differential)
        in_order = sorted((*found.stages, *stages), key=lambda stage: _ORDER.index(stage.name))
        changes |= {"stages": tuple(in_order), "notes": (*found.notes, *notes)}
        return Findings(replace(found, **changes), loader_run or self.loader_run, summary)


@dataclass(frozen=True, slots=True)
class Phase:
    """One measurement."""

    name: str
    weight: float
    """Its share of the time, relative to the other phases."""
    measure: Callable[[Findings, float], Findings]
    """Called with the findings so far and the seconds it may take."""
    importance: Literal["essential", "needed", "useful", "optional"] = "needed"
    """An error in an essential phase ends the profile. Without an essential or needed phase there is no verdict on a
    stage. An optional phase is skipped if no time is left; the others are then short."""

    @property
    def is_needed(self) -> bool:
        return self.importance in ("essential", "needed")


class OutOfTime(Exception):
    """Raised by a phase to end itself: the profile must be done by now."""


class Schedule:
    """Runs phases one after the other. One that fails is noted and the next one starts; Ctrl-C ends them all."""

    def __init__(
        self,
        seconds: float,
        hook: ProgressHook | None = None,
        *,
        latest: float = math.inf,
        monitor: NoiseMonitor | None = None,
    ) -> None:
        """Divide `seconds` among the phases; after `latest` seconds no long phase continues."""
        self._seconds, self._hook, self.latest, self._monitor = seconds, hook, latest, monitor
        self._begun = time.perf_counter()
        self._phases: Sequence[Phase] = ()
        self._number = 0
        self._lines: tuple[str, ...] = ()

    @property
    def spent(self) -> float:
        return time.perf_counter() - self._begun

    @property
    def left(self) -> float:
        return self._seconds - self.spent

    def run(self, phases: Sequence[Phase], start: Measurements) -> Measurements:
        """Run all phases and return what they measured; KeyboardInterrupt only if nothing was measured yet."""
        self._phases, found = phases, Findings(start)
        try:
            for number, phase in enumerate(phases):
                self._number = number
                found = self._run_phase(phase, found)
            self._number = len(phases)
            self._report("")
        except KeyboardInterrupt:
            if not self._lines:
                raise
            remaining = phases[self._number :]
            if remaining:
                found = _failed(found, f"interrupted while measuring: {remaining[0].name}", remaining)
                found = replace(found, measurements=replace(found.measurements, interrupted=True))
        return replace(
            found.measurements,
            seconds=self.spent,
            other_load=() if self._monitor is None else tuple(self._monitor.disturbed),
            notes=tuple(dict.fromkeys(found.measurements.notes)),
        )

    def _run_phase(self, phase: Phase, found: Findings) -> Findings:
        if self.left <= 0 and phase.importance == "optional":
            return _failed(found, f"no time was left for: {phase.name}", [phase])
        self._report(phase.name)
        remaining = sum(other.weight for other in self._phases[self._number :])
        try:
            with nullcontext() if self._monitor is None else self._monitor.during(phase.name):
                found = phase.measure(found, max(MIN_SECONDS, self.left * phase.weight / remaining))
        except OutOfTime:
            return _failed(found, f"there was not enough time for: {phase.name}", [phase])
        except Exception as error:
            if phase.importance == "essential":
                raise
            # Files may vanish and a user's function may fail when called alone: the other results are still useful.
            return _failed(found, f"{phase.name} could not be measured: {type(error).__name__}: {error}", [phase])
        if found.summary is not None:
            self._lines += (f"{phase.name}: {found.summary}",)
        return found

    def update(self, doing: str) -> None:
        """Report the progress of a long phase; raises OutOfTime if it must end."""
        if self.spent > self.latest:
            raise OutOfTime
        self._report(doing)

    def _report(self, doing: str) -> None:
        if self._hook is not None:
            total = len(self._phases)
            self._hook(ProfileProgress(doing, self._number, total, self.spent, self.left, self._lines))


def _failed(found: Findings, why: str, phases: Sequence[Phase]) -> Findings:
    missing = (*found.measurements.missing, *(phase.name for phase in phases if phase.is_needed))
    return found.add(None, notes=[why], complete=False, missing=missing)
