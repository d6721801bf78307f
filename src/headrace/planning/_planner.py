# SPDX-License-Identifier: Apache-2.0
"""`headrace.plan`: measure the images and the machine, and return the best mix of formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

from headrace.documents import load_json
from headrace.planning._calibrate import ProgressHook, RecipeSource, calibrate
from headrace.planning._machine import find_machine, parse_emulation
from headrace.planning._model import Calibration, Machine
from headrace.planning._plan import Plan
from headrace.planning._search import find_solver
from headrace.planning._solve import solve
from headrace.units import parse_bytes


def plan(
    source: Any = None,
    *,
    step: float | None = None,
    disk_budget: float | str | None = None,
    emulate: str | None = None,
    renditions: int = 1,
    recipe: RecipeSource | None = None,
    transform: Any = None,
    crop: int | None = None,
    batch_size: int | None = None,
    formats: Sequence[str] | None = None,
    calibration: Calibration | Plan | Mapping[str, Any] | str | PathLike[str] | None = None,
    machine: Machine | None = None,
    quick: bool = False,
    workdir: str | PathLike[str] | None = None,
    progress: ProgressHook | None = None,
) -> Plan:
    """Find the mix of formats with which this machine prepares the most images per second.

    A sample of the images is stored in each format and loaded as in training, and storage is measured. A linear program
    then divides the images among the formats. Takes about half a minute; needs the extra `plan`.

    Without a disk budget each doubling of the dataset's size must make the run at least 10 % faster.

    Args:
        source: A dataset or its path, or any source that `headrace.build` accepts. Not needed with a calibration.
        step: Seconds of a training step per batch. Default: the earlier plan's, or 0, which is no trainer.
        disk_budget: Take the fastest mix that fits in this many bytes, or in a size such as `"500GB"`.
        emulate: Plan for another machine, as in `"storage=200MB/s,cores=2"`.
        renditions: With 2, every image is stored in two formats, and the loader chooses while it runs.
        recipe: A `Recipe`, its JSON object or its file, instead of a transform.
        transform: As for `Loader`. Default: a random crop, a flip, and normalization.
        crop: Side of the default transform's crop in pixels (default 224).
        batch_size: Images per batch (default: the recipe's, or 64).
        formats: Consider only these. Default: the lossless formats, and the source's own files.
        calibration: Costs that were measured earlier, instead of a measurement: a `Calibration`, a `Plan`, or the JSON
            object or file of either. A plan's machine and step are used too.
        machine: The machine to plan for. Default: the earlier plan's, or this one, whose storage is measured.
        quick: Measure fewer images and repeats: a few seconds, and less exact.
        workdir: Folder for temporary files. Default: the system's.
        progress: Called before each step with the finished steps, all steps, and a description of the next one.

    Raises:
        InfeasiblePlan: No format fits the disk budget.
        MissingExtra: SciPy is not installed.

    """
    # Everything that can be checked is checked before anything is measured.
    emulated: dict[str, Any] = {**parse_emulation(emulate or "")}
    budget = parse_bytes(disk_budget) if isinstance(disk_budget, str) else disk_budget
    find_solver()
    known = KnownCosts() if calibration is None else KnownCosts.read(calibration)
    costs = known.calibration
    if costs is not None:
        if any(each is not None for each in (recipe, transform, crop, batch_size)):
            raise ValueError(
                "the costs were measured with their own transforms and batch size: "
                "omit recipe, transform, crop and batch_size"
            )
    elif source is None:
        raise ValueError("give a source to measure, or a calibration that was measured earlier")
    else:
        costs = calibrate(
            source,
            recipe=recipe,
            transform=transform,
            crop=crop,
            batch_size=batch_size,
            formats=formats,
            quick=quick,
            workdir=workdir,
            progress=progress,
        )
    step = known.step if step is None else step
    machine = machine or known.machine
    if machine is None:
        machine = find_machine(source, costs, **emulated)
    elif emulated:
        machine = replace(machine, **emulated, emulated=True)
    return solve(costs, machine, step=step or 0.0, disk_budget=budget, formats=formats, renditions=renditions)


@dataclass(frozen=True, slots=True)
class KnownCosts:
    """What an earlier plan, calibration or report has measured; None is not known."""

    calibration: Calibration | None = None
    machine: Machine | None = None
    step: float | None = None

    @classmethod
    def read(cls, given: Calibration | Plan | Mapping[str, Any] | str | PathLike[str]) -> KnownCosts:
        """Read a calibration or an earlier plan, from itself, its JSON object or its file."""
        if isinstance(given, Calibration):
            return cls(given)
        if not isinstance(given, Plan):
            tree = load_json(given, "plan")
            if not isinstance(tree, Mapping) or "calibration" not in tree:
                return cls(Calibration.from_json(tree))
            given = Plan.from_json(tree)
        return cls(given.calibration, given.machine, given.step)
