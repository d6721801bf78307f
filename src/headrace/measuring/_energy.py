# SPDX-License-Identifier: Apache-2.0
"""Energy: from the machine's counters where they can be read, or estimated from CPU time and watts per core."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

POWERCAP = Path("/sys/class/powercap")

WATTS_PER_CORE = 10.0
"""Assumed power of a busy core where nothing is measured; an order of magnitude, for servers of the 2020s."""


class EnergyCounter:
    """Counts joules from all counters that can be read: RAPL in the folder `powercap`, and NVIDIA GPUs by NVML."""

    def __init__(self, powercap: Path = POWERCAP) -> None:
        self._packages = [package for package in map(_Package, _package_folders(powercap)) if package.is_readable]
        self._gpus = _nvml_counters()
        self.start()

    @property
    def source(self) -> str | None:
        """Which counters there are: "rapl", "nvml", "rapl+nvml", or None."""
        names = [name for name, there in (("rapl", self._packages), ("nvml", self._gpus)) if there]
        return "+".join(names) or None

    def start(self) -> None:
        """Start counting from 0."""
        for package in self._packages:
            package.start()
        self._gpus_started = [read() for read in self._gpus]

    def joules(self) -> float:
        """Return the joules since `start`. RAPL counters wrap around within minutes: call it once per minute."""
        gpus = sum(read() - started for read, started in zip(self._gpus, self._gpus_started, strict=True))
        return sum(package.joules() for package in self._packages) + gpus


class _Package:
    """One processor package's counter of microjoules, which restarts at 0 when it reaches its limit."""

    def __init__(self, folder: Path) -> None:
        self._counter = folder / "energy_uj"
        self._limit = _number(folder / "max_energy_range_uj") or 0
        self._last = self._total = 0

    @property
    def is_readable(self) -> bool:
        return _number(self._counter) is not None  # root only, unless an administrator allowed it

    def start(self) -> None:
        self._last, self._total = _number(self._counter) or 0, 0

    def joules(self) -> float:
        now = _number(self._counter)
        if now is not None:
            self._total += max(0, now - self._last if now >= self._last else now - self._last + self._limit)
            self._last = now
        return self._total / 1e6


def _package_folders(powercap: Path) -> list[Path]:
    """Return the packages only (`intel-rapl:0`): the zones inside of them are counted in them."""
    zones = powercap.iterdir() if powercap.is_dir() else ()
    return sorted(zone for zone in zones if re.fullmatch(r"[a-z-]+:\d+", zone.name))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _nvml_counters() -> list[Callable[[], float]]:
    """Return one function per GPU that gives its joules so far; none without NVML, or where GPUs do not count."""
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
        for handle in handles:
            nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:  # noqa: BLE001 - NVML's error classes exist only with NVML
        return []
    return [
        lambda handle=handle: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3  # type: ignore[misc]
        for handle in handles
    ]
