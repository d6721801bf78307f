# SPDX-License-Identifier: Apache-2.0
"""`Loader(plan=…)`: check that a dataset has the formats of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from headrace.errors import PlanMismatch
from headrace.records import Dataset
from headrace.records.plan import Mix, load_plan, parse_mixes
from headrace.records.schema import stored_format

# The keys of samples decide their formats, so a format that is planned for fewer samples than this may have none.
_MIN_EXPECTED = 20


def check_plan(
    dataset: Dataset, plan: Mapping[str, Any] | str | PathLike[str] | None, fields: tuple[str, ...]
) -> dict[str, Any] | None:
    """Return the plan as JSON, checked against the dataset. Fields that are not loaded are not checked.

    Raises:
        ValueError: It is not a valid plan.
        PlanMismatch: The dataset was built with another plan.

    """
    if plan is None:
        return None
    checked = load_plan(plan if isinstance(plan, Mapping) else Path(plan))
    for name, mix in parse_mixes(checked).items():
        if name not in dataset.formats:
            known = ", ".join(dataset.formats) or "none"
            raise PlanMismatch(f"the plan has a field {name!r}; the image fields of {dataset.path} are {known}")
        if name in fields:
            _check_field(dataset, name, mix)
    return checked


def planned_figures(plan: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the part of a plan that `Loader.stats` reports, to compare with what was measured."""
    return None if plan is None else {"fields": plan["fields"], "predicted": plan.get("predicted")}


def _check_field(dataset: Dataset, name: str, mix: Mix) -> None:
    counts = dataset.formats[name]
    stored = next(field.renditions for field in dataset.manifest.fields if field.name == name)
    remedy = "build it again with `headrace build --plan`, or load it without a plan"
    if stored < mix.renditions:
        raise PlanMismatch(
            f"the plan has {mix.renditions} renditions of {name!r} per sample; {dataset.path} has {stored}: {remedy}"
        )
    found = ", ".join(counts) or "no images"
    planned = {stored_format(each) for each in mix.formats}
    if stored == mix.renditions and set(counts) - planned:
        raise PlanMismatch(
            f"the plan has {name!r} as {', '.join(sorted(planned))}; {dataset.path} has {found}: {remedy}"
        )
    start = 0.0
    for planned_format, end in zip(mix.formats, mix.ends, strict=True):
        share, start = end - start, end
        format_name = stored_format(planned_format)
        if share * dataset.manifest.samples >= _MIN_EXPECTED and not counts.get(format_name):
            raise PlanMismatch(
                f"the plan has {share:.0%} of {name!r} as {format_name}; {dataset.path} has {found}: {remedy}"
            )
