# SPDX-License-Identifier: Apache-2.0
"""What the pace makes of its samples and of the system's books; how fast this machine is says nothing here."""

from __future__ import annotations

import pytest

from headrace.planning import _pace
from headrace.planning._pace import OTHERS, QUIET, Pace, Stretch


@pytest.fixture
def samples(monkeypatch):
    """A pace whose reference work takes what the test says."""
    wanted: list[float] = []

    def sample(self):
        seconds = wanted.pop(0) if wanted else 1.0
        self._fastest = min(self._fastest, seconds)
        self.cpu_seconds += seconds
        return seconds

    monkeypatch.setattr(Pace, "sample", sample)
    return wanted


def test_a_stretch_is_held_against_the_fastest_sample_of_all(samples):
    pace = Pace()
    samples += [1.0, 1.2]
    pace.begin()
    assert pace.end().pace == pytest.approx(1.1)
    samples += [0.5, 0.5]
    pace.begin()
    assert pace.end().pace == pytest.approx(1.0)
    samples += [1.0, 1.0]
    pace.begin()
    assert pace.end().pace == pytest.approx(2.0)


@pytest.mark.usefixtures("samples")
def test_a_fresh_sample_is_not_taken_again():
    pace = Pace()
    pace.begin()
    before = pace.cpu_seconds
    for _ in range(100):
        pace.look()
    assert pace.cpu_seconds == before


def test_quiet_is_fast_and_alone():
    assert Stretch(QUIET, OTHERS).quiet
    assert not Stretch(QUIET + 0.01, 0.0).quiet
    assert not Stretch(1.0, OTHERS + 0.01).quiet


def test_others_are_what_the_cores_did_and_we_did_not():
    before = _pace._Books(clock=10.0, busy=100.0, own=50.0, cores=2)
    assert _pace._Books(clock=11.0, busy=101.5, own=51.0, cores=2).others_since(before) == pytest.approx(0.25)
    assert _pace._Books(clock=11.0, busy=100.9, own=51.0, cores=2).others_since(before) == 0.0
    assert _pace._Books(clock=11.0, busy=None, own=51.0, cores=2).others_since(before) == 0.0


def test_idle_and_waiting_cores_are_not_busy(monkeypatch):
    monkeypatch.setattr(_pace.os, "sysconf", lambda _: 100)
    lines = ["cpu  9 9 9 9 9 9 9 9 0 0", "cpu0 100 0 50 7000 300 1 2 47 0 0", "cpu1 5 5 5 5 5 5 5 5 0 0", "intr 1 2"]
    assert _pace._busy_seconds(lines, {0}) == pytest.approx(2.0)


def test_a_real_pace_is_never_faster_than_its_fastest():
    pace = Pace()
    pace.begin()
    found = pace.end()
    assert found.pace >= 1.0
    assert found.others >= 0.0
    assert pace.cpu_seconds > 0.0
