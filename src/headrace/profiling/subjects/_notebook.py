# SPDX-License-Identifier: Apache-2.0
"""What was measured so far, growing phase by phase, until it is frozen into `Measurements`."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.measuring import WATTS_PER_CORE, available_memory, cpu_name, estimated_joules
from headrace.profiling._measurements import (
    Differential,
    Energy,
    FormatCost,
    Machine,
    Measurements,
    Memory,
    Mix,
    RawAndRecords,
    RecipeSummary,
    Source,
    Stage,
)
from headrace.profiling.stages._differential import Run
from headrace.profiling.subjects._course import Course


@dataclass(slots=True)
class Notebook:
    """Findings by name; each is replaced as more becomes known."""

    machine: Machine
    source: Source
    recipe: RecipeSummary = field(default_factory=RecipeSummary)
    stages: list[Stage] = field(default_factory=list)
    differential: dict[str, Any] = field(default_factory=dict)
    reads_cold: bool | None = None
    raw_and_records: RawAndRecords | None = None
    formats: tuple[FormatCost, ...] = ()
    mix: Mix | None = None
    calibration: dict[str, Any] | None = None
    memory: Memory | None = None
    energy: Energy | None = None
    notes: list[str] = field(default_factory=list)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def note_energy(self, run: Run, joules: float | None, meter: str | None, watts: float = WATTS_PER_CORE) -> None:
        """Note what an image took: as counted, or else as estimated from the run's CPU time."""
        images = max(1, run.total_images)
        if joules is not None and meter is not None:
            self.energy = Energy(joules=joules / images, estimated=False, meter=meter)
        else:
            estimate = estimated_joules(run.cost.cpu_seconds, watts)
            self.energy = Energy(joules=estimate / images, estimated=True, meter="cpu time", watts=watts)

    def freeze(self, course: Course) -> Measurements:
        from headrace import __version__  # noqa: PLC0415 - the front door, which knows this room

        return Measurements(
            machine=self.machine,
            source=self.source,
            recipe=self.recipe,
            stages=tuple(self.stages),
            differential=Differential(**self.differential) if self.differential else None,
            reads_cold=self.reads_cold,
            raw_and_records=self.raw_and_records,
            formats=self.formats,
            mix=self.mix,
            calibration=self.calibration,
            memory=self.memory,
            energy=self.energy,
            complete=course.complete,
            interrupted=course.interrupted,
            missing=tuple(course.missing),
            seconds=course.spent,
            started=self.started,
            headrace=__version__,
            disturbed=course.disturbed,
            notes=tuple(dict.fromkeys((*self.notes, *course.notes))),
        )


def describe_machine(cores: int, path: Path | None, emulated: str | None) -> Machine:
    """Say where this is."""
    return Machine(
        cores=cores,
        processor=cpu_name(),
        memory_bytes=available_memory(),
        storage=None if path is None else describe_storage(path),
        accelerator=_accelerator(),
        system=f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        emulated=emulated,
    )


def describe_storage(path: Path) -> str | None:
    """The file system that a path lies on, and its device, as the kernel names them."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text(errors="replace").splitlines()]
        place = path.resolve()
    except OSError:
        return None
    holding = [mount for mount in mounts if place.is_relative_to(mount[1])]
    if not holding:
        return None
    device, _, kind = max(holding, key=lambda mount: len(mount[1]))[:3]
    return f"{kind} on {device}"


def _accelerator() -> str | None:
    """The device that PyTorch would use, if it was imported already: nothing is imported for a name."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_name())
