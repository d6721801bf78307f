# SPDX-License-Identifier: Apache-2.0
"""What a process costs: CPU seconds, memory, bytes, and energy by the machine's counters or by stated watts."""

from __future__ import annotations

import re
import resource
import sys
import time
from pathlib import Path
from typing import NamedTuple

from headrace.offload.exchange._status import Energy

_COUNTERS = Path("/sys/class/powercap")
_MEMORY = Path("/proc/self/statm")
_PACKAGE = re.compile(r"[a-z-]+:\d+")
_PAGE_BYTES = resource.getpagesize()


class ProcessCost(NamedTuple):
    """What a process has cost since its account was opened."""

    cpu_seconds: float
    peak_bytes: int
    mean_bytes: float
    read_bytes: int
    joules: float | None
    energy: Energy


class Account:
    """Adds up what this process costs. `sample` is called now and then, so that memory has a mean.

    Args:
        watts: What a busy core takes; energy is this times the CPU seconds. None asks the machine's own counters, which
            count all that it does, other processes too; without them there is no figure.

    """

    def __init__(self, watts: float | None = None) -> None:
        self._watts = watts
        self._cpu = time.process_time()
        self._began = self._last = time.monotonic()
        self._byte_seconds = 0.0
        self._peak = 0
        self._read = _read_bytes()
        self._counter = None if watts is not None else EnergyCounter.find()
        self.sample()

    def sample(self) -> None:
        now, resident = time.monotonic(), resident_bytes()
        self._byte_seconds += resident * (now - self._last)
        self._last = now
        self._peak = max(self._peak, resident, peak_bytes())  # the kernel counts the two apart, and roughly
        if self._counter is not None:
            try:
                self._counter.sample()
            except (OSError, ValueError):
                self._counter = None  # taken away in mid-run: no figure is better than half of one

    def brought_up(self, cost: ProcessCost) -> ProcessCost:
        """Give an earlier cost with the CPU seconds of now, which are cheap to ask for, and what follows from them."""
        cpu = time.process_time() - self._cpu
        joules = cost.joules if self._watts is None else self._watts * cpu
        return cost._replace(cpu_seconds=cpu, joules=joules)

    def cost(self) -> ProcessCost:
        self.sample()
        cpu = time.process_time() - self._cpu
        energy: Energy = "none"
        joules = None
        if self._watts is not None:
            joules, energy = self._watts * cpu, "model"
        elif self._counter is not None:
            joules, energy = self._counter.joules, "counter"
        wall = self._last - self._began
        mean = self._byte_seconds / wall if wall > 0 else float(resident_bytes())
        return ProcessCost(cpu, self._peak, mean, _read_bytes() - self._read, joules, energy)


class EnergyCounter:
    """The energy that the processor's packages count, in Joule since it was made. They wrap around within minutes."""

    def __init__(self, packages: list[Path]) -> None:
        self._packages = packages
        self._ranges = [int((package / "max_energy_range_uj").read_text()) for package in packages]
        self._last = self._values()
        self._microjoules = 0

    @classmethod
    def find(cls, folder: Path = _COUNTERS) -> EnergyCounter | None:
        """Look for counters that this process may read."""
        try:
            packages = [path for path in sorted(folder.iterdir()) if _PACKAGE.fullmatch(path.name)]
            return cls(packages) if packages else None
        except (OSError, ValueError):
            return None

    def _values(self) -> list[int]:
        return [int((package / "energy_uj").read_text()) for package in self._packages]

    def sample(self) -> None:
        values = self._values()
        for value, last, most in zip(values, self._last, self._ranges, strict=True):
            self._microjoules += value - last if value >= last else value - last + most
        self._last = values

    @property
    def joules(self) -> float:
        return self._microjoules / 1e6


def resident_bytes() -> int:
    """Memory that this process has at present; its peak where that is all there is to know."""
    try:
        return int(_MEMORY.read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        return peak_bytes()


def peak_bytes() -> int:
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def _read_bytes() -> int:
    """All bytes that this process has asked files for, cached or not; 0 where nobody counts them."""
    try:
        text = Path("/proc/self/io").read_text()
    except OSError:
        return 0
    match = re.search(r"^rchar: (\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else 0
