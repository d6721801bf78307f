# SPDX-License-Identifier: Apache-2.0
"""What this process has cost: CPU seconds, memory and bytes read, for the figures of hosts and offload workers."""

from __future__ import annotations

import mmap
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from headrace import system


class ProcessCost(NamedTuple):
    """What a process has cost since its meter was created."""

    cpu_seconds: float
    peak_bytes: int
    mean_bytes: float
    read_bytes: int


class CostMeter:
    """Measures what this process costs. Call `sample` at regular intervals, for the mean memory."""

    def __init__(self) -> None:
        self._cpu, self._read = time.process_time(), _read_bytes()
        self._total_bytes = self._samples = self._peak = 0
        self.sample()

    def sample(self) -> None:
        """Measure the memory now."""
        resident = resident_bytes()
        self._total_bytes += resident
        self._samples += 1
        self._peak = max(self._peak, resident, system.peak_memory() or 0)  # the kernel updates them at different times

    def cost(self) -> ProcessCost:
        """Return the cost so far."""
        self.sample()
        cpu_seconds = time.process_time() - self._cpu
        return ProcessCost(cpu_seconds, self._peak, self._total_bytes / self._samples, _read_bytes() - self._read)


def resident_bytes() -> int:
    """Return the memory of this process now, or its peak if the system reports nothing else."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * mmap.PAGESIZE
    return system.peak_memory() or 0


def _read_bytes() -> int:
    """Return all bytes that this process has read, cached or not; 0 if the system does not count them."""
    with suppress(OSError):
        match = re.search(r"^rchar: (\d+)$", Path("/proc/self/io").read_text(), re.MULTILINE)
        return int(match[1]) if match else 0
    return 0
