# SPDX-License-Identifier: Apache-2.0
"""What this process costs: CPU seconds, memory, bytes read, and energy from counters or from stated watts."""

from __future__ import annotations

import mmap
import re
import time
from pathlib import Path
from typing import NamedTuple

from headrace import system
from headrace.measuring import EnergyCounter
from headrace.offload.exchange._documents import Energy

_MEMORY = Path("/proc/self/statm")
_PAGE_BYTES = mmap.PAGESIZE
_SAMPLE_SECONDS = 2.0


class ProcessCost(NamedTuple):
    """What a process has cost since its meter was created."""

    cpu_seconds: float
    peak_bytes: int
    mean_bytes: float
    read_bytes: int
    joules: float | None
    energy: Energy


class CostMeter:
    """Measures what this process costs. Call `sample` or `cost` regularly, for the mean memory. Any thread may.

    Args:
        watts: Power of a busy core; energy is this times the CPU seconds. None reads the machine's counters, which
            include other processes; without counters there is no figure.

    """

    def __init__(self, watts: float | None = None) -> None:
        self._watts = watts
        self._cpu = time.process_time()
        self._begun = self._last = time.monotonic()
        self._byte_seconds = 0.0
        self._peak = 0
        self._read = _read_bytes()
        self._counter = EnergyCounter(gpus=False) if watts is None else None

    def sample(self) -> None:
        """Measure the memory now, at most every two seconds."""
        now = time.monotonic()
        if now >= self._last + _SAMPLE_SECONDS:
            self._measure_memory(now)

    def _measure_memory(self, now: float) -> None:
        resident = resident_bytes()
        self._byte_seconds += resident * (now - self._last)
        self._last = now
        self._peak = max(self._peak, resident, peak_bytes())  # the kernel updates the two at different times

    def cost(self) -> ProcessCost:
        """Return the cost so far. Takes half a millisecond."""
        now = time.monotonic()
        self._measure_memory(now)
        cpu = time.process_time() - self._cpu
        energy: Energy = "none"
        joules = None
        if self._watts is not None:
            joules, energy = self._watts * cpu, "model"
        elif self._counter is not None and self._counter.source is not None:
            joules, energy = self._counter.joules(), "counter"
        seconds = now - self._begun
        mean = self._byte_seconds / seconds if seconds > 0 else float(self._peak)
        return ProcessCost(cpu, self._peak, mean, _read_bytes() - self._read, joules, energy)


def resident_bytes() -> int:
    """Return the memory of this process now, or its peak if that is all that the system reports."""
    try:
        return int(_MEMORY.read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        return peak_bytes()


def peak_bytes() -> int:
    return system.peak_memory() or 0


def _read_bytes() -> int:
    """Return all bytes that this process has read, cached or not; 0 if the system does not count them."""
    try:
        text = Path("/proc/self/io").read_text()
    except OSError:
        return 0
    match = re.search(r"^rchar: (\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else 0
