# SPDX-License-Identifier: Apache-2.0
"""The instruments by themselves: stopwatch, cold files, storage, CPU time, memory, noise and energy."""

from __future__ import annotations

import os
import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest
from tests.profiling.bottlenecks import write_dataset, write_folder

from headrace.measuring import (
    EnergyCounter,
    FileRange,
    NoiseMonitor,
    ResourceUse,
    _cold,
    _energy,
    _process,
    _sampling,
    measure_raw_files,
    measure_records,
    measure_storage,
    metered,
    timed,
)
from headrace.measuring._stopwatch import pass_over
from headrace.records import Dataset

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("parts") / "photos")


# Rates.


@pytest.mark.parametrize("workers", [1, 3])
def test_a_pass_does_everything_once(workers):
    done = []
    pass_over(done.append, 20, workers=workers)

    assert sorted(done) == list(range(20))


def test_timing_uses_all_images_and_counts_cpu_time_without_waiting():
    seen = set()
    timing = timed(lambda number: (seen.add(number), time.sleep(0.002)), 4, workers=2, seconds=0.1)

    assert seen == {0, 1, 2, 3}
    assert timing.cpu_seconds < 1 / timing.rate


def test_an_error_in_a_thread_is_raised():
    def work(number):
        raise ValueError(f"image {number} is bad")

    with pytest.raises(ValueError, match="is bad"):
        pass_over(work, 8, workers=4)
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-measure"]


# Files.


def test_evicted_files_are_cold(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    path.read_bytes()
    if _cold.cached_share([path]) != 1:
        pytest.skip("the kernel does not report what is in memory")
    _cold.drop([path])
    share = _cold.cached_share([path])
    if share == 1:
        pytest.skip("the file system keeps files in memory")

    assert share == 0
    assert FileRange(str(path), 5, 7).read() == path.read_bytes()[5:12]


def test_direct_reads_return_the_requested_bytes(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(10_000))
    try:
        with _cold.DirectReader([str(path)]) as reader:
            assert reader.read(str(path), 5000, 100) >= 100 + 5000 % _cold.BLOCK
            assert reader.read(str(path), 0, 10_000) == 10_000
    except OSError:
        pytest.skip("the file system has no direct reads")


def test_files_and_records_of_the_same_images_are_read(folder, tmp_path):
    """All of them, with the bytes that they have."""
    paths = sorted(folder.rglob("*.png"))
    files = measure_raw_files(paths, workers=2)
    dataset = write_dataset(tmp_path / "x.hr", format="raw")
    records = measure_records(dataset, workers=2, seconds=0.01)

    assert files.images == len(paths)
    assert files.image_bytes == pytest.approx(np.mean([path.stat().st_size for path in paths]))
    assert records.images == len(Dataset(dataset))
    assert records.image_bytes >= 64 * 64 * 3
    assert files.bytes_per_second > 0 < records.rate


# Meters.


def test_cpu_time_and_memory_are_metered():
    with metered() as cost:
        block = np.ones(8 << 20, np.uint8)
        end = time.thread_time() + 0.03
        while time.thread_time() < end:
            block.sum()

    assert cost.cpu_seconds >= 0.01
    assert cost.seconds > 0
    assert cost.peak_bytes is None or cost.peak_bytes > 8 << 20
    assert cost.other_cores is None or cost.other_cores >= 0


def test_the_page_cache_of_a_container_is_free_memory(tmp_path):
    assert _process._container_limit(tmp_path) is None
    for name, text in (("max", "1000"), ("current", "900"), ("stat", "anon 200\nactive_file 300\ninactive_file 400\n")):
        (tmp_path / f"memory.{name}").write_text(text)

    assert _process._container_limit(tmp_path) == 800
    (tmp_path / "memory.max").write_text("max")
    assert _process._container_limit(tmp_path) is None


@pytest.mark.parametrize(
    ("others", "seconds", "names"),
    [((0.1, 0.2), 1.0, ()), ((1.5, 0.1), 1.0, ("one",)), ((1.5, 0.9), 1.0, ("one", "two")), ((1.5, 1.5), 0.2, ())],
    ids=["quiet", "once", "always", "too short"],
)
def test_measurements_beside_other_load_are_named(monkeypatch, others, seconds, names):
    found = iter(others)
    monkeypatch.setattr(_process, "metered", lambda: nullcontext(ResourceUse(seconds=seconds, other_cores=next(found))))
    monkeypatch.setattr(_process.os, "cpu_count", lambda: 2)
    monitor = NoiseMonitor(2)
    for name in ("one", "two"):
        with monitor.during(name):
            pass

    assert monitor.disturbed == names


@pytest.fixture
def powercap(tmp_path):
    """Two packages, one of which has a zone inside that is counted in it."""
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):
        zone = tmp_path / name
        zone.mkdir()
        (zone / "energy_uj").write_text("1000000")
        (zone / "max_energy_range_uj").write_text("9000000")
    return tmp_path


def test_energy_is_read_from_counters_that_wrap_around(powercap, monkeypatch):
    monkeypatch.setattr(_energy, "_nvml_counters", list)
    counter = EnergyCounter(powercap)
    (powercap / "intel-rapl:0/energy_uj").write_text("3000000")
    (powercap / "intel-rapl:1/energy_uj").write_text("500000")

    assert counter.source == "rapl"
    assert counter.joules() == pytest.approx(2.0 + 8.5)
    (powercap / "intel-rapl:0/energy_uj").write_text("1000000")
    assert counter.joules() == pytest.approx(2.0 + 7.0 + 8.5)
    counter.start()
    assert counter.joules() == 0


def test_without_counters_there_is_no_source(tmp_path, monkeypatch):
    monkeypatch.setattr(_energy, "_nvml_counters", list)

    assert EnergyCounter(tmp_path / "none").source is None


def test_storage_is_read_at_least_once(folder, tmp_path):
    rate = measure_storage(sorted(folder.rglob("*.png")), request_bytes=8192, seconds=0.2)

    assert rate.bytes_per_second > 0
    with pytest.raises(ValueError, match="4 KiB or more"):
        measure_storage([tmp_path / "nothing"])


def test_idle_and_waiting_cores_are_not_busy(monkeypatch, tmp_path):
    monkeypatch.setattr(_process.os, "sysconf", lambda _: 100)
    stat = tmp_path / "stat"
    stat.write_text("cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 50 7000 300 1 2 47 0 0\ncpu1 5 5 5 5 5 5 5 5 0 0\nintr 1 2\n")
    assert _process.busy_seconds({0}, stat) == pytest.approx(2.0)
    assert _process.busy_seconds({0, 1}, stat) == pytest.approx(2.3)
    assert _process.busy_seconds(None, stat) == pytest.approx(0.54)
    assert _process.busy_seconds({0}, tmp_path / "none") is None


def test_samples_are_spread_over_all_sizes():
    sizes = [5, 1, 4, 2, 3, 0]

    assert _sampling.spread_by_size(sizes, 3) == [1, 4, 0]
    assert sorted(_sampling.spread_by_size(sizes, 99)) == list(range(6))
    assert _sampling.spread_by_size([], 3) == []
