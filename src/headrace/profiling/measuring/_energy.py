# SPDX-License-Identifier: Apache-2.0
"""Joules: from the machine's own counters where it lets us read them, else estimated from CPU time and stated watts."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

POWERCAP = Path("/sys/class/powercap")

WATTS_PER_CORE = 10.0
"""What a busy core is taken to draw where nothing is measured; an order of magnitude, for servers of the 2020s."""


class EnergyCounter:
    """Counts joules between `start` and `stop`, from all counters that can be read; none of them is a guess."""

    def __init__(self, powercap: Path = POWERCAP) -> None:
        self._zones = [zone for zone in map(_Zone, _packages(powercap)) if zone.works]
        self._devices = _nvml_counters()
        self._begun: list[float] = []

    @property
    def source(self) -> str | None:
        """Which counters there are: "rapl", "nvml", "rapl+nvml", or None."""
        names = [name for name, there in (("rapl", self._zones), ("nvml", self._devices)) if there]
        return "+".join(names) or None

    def start(self) -> None:
        for zone in self._zones:
            zone.start()
        self._begun = [read() for read in self._devices]

    def stop(self) -> float:
        """Joules since `start`."""
        devices = sum(read() - begun for read, begun in zip(self._devices, self._begun, strict=True))
        return sum(zone.joules() for zone in self._zones) + devices


class _Zone:
    """One package's counter of microjoules, which starts anew at its limit."""

    def __init__(self, folder: Path) -> None:
        self._counter = folder / "energy_uj"
        self._limit = _number(folder / "max_energy_range_uj")
        self._begun = 0

    @property
    def works(self) -> bool:
        return _number(self._counter) is not None  # only root may read it, unless an administrator allowed it

    def start(self) -> None:
        self._begun = _number(self._counter) or 0

    def joules(self) -> float:
        difference = (_number(self._counter) or 0) - self._begun
        if difference < 0:
            difference += self._limit or 0
        return max(0, difference) / 1e6


def _packages(powercap: Path) -> list[Path]:
    """Whole packages only (`intel-rapl:0`): the zones inside of them are counted in them."""
    zones = powercap.iterdir() if powercap.is_dir() else ()
    return sorted(zone for zone in zones if re.fullmatch(r"intel-rapl:\d+", zone.name))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _nvml_counters() -> list[Callable[[], float]]:
    """One function a device that gives its joules so far; none without NVML, or on devices that do not count."""
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
        for handle in handles:
            nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:  # noqa: BLE001 - NVML's errors are of a class that is there only with NVML
        return []
    return [
        lambda handle=handle: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3  # type: ignore[misc]
        for handle in handles
    ]


def estimated_joules(cpu_seconds: float, watts_per_core: float = WATTS_PER_CORE) -> float:
    """What so much CPU time is taken to cost: an estimate, to be shown as one."""
    return cpu_seconds * watts_per_core
