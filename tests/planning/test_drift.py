# SPDX-License-Identifier: Apache-2.0
"""Runs that go as planned, and runs that do not."""

from __future__ import annotations

import warnings

import pytest
from tests.planning.pictures import make_folder

import headrace
from headrace.loader import LoaderStats, limit_storage
from headrace.planning import DriftWarning, Machine, drift, plan, watch

MACHINE = Machine(storage_rate=800e6, cores=2)


def run(found, machine, *, step=0.0, cpu_factor=1.0, samples=3200):
    """What a loader would count on a machine that may not be the planned one."""
    calibration = found.calibration
    shares = {each.format: each.share for each in found.shares}
    read = sum(x * calibration.cost(name).read_bytes for name, x in shares.items())
    cpu = sum(x * calibration.cost(name).cpu_seconds for name, x in shares.items()) * cpu_factor
    trainer = step / calibration.batch_size + calibration.consumer_seconds
    wall = max(read / machine.storage_rate, cpu / machine.cores, trainer)
    return LoaderStats(
        batches=samples // calibration.batch_size,
        samples=samples,
        wall_seconds=wall * samples,
        wait_seconds=(wall - trainer) * samples,
        cpu_seconds=(cpu - calibration.consumer_seconds) * samples,
        bytes_read=read * samples,
    )


def test_a_run_that_goes_as_planned_has_not_drifted(photos):
    for step in (0.0, 0.02, 0.5):
        found = plan(photos, MACHINE, step=step)
        assert drift(found, run(found, MACHINE, step=step)) is None


def test_slower_storage_is_noticed_and_a_new_plan_offered(photos):
    found = plan(photos, MACHINE)
    told = drift(found, run(found, MACHINE.replace(storage_rate=200e6)))

    assert told is not None
    assert told.largest[0] == "cores"  # they idle
    assert told.replanned.machine.storage_rate == pytest.approx(200e6, rel=0.01)
    assert told.gain > 1.05
    assert "a new plan" in str(told)
    assert told.to_json()["gain"] == told.gain


def test_dearer_decoding_is_noticed(photos):
    found = plan(photos, MACHINE)
    told = drift(found, run(found, MACHINE, cpu_factor=3.0))

    assert told is not None
    assert told.measured["cores"] == pytest.approx(1.0, abs=0.02)
    assert told.measured["storage"] < told.planned["storage"] - 0.1


def test_a_trainer_that_was_not_told_of_is_no_drift_as_long_as_it_is_fed(photos):
    found = plan(photos, MACHINE)
    assert drift(found, run(found, MACHINE, step=2.0)) is None


def test_a_slower_trainer_than_planned_is_drift_without_a_remedy(photos):
    found = plan(photos, MACHINE, step=0.5)
    told = drift(found, run(found, MACHINE, step=1.0))

    assert told is not None
    assert "would not be faster" in str(told)


def test_too_few_batches_tell_nothing(photos):
    found = plan(photos, MACHINE)
    assert drift(found, run(found, MACHINE.replace(storage_rate=1e6), samples=64)) is None
    assert drift(found, LoaderStats()) is None


def test_a_real_loader_on_storage_that_is_slow_is_told_of(photos, tmp_path):
    """Planned for 800 MB/s, it gets 2; whatever else the machine does, storage is what it waits for."""
    headrace.build(make_folder(tmp_path / "photos", 32), tmp_path / "photos.hr", format="hri:fast")
    found = plan(photos, MACHINE, formats=["hri:fast"])
    with headrace.Loader(tmp_path / "photos.hr", batch_size=4, output="numpy") as loader:
        limit_storage(loader, 2e6)
        for _ in loader:
            pass
        told = drift(found, loader.stats())

    assert told is not None
    assert told.replanned.machine.storage_rate < 4e6


class PretendLoader:
    """Yields batches while its figures grow as those of a run."""

    def __init__(self, totals, batches):
        self.totals, self.batches, self.given = totals, batches, 0

    def __iter__(self):
        for number in range(1, self.batches + 1):
            self.given = number
            yield number

    def stats(self):
        names = ("batches", "samples", "wall_seconds", "wait_seconds", "cpu_seconds", "bytes_read")
        return LoaderStats(**{name: getattr(self.totals, name) * self.given / self.batches for name in names})


def test_watching_warns_once_and_gives_all_batches(photos):
    found = plan(photos, MACHINE)
    loader = PretendLoader(run(found, MACHINE.replace(storage_rate=100e6)), 100)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batches = list(watch(loader, found, every=0.0))

    assert batches == list(range(1, 101))
    assert [warning.category for warning in caught] == [DriftWarning]


def test_watching_a_run_that_goes_as_planned_is_silent(photos):
    found = plan(photos, MACHINE)
    assert len(list(watch(PretendLoader(run(found, MACHINE), 50), found, every=0.0))) == 50
