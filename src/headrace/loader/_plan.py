# SPDX-License-Identifier: Apache-2.0
"""`Loader(plan=…)`: whether a dataset has what a plan wants of it. The formats themselves are in the dataset."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from headrace.errors import PlanMismatch
from headrace.records import Dataset
from headrace.records.plan import Mix, load_plan, parse_mixes
from headrace.records.schema import stored_format

# A format that fewer samples than this are to have may well have none: their keys decide.
_LEAST_EXPECTED = 20


def obeyed_plan(
    dataset: Dataset, plan: Mapping[str, Any] | str | PathLike[str] | None, fields: tuple[str, ...]
) -> dict[str, Any] | None:
    """Give the plan as JSON has it, checked against the dataset; of fields that are not loaded nothing is asked.

    Raises:
        ValueError: It is no plan.
        PlanMismatch: The dataset was built by another.

    """
    if plan is None:
        return None
    checked = load_plan(plan if isinstance(plan, Mapping) else Path(plan))
    for name, mix in parse_mixes(checked).items():
        if name not in dataset.formats:
            known = ", ".join(dataset.formats) or "none"
            raise PlanMismatch(f"the plan has a field {name!r}; the images and masks of {dataset.path} are {known}")
        if name in fields:
            _check_field(dataset, name, mix)
    return checked


def planned_figures(plan: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the part of a plan that `Loader.stats` reports, to compare with what was measured."""
    return None if plan is None else {"fields": plan["fields"], "predicted": plan.get("predicted")}


def _check_field(dataset: Dataset, name: str, mix: Mix) -> None:
    counts = dataset.formats[name]
    stored = next(field.renditions for field in dataset.manifest.fields if field.name == name)
    remedy = "build it anew with `headrace build --plan`, or load it without a plan"
    if stored < mix.renditions:
        raise PlanMismatch(
            f"the plan wants {mix.renditions} renditions of {name!r} a sample; {dataset.path} has {stored}: {remedy}"
        )
    found = ", ".join(counts) or "nothing"
    planned = {stored_format(each) for each in mix.formats}
    if stored == mix.renditions and set(counts) - planned:
        raise PlanMismatch(
            f"the plan wants {name!r} as {', '.join(sorted(planned))}; {dataset.path} has {found}: {remedy}"
        )
    begin = 0.0
    for wanted, end in zip(mix.formats, mix.ends, strict=True):
        share, begin = end - begin, end
        format_name = stored_format(wanted)
        if share * dataset.manifest.samples >= _LEAST_EXPECTED and not counts.get(format_name):
            raise PlanMismatch(
                f"the plan wants {share:.0%} of {name!r} as {format_name}; {dataset.path} has {found}: {remedy}"
            )
