# SPDX-License-Identifier: Apache-2.0
"""What a machine can do in a second: the capacities that a plan divides among its formats."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from headrace.planning._documents import Document, finite, read_json
from headrace.planning._units import parse_rate

MACHINE_VERSION = 1

_LEAST_CORES = 0.05
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
        return max(self.cores - self.trainer_cores, _LEAST_CORES)

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
