# SPDX-License-Identifier: Apache-2.0
"""What a process costs, and where the figures are from."""

from __future__ import annotations

import time

import numpy as np
import pytest

from headrace.offload._accounting import Account, EnergyCounter, resident_bytes


def burn() -> None:
    begun = time.process_time()
    while time.process_time() - begun < 0.02:
        pass


def test_cpu_and_memory_are_counted_from_when_the_account_is_opened():
    account = Account()
    burn()
    held = np.ones(20_000_000, np.uint8)
    cost = account.cost()

    assert cost.cpu_seconds >= 0.02
    assert cost.peak_bytes >= resident_bytes() >= held.nbytes
    assert 0 < cost.mean_bytes <= cost.peak_bytes


def test_stated_watts_make_joules_of_cpu_seconds():
    account = Account(watts=7.5)
    burn()
    cost = account.cost()

    assert cost.energy == "model"
    assert cost.joules == pytest.approx(7.5 * cost.cpu_seconds)


def make_counter(folder, name, value, most=1000):
    package = folder / name
    package.mkdir()
    (package / "energy_uj").write_text(f"{value}\n")
    (package / "max_energy_range_uj").write_text(f"{most}\n")
    return package / "energy_uj"


def test_counters_of_all_packages_are_summed_and_may_wrap_around(tmp_path):
    first = make_counter(tmp_path, "intel-rapl:0", 900)
    second = make_counter(tmp_path, "intel-rapl:1", 100)
    make_counter(tmp_path, "intel-rapl:0:0", 5)  # a part of the first
    counter = EnergyCounter.find(tmp_path)
    first.write_text("950")
    counter.sample()
    first.write_text("20")
    second.write_text("400")
    counter.sample()

    assert counter.joules == pytest.approx((50 + 70 + 300) / 1e6)


def test_without_counters_and_watts_there_is_no_figure(tmp_path, monkeypatch):
    assert EnergyCounter.find(tmp_path / "absent") is None
    assert EnergyCounter.find(tmp_path) is None
    (tmp_path / "intel-rapl:0").mkdir()
    assert EnergyCounter.find(tmp_path) is None
    monkeypatch.setattr(EnergyCounter, "find", lambda: None)
    cost = Account().cost()
    assert (cost.joules, cost.energy) == (None, "none")
