# SPDX-License-Identifier: Apache-2.0
"""`Plan`: the share of the samples that each format gets, and the prediction that it rests on (spec/plan.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

from headrace.documents import save_json
from headrace.planning._model import READER, Calibration, Machine, Prediction, as_json
from headrace.planning._search import worth_its_size

PLAN_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One format of a plan, and its share of the samples."""

    format: str
    share: float
    decode: Literal["cpu"] = "cpu"
    """Where the images are decoded."""


@dataclass(frozen=True, slots=True)
class _FieldShares:
    """The entry of one field in a plan's JSON."""

    shares: tuple[Share, ...]
    renditions: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A mix of formats for a field, with what it predicts and the measurements behind it."""

    field: str
    renditions: int
    shares: tuple[Share, ...]
    predicted: Prediction
    singles: tuple[Prediction, ...]
    """A prediction for each format alone, the fastest first, including those that exceed the disk budget."""
    calibration: Calibration
    machine: Machine
    step: float
    """The trainer's seconds per batch."""
    disk_budget: float | None = None

    @property
    def best_single(self) -> Prediction | None:
        """The best format alone: the fastest within the disk budget, or without one the fastest worth its size."""
        if self.disk_budget is None:
            chosen = worth_its_size([(each.rate, each.stored_bytes) for each in self.singles])
            return None if chosen is None else self.singles[chosen]
        fitting = [each for each in self.singles if each.stored_bytes <= self.disk_budget * (1 + 1e-9)]
        return fitting[0] if fitting else None

    @property
    def fastest_single(self) -> Prediction | None:
        """A format alone that is faster than the plan but not worth its size; None if there is none."""
        first = self.singles[0] if self.singles and self.disk_budget is None else None
        return first if first is not None and first.rate > self.predicted.rate * (1 + 1e-9) else None

    @property
    def gain(self) -> float:
        """How many times as fast as the best single format."""
        single = self.best_single
        return math.inf if single is None else self.predicted.rate / single.rate

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object (spec/plan.md)."""
        return {
            "version": PLAN_VERSION,
            "fields": {self.field: {"renditions": self.renditions, "shares": as_json(self.shares)}},
            "predicted": {**as_json(self.predicted), "singles": as_json(self.singles)},
            "step": self.step,
            "disk_budget": as_json(self.disk_budget),
            "machine": self.machine.to_json(),
            "calibration": self.calibration.to_json(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | str | PathLike[str]) -> Plan:
        """Read a plan from a JSON object or a file; ValueError names what is not valid."""
        read = READER.read(_PlanDocument, READER.load(document, PLAN_VERSION, "plan"), "plan")
        if len(read.fields) != 1:
            raise ValueError(f"plan.fields must have one field; got {len(read.fields)}")
        ((name, entry),) = read.fields.items()
        return cls(
            field=name,
            renditions=entry.renditions,
            shares=entry.shares,
            predicted=READER.read(Prediction, read.predicted, "plan.predicted"),
            singles=READER.read(_Singles, read.predicted, "plan.predicted").singles,
            calibration=Calibration.from_json(read.calibration),
            machine=Machine.from_json(read.machine),
            step=read.step,
            disk_budget=read.disk_budget,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan as JSON, for `headrace build --plan` and `Loader(plan=…)`."""
        save_json(path, self.to_json())


@dataclass(frozen=True, slots=True)
class _Singles:
    singles: tuple[Prediction, ...]


@dataclass(frozen=True, slots=True)
class _PlanDocument:
    """The members of a plan's JSON."""

    fields: Mapping[str, _FieldShares]
    predicted: Mapping[str, Any]
    machine: Mapping[str, Any]
    calibration: Mapping[str, Any]
    step: float
    disk_budget: float | None = None
