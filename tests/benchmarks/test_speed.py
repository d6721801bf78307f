# SPDX-License-Identifier: Apache-2.0
"""Clocks that run as fast as their core does."""

from __future__ import annotations

import time

from benchmarks import machine, speed


def written(path, *, when, seconds, pace):
    path.write_bytes(speed._STATE.pack(when, seconds, pace))
    return speed.Clock(path)


def test_a_clock_goes_on_at_the_speed_that_was_last_found(tmp_path, monkeypatch):
    clock = written(tmp_path / "state", when=10.0, seconds=8.0, pace=0.5)
    monkeypatch.setattr(time, "perf_counter", lambda: 12.0)

    assert clock.now() == 9.0


def test_a_clock_of_several_cores_shows_their_mean(tmp_path, monkeypatch):
    paths = [tmp_path / "first", tmp_path / "second"]
    written(paths[0], when=10.0, seconds=8.0, pace=0.5)
    written(paths[1], when=11.0, seconds=9.0, pace=1.0)
    monkeypatch.setattr(time, "perf_counter", lambda: 12.0)

    assert speed.Clock(*paths).now() == 9.5
    assert speed.Clock(*paths).speed == 0.75


def test_a_clock_without_a_probe_does_not_run(tmp_path):
    assert not written(tmp_path / "state", when=0.0, seconds=0.0, pace=0.0).runs


def test_probes_drive_clocks_and_end_with_them(tmp_path, monkeypatch):
    monkeypatch.setattr(speed, "_TRIALS", 20)
    core = machine.usable_cores()[0]
    with speed.clocks(tmp_path, [core]) as paths:
        clock = speed.Clock(paths[core])
        before = clock.now()
        time.sleep(0.3)
        after = clock.now()

    assert 0 < after - before < 3, "a core is not ten times as fast as it was a moment ago"
    stopped = speed._STATE.unpack(paths[core].read_bytes())
    time.sleep(0.1)
    assert speed._STATE.unpack(paths[core].read_bytes()) == stopped
