# SPDX-License-Identifier: Apache-2.0
"""What a process costs, and where the figures come from."""

from __future__ import annotations

import time

import numpy as np
import pytest

from headrace.measuring import EnergyCounter
from headrace.offload import _cost
from headrace.offload._cost import CostMeter, resident_bytes


def burn() -> None:
    begun = time.process_time()
    while time.process_time() - begun < 0.02:
        pass


def test_cpu_and_memory_are_counted_since_the_meter_was_created():
    meter = CostMeter()
    burn()
    held = np.ones(20_000_000, np.uint8)
    cost = meter.cost()

    assert cost.cpu_seconds >= 0.02
    assert cost.peak_bytes >= resident_bytes() >= held.nbytes
    assert 0 < cost.mean_bytes <= cost.peak_bytes


def test_joules_are_stated_watts_times_cpu_seconds():
    meter = CostMeter(watts=7.5)
    burn()
    cost = meter.cost()

    assert cost.energy == "model"
    assert cost.joules == pytest.approx(7.5 * cost.cpu_seconds)


@pytest.mark.parametrize("readable", [True, False])
def test_joules_come_from_the_counters_if_they_can_be_read(tmp_path, monkeypatch, readable):
    package = tmp_path / "intel-rapl:0"
    package.mkdir()
    if readable:
        (package / "energy_uj").write_text("900")
        (package / "max_energy_range_uj").write_text("1000")
    monkeypatch.setattr(_cost, "EnergyCounter", lambda *, gpus: EnergyCounter(tmp_path, gpus=gpus))
    meter = CostMeter()
    (package / "energy_uj").write_text("950")
    cost = meter.cost()

    assert cost.energy == ("counter" if readable else "none")
    assert cost.joules == (pytest.approx(50e-6) if readable else None)
