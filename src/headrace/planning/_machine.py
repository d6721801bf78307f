# SPDX-License-Identifier: Apache-2.0
"""Measure the capacities of this machine, or read those of an emulated one."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from headrace.measuring import QUEUE_DEPTH, measure_storage, source_files
from headrace.planning._model import Calibration, Machine
from headrace.units import parse_rate, usable_cores

_BLOCK = 4096
_MIN_REQUEST, _MAX_REQUEST = 64 << 10, 4 << 20
_MAX_CORES = 100_000


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
