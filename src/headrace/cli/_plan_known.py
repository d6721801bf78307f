# SPDX-License-Identifier: Apache-2.0
"""What `headrace plan` need not measure: costs, a machine and a step, from an earlier plan or a profile's report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from headrace.planning import Calibration, Machine
    from headrace.profiling import Report


@dataclass(frozen=True, slots=True)
class Known:
    """What is known already; None is not."""

    calibration: Calibration | None = None
    storage_rate: float | None = None
    cores: float | None = None
    trainer_cores: float = 0.0
    link_rate: float | None = None
    step: float = 0.0
    emulated: bool = False
    report: Report | None = None

    def machine(self, source: str | None, calibration: Calibration, emulate: str | None) -> Machine:
        """The machine to plan for: what is emulated, else what is known, else what can be measured."""
        from headrace import planning  # noqa: PLC0415 - brings the loader, which other verbs do not need

        told = planning.parse_emulation(emulate or "")
        known = {"storage_rate": self.storage_rate, "cores": self.cores, "link_rate": self.link_rate}
        rates = {name: value for name, value in known.items() if value is not None} | told
        found = planning.find_machine(source, calibration, **rates, trainer_cores=self.trainer_cores)
        return found.replace(emulated=bool(told) or self.emulated)


def find_known(given: Path | None, report: Path | None) -> Known:
    """Read an earlier plan, or a report; a calibration by itself will do too."""
    if given is not None and report is not None:
        raise typer.BadParameter("--calibration and --report both have costs: give one of them")
    if given is not None:
        return _of_plan(given)
    return Known() if report is None else _of_report(report)


def _of_plan(path: Path) -> Known:
    from headrace import planning  # noqa: PLC0415
    from headrace.planning.documents import Document, read_json  # noqa: PLC0415

    read = Document(read_json(path, "plan"), str(path))
    if "calibration" not in read.value:
        return Known(planning.Calibration.from_json(read.value))
    plan = planning.Plan.from_json(read.value)
    return Known(
        plan.calibration,
        storage_rate=plan.machine.storage_rate,
        cores=plan.machine.cores,
        trainer_cores=plan.machine.trainer_cores,
        link_rate=plan.machine.link_rate,
        step=plan.step,
        emulated=plan.machine.emulated,
    )


def _of_report(folder: Path) -> Known:
    from headrace import planning, profiling  # noqa: PLC0415

    report = profiling.Report.load(folder)
    found = report.measurements
    costs = None if found.calibration is None else planning.Calibration.from_json(found.calibration)
    reads = [stage for stage in found.stages if stage.name == "read" and stage.n_bytes]
    rates = [rate.rate * (stage.n_bytes or 0) for stage in reads for rate in stage.cold_rates]
    trainer: Any = found.differential
    return Known(
        costs,
        # Epochs that read from memory do not wait for storage: the plan is for the run that the profile measured.
        storage_rate=max(rates, default=None) if found.reads_from_storage else math.inf,
        cores=found.machine.cores,
        trainer_cores=0.0 if trainer is None or trainer.stated else trainer.trainer_cores or 0.0,
        step=0.0 if trainer is None else trainer.step_seconds or 0.0,
        emulated=found.machine.emulated is not None,
        report=report,
    )
