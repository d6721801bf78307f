# SPDX-License-Identifier: Apache-2.0
"""The capacities of a machine that a plan divides among formats: its storage rate and its cores."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from headrace.documents import load_json
from headrace.measuring import QUEUE_DEPTH, measure_storage, source_files
from headrace.planning._cost import READER, Calibration, as_json
from headrace.units import parse_rate, usable_cores

MACHINE_VERSION = 1

_BLOCK = 4096
_MIN_REQUEST, _MAX_REQUEST = 64 << 10, 4 << 20
_MIN_CORES = 0.05
"""A loader whose trainer uses all cores still gets this share of one: the system's scheduler is fair."""
_MAX_CORES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The capacities of a machine, real or assumed."""

    storage_rate: float = math.inf
    """Bytes per second, uncached, with as many reads in flight as the loader has."""
    cores: float
    trainer_cores: float = 0.0
    """Cores that the training itself keeps busy."""
    emulated: bool = False
    """Whether some of the figures were given and not measured."""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.storage_rate > 0 and self.cores > 0 and self.trainer_cores >= 0):
            raise ValueError(
                f"a machine must have storage_rate > 0, cores > 0 and trainer_cores >= 0; "
                f"got {self.storage_rate}, {self.cores} and {self.trainer_cores}"
            )

    @property
    def usable_cores(self) -> float:
        """The cores that the trainer does not use."""
        return max(self.cores - self.trainer_cores, _MIN_CORES)

    def replace(self, **changes: Any) -> Machine:
        """Return the same machine with other values for these fields."""
        return dataclasses.replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Return the machine as a JSON object (spec/plan.md)."""
        return {"version": MACHINE_VERSION, **as_json(self)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | str | PathLike[str]) -> Machine:
        """Read a machine from a JSON object or a file; a rate of null has no limit."""
        tree = load_json(document, "machine")
        READER.require_version(tree, MACHINE_VERSION, "machine")
        return READER.read(cls, tree, "machine")


def parse_emulation(text: str) -> dict[str, float]:
    """Read `storage=200MB/s,cores=2` into arguments of `Machine`."""
    found: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = part.partition("=")
        if name == "storage" and value:
            found["storage_rate"] = parse_rate(value)
        elif name == "cores":
            with suppress(ValueError):
                found["cores"] = float(value)
            if not 0 < found.get("cores", 0.0) < _MAX_CORES:
                raise ValueError(f"cores must be a number > 0, as in cores=2; got {value!r}")
        else:
            raise ValueError(f"{part!r} cannot be emulated; write storage=200MB/s, cores=2 or both")
    return found


def find_machine(
    source: Any,
    calibration: Calibration | None = None,
    *,
    storage_rate: float | None = None,
    cores: float | None = None,
    trainer_cores: float = 0.0,
    seconds: float = 1.0,
) -> Machine:
    """Measure the capacities of this machine, except those that are given.

    Storage is measured for `seconds` on the files of `source`, a dataset or a path, with reads of the calibrated size.
    That of any other source is taken as unlimited.
    """
    provenance: dict[str, Any] = {}
    emulated = storage_rate is not None or cores is not None
    if storage_rate is None:
        files = source_files(source)
        storage_rate = math.inf
        if files:
            request_bytes = _request_bytes(calibration)
            found = measure_storage(files, request_bytes=request_bytes, seconds=seconds)
            storage_rate = found.bytes_per_second
            provenance = {"direct": found.direct, "request_bytes": request_bytes, "queue_depth": QUEUE_DEPTH}
    return Machine(
        storage_rate=storage_rate,
        cores=usable_cores() if cores is None else cores,
        trainer_cores=trainer_cores,
        emulated=emulated,
        provenance=provenance,
    )


def _request_bytes(calibration: Calibration | None) -> int:
    """Return the median size of a sample's read over all formats, in blocks."""
    if calibration is None:
        return 1 << 20
    sizes = sorted(cost.read_bytes for cost in calibration.costs)
    median = int(sizes[len(sizes) // 2])
    return min(max(median // _BLOCK * _BLOCK, _MIN_REQUEST), _MAX_REQUEST)
