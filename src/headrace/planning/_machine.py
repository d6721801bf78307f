# SPDX-License-Identifier: Apache-2.0
"""What a machine can do in a second: the capacities that a plan divides among its formats."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from headrace.measuring import QUEUE_DEPTH, measure_storage, source_files
from headrace.planning._cost import Calibration
from headrace.planning.documents import Document, finite, read_json
from headrace.units import parse_rate, usable_cores

MACHINE_VERSION = 1

_BLOCK = 4096
_MIN_REQUEST, _MAX_REQUEST = 64 << 10, 4 << 20
_MIN_CORES = 0.05
"""Of a core, for a loader whose trainer takes them all: it still gets its turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The capacities of a machine, real or supposed."""

    storage_rate: float = math.inf
    """Bytes a second, cold, with as many requests under way as the loader has."""
    cores: float
    trainer_cores: float = 0.0
    """What the training itself keeps busy of them."""
    link_rate: float = math.inf
    """Bytes a second from the host's memory to the device."""
    device_headroom: float = 1.0
    """The share of the device's time that decoding may have while it is at it, beside the training."""
    efficiency: float = 1.0
    """The share of the cores' time that is work when they alone are in demand; waiting for each other is the rest."""
    emulated: bool = False
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("storage_rate", "cores", "link_rate", "device_headroom", "efficiency"):
            if not getattr(self, name) > 0:
                raise ValueError(f"a machine's {name} is positive, not {getattr(self, name)}")
        if self.trainer_cores < 0 or self.efficiency > 1 or self.device_headroom > 1:
            raise ValueError("trainer_cores is at least 0, efficiency and device_headroom at most 1")

    @property
    def usable_cores(self) -> float:
        """What the trainer leaves of the cores."""
        return max(self.cores - self.trainer_cores, _MIN_CORES)

    def replace(self, **changes: Any) -> Machine:
        """The same machine but for these."""
        return dataclasses.replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        plain = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        rates = {name: finite(plain[name]) for name in ("storage_rate", "link_rate")}
        return {"version": MACHINE_VERSION, **plain, **rates, "provenance": dict(self.provenance)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | str | PathLike[str]) -> Machine:
        """Read a machine from a JSON object or a file; null is a rate without limit."""
        read = Document(read_json(document, "machine"), "the machine")
        read.version(MACHINE_VERSION)
        return cls(
            storage_rate=read.number("storage_rate", default=math.inf),
            cores=read.number("cores"),
            trainer_cores=read.number("trainer_cores", default=0.0),
            link_rate=read.number("link_rate", default=math.inf),
            device_headroom=read.number("device_headroom", default=1.0),
            efficiency=read.number("efficiency", default=1.0),
            emulated=read.flag("emulated", default=False),
            provenance=read.plain("provenance"),
        )


def parse_emulation(text: str) -> dict[str, float]:
    """Read `storage=200MB/s,cores=2` into the capacities of a `Machine`; ValueError names what cannot be emulated."""
    found: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = part.partition("=")
        if name in ("storage", "link") and value:
            found[f"{name}_rate"] = parse_rate(value)
        elif name == "cores":
            found["cores"] = _cores(value)
        else:
            raise ValueError(f"{part!r} cannot be emulated; write storage=200MB/s, link=12GB/s or cores=2")
    return found


def _cores(text: str) -> float:
    try:
        cores = float(text)
    except ValueError:
        cores = 0.0
    if not 0 < cores < 100_000:
        raise ValueError(f"{text!r} is no number of cores; write cores=2")
    return cores


def find_machine(
    source: Any,
    calibration: Calibration | None = None,
    *,
    storage_rate: float | None = None,
    cores: float | None = None,
    trainer_cores: float = 0.0,
    link_rate: float = math.inf,
    seconds: float = 1.0,
) -> Machine:
    """Measure the capacities of this machine; those that are given are taken as they are.

    Args:
        source: A dataset or a path, whose files are read. Anything else has no files, and storage no limit.
        calibration: Says how large the requests are.
        storage_rate: Bytes a second, if storage is to be taken for another.
        cores: How many, if not those that this process may use.
        trainer_cores: What the training itself keeps busy of them.
        link_rate: Bytes a second to the device.
        seconds: How long storage is measured.

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
        link_rate=link_rate,
        emulated=emulated,
        provenance=provenance,
    )


def _request_bytes(calibration: Calibration | None) -> int:
    if calibration is None:
        return 1 << 20
    sizes = sorted(cost.read_bytes for cost in calibration.costs)
    middle = int(sizes[len(sizes) // 2])
    return min(max(middle // _BLOCK * _BLOCK, _MIN_REQUEST), _MAX_REQUEST)
