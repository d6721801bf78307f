# SPDX-License-Identifier: Apache-2.0
"""The gauge of neighbours tells what part of a time a core was slowed."""

from __future__ import annotations

import time

import pytest
from benchmarks.gauge import Gauge, best_of, slowed

from benchmarks import machine


def test_what_takes_a_quarter_longer_than_at_best_was_slowed():
    assert slowed([1.0, 1.1, 1.2, 1.3], 1.0) == pytest.approx(0.25)
    assert slowed([1.4, 1.4], 1.0) == 1.0
    assert slowed([], 1.0) == 1.0, "nobody looked"


def test_the_best_is_not_the_one_lucky_time():
    assert best_of([0.5, *[1.0] * 60, *[1.4] * 39]) == 1.0


@pytest.mark.skipif(not hasattr(time, "thread_time"), reason="needs a CPU clock of a thread")
def test_it_watches_each_core_and_tells_of_a_time():
    cores = machine.usable_cores()
    begun = time.monotonic()
    gauge = Gauge(cores)
    assert gauge.disturbed(cores[-1], begun, time.monotonic()) == 1.0, "it has not looked yet"
    time.sleep(0.4)

    assert 0.0 <= gauge.disturbed(cores[-1], begun, time.monotonic()) < 1.0
    assert gauge.disturbed(cores[-1], begun - 9, begun - 8) == 1.0
