# SPDX-License-Identifier: Apache-2.0
"""What a process costs, and where the figures come from."""

from __future__ import annotations

import time

import numpy as np

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
