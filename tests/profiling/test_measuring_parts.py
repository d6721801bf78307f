# SPDX-License-Identifier: Apache-2.0
"""The instruments by themselves: clocks, cold files, meters, counters of energy, emulated machines."""

from __future__ import annotations

import os
import threading
import time
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from tests.profiling.bottlenecks import write_dataset, write_folder

from headrace import transforms
from headrace.errors import ProfileError
from headrace.profiling import measure_raw_files, measure_records
from headrace.profiling.measuring import _batches, _cold, _differential, _disturbance, _energy, _meters, _rates, _raw
from headrace.profiling.measuring._raw import RawLoader, RawSample, Throttle
from headrace.profiling.subjects import _course, _foreign, _settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("parts") / "photos")


# Rates.


@pytest.mark.parametrize("workers", [1, 3])
def test_a_pass_does_everything_once(workers):
    done = []
    _rates.pass_over(done.append, 20, workers=workers)

    assert sorted(done) == list(range(20))


def test_timing_goes_round_and_tells_waiting_from_working():
    seen = set()
    timing = _rates.timed(lambda number: (seen.add(number), time.sleep(0.002)), 4, workers=2, seconds=0.1)

    assert seen == {0, 1, 2, 3}
    assert timing.cpu_seconds < 1 / timing.rate


def test_what_a_thread_raises_comes_out():
    def work(number):
        raise ValueError(f"image {number} is bad")

    with pytest.raises(ValueError, match="is bad"):
        _rates.pass_over(work, 8, workers=4)
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-profile"]


# Files.


def test_files_are_cold_after_they_were_dropped(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    path.read_bytes()
    if _cold.cached_share([path]) != 1:
        pytest.skip("the kernel does not tell what it has in memory")
    _cold.drop([path])
    share = _cold.cached_share([path])
    if share == 1:
        pytest.skip("the file system has nothing but memory")

    assert share == 0
    assert _cold.read(str(path), 5, 7) == path.read_bytes()[5:12]


def test_direct_reads_give_what_was_asked_for(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(10_000))
    handle = _cold.open_direct(str(path))
    if handle is None:
        pytest.skip("the file system has no direct reads")
    reader = _cold.DirectReader()
    try:
        assert reader.read(handle, 5000, 100) >= 100 + 5000 % _cold.BLOCK
        assert reader.read(handle, 0, 10_000) == 10_000
    finally:
        reader.close()
        os.close(handle)


def test_files_and_records_of_the_same_images_are_read(folder, tmp_path):
    """As many as were asked for, with the bytes that they have."""
    paths = sorted(folder.rglob("*.png"))
    files = measure_raw_files(paths, workers=2)
    dataset = write_dataset(tmp_path / "x.hr", format="raw")
    records = measure_records(dataset, images=10, workers=2, seconds=0.01)

    assert files.images == len(paths)
    assert files.image_bytes == pytest.approx(np.mean([path.stat().st_size for path in paths]))
    assert records.images == 10
    assert records.image_bytes >= 64 * 64 * 3
    assert files.bytes_per_second > 0 < records.rate


# The loader of plain files.


def raw_samples(folder):
    paths = sorted(folder.rglob("*.png"))
    return [RawSample(path.name, partial(_cold.read, str(path)), number) for number, path in enumerate(paths)]


def test_the_raw_loader_gives_every_file_once_with_its_label(folder):
    samples = raw_samples(folder)
    loader = RawLoader(samples, transforms.compile([transforms.CenterCrop(16)]), batch_size=7, workers=2)
    batches = list(loader)

    assert len(batches) == len(loader)
    assert batches[0]["image"].shape == (7, 3, 16, 16)
    assert sorted(np.concatenate([batch["label"] for batch in batches]).tolist()) == list(range(len(samples)))
    assert list(next(iter(loader))["label"]) != list(batches[0]["label"])


def test_a_batch_that_takes_too_long_is_cut_and_nothing_is_lost(folder):
    samples = raw_samples(folder)[:9]
    batches = list(RawLoader(samples, transforms.compile(None), batch_size=9, workers=1, patience=-1.0))

    assert [len(batch["label"]) for batch in batches] == [1] * 9
    assert sorted(int(batch["label"][0]) for batch in batches) == list(range(9))


def test_the_raw_loader_passes_over_files_that_are_damaged_or_gone(folder, tmp_path):
    samples = [
        RawSample("damaged", lambda: b"\x89PNG\r\n\x1a\n and no more"),
        RawSample("gone", partial(_cold.read, str(tmp_path / "gone"))),
        *raw_samples(folder)[:3],
    ]
    loader = RawLoader(samples, transforms.compile(None), batch_size=5, workers=2)
    (batch,) = loader

    assert len(batch["image"]) == 3
    assert set(loader.failures) == {"damaged", "gone"}


def test_the_raw_loader_ends_its_threads_when_a_loop_is_left(folder):
    """Even if they wait for storage that would take a year: only the first image comes at once."""
    samples = raw_samples(folder)
    throttle = Throttle(1.0)
    throttle.BURST_SECONDS = 1.5 * len(samples[0].read())
    loader = RawLoader(samples[:1] * 8, transforms.compile(None), batch_size=1, workers=1, throttle=throttle)
    iterator = iter(loader)
    next(iterator)
    iterator.close()

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("headrace-raw")]


def test_a_throttle_lets_no_more_through_than_its_rate(monkeypatch):
    """A hundred thousand bytes of a megabyte a second are a tenth of a second's waiting, but for the first burst."""
    now, waits = [0.0], []

    def wait(seconds):
        waits.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(_raw, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    throttle = Throttle(1e6)
    for _ in range(10):
        throttle.take(10_000, SimpleNamespace(wait=wait))

    assert sum(waits) == pytest.approx(0.1, abs=2 * Throttle.BURST_SECONDS)


# Whole loaders.


@pytest.mark.parametrize(
    ("batch", "images"),
    [
        (np.zeros((5, 3, 8, 8)), 5),
        ({"_repeat": np.zeros(9), "image": np.zeros((4, 3)), "label": np.zeros(4)}, 4),
        ({"image": [np.zeros(3), np.zeros(4)]}, 2),
        ((np.zeros((6, 2)), np.zeros(6)), 6),
        ([[np.zeros(3), np.zeros(4), np.zeros(1)], ["a", "b", "c"]], 3),
        ([{"image": np.zeros((8, 8))}] * 7, 7),
        ("?", 1),
    ],
    ids=["array", "dict", "ragged", "pair", "lists", "samples", "stranger"],
)
def test_images_of_a_batch_are_counted(batch, images):
    assert _batches.count_images(batch) == images


@pytest.mark.parametrize(
    ("batch", "images"),
    [
        ([(np.zeros((3, 9, 9)), 1)] * 5, 5),
        ((tuple([np.zeros((3, 9, 9))] * 5), tuple([{}] * 5)), 5),
        ([[np.zeros((5, 3)), np.zeros((5, 3))], np.zeros(5)], 5),
        ({"epoch": 3, "image": np.zeros((8, 3))}, 8),
        ([np.zeros((640, 480, 3))] * 5, 5),
    ],
    ids=["samples", "columns of images", "two views", "a number first", "large images"],
)
def test_a_batch_size_tells_samples_from_columns(batch, images):
    """Lists of arrays may be either; detection's `tuple(zip(*samples))` is the most common."""
    assert _batches.count_images(batch, SimpleNamespace(batch_size=8)) == images


def test_a_slow_loader_is_measured_all_the_same(monkeypatch):
    """One batch after the first is enough where a batch takes longer than there is time."""
    monkeypatch.setattr(_differential, "MORE_SECONDS", 0.0)

    def batches():
        for _ in range(100):
            time.sleep(0.03)
            yield np.zeros(2)

    class Slow:
        __iter__ = staticmethod(batches)

    run = _differential.run_loader(Slow(), seconds=0.01)

    assert run.batches == 1
    assert run.total_images == 4


def test_an_epoch_of_one_batch_is_measured():
    """Whoever does not say how long an epoch is may have only first batches, which do not count at first."""

    class Single:
        def __iter__(self):
            return iter([np.zeros(2)])

    assert _differential.run_loader(Single(), seconds=0.01).batches > 0


def test_a_loader_without_batches_is_refused():
    with pytest.raises(ProfileError, match="gives no batches"):
        _differential.run_loader([], seconds=0.01)


def test_a_trainer_is_given_the_same_batch():
    batch, seen = object(), []
    run = _differential.run_trainer(seen.append, batch, 3, seconds=0.01)

    assert set(map(id, seen)) == {id(batch)}
    assert run.images == 3 * run.batches


# A stranger's dataset.


def test_transforms_get_their_clock_off_again():
    class Inner:
        def __init__(self):
            self.transform = self.transforms = str

        def __len__(self):
            return 3

        def __getitem__(self, number):
            if number == 2:
                raise OSError("gone")
            return self.transform(number)

    class View:
        dataset = Inner()

        def __len__(self):
            return 3

        def __getitem__(self, number):
            return self.dataset[number]

    view = View()
    with pytest.raises(OSError, match="gone"):
        _foreign._fetch(view, 0.01)

    assert view.dataset.transform is str
    assert view.dataset.transforms is str


def test_a_collate_function_may_take_samples_apart():
    """Each call gets samples of its own; one that fails in the end is passed over."""
    samples = [{"image": np.zeros(3), "label": 1}] * 2
    clock = _foreign._collate(lambda batch: [sample.pop("label") for sample in batch], samples, 4, 0.01)

    assert clock.calls > 1
    assert samples[0]["label"] == 1
    assert _foreign._collate(lambda _: samples.pop(), samples, 4, 10.0) is None


# Meters.


def test_cpu_time_and_memory_are_metered():
    with _meters.metered() as cost:
        block = np.ones(8 << 20, np.uint8)
        end = time.thread_time() + 0.03
        while time.thread_time() < end:
            block.sum()

    assert cost.cpu_seconds >= 0.01
    assert cost.seconds > 0
    assert cost.peak_bytes is None or cost.peak_bytes > 8 << 20
    assert cost.others is None or cost.others >= 0


def test_the_page_cache_of_a_container_is_free_memory(tmp_path):
    assert _meters._container_limit(tmp_path) is None
    for name, text in (("max", "1000"), ("current", "900"), ("stat", "anon 200\nactive_file 300\ninactive_file 400\n")):
        (tmp_path / f"memory.{name}").write_text(text)

    assert _meters._container_limit(tmp_path) == 800
    (tmp_path / "memory.max").write_text("max")
    assert _meters._container_limit(tmp_path) is None


@pytest.mark.parametrize(
    ("others", "seconds", "names"),
    [((0.1, 0.2), 1.0, ()), ((1.5, 0.1), 1.0, ("one",)), ((1.5, 0.9), 1.0, ("one", "two")), ((1.5, 1.5), 0.2, ())],
    ids=["quiet", "once", "always", "too short to tell"],
)
def test_a_disturbed_measurement_is_told(monkeypatch, others, seconds, names):
    found = iter(others)
    monkeypatch.setattr(_disturbance, "metered", lambda: nullcontext(_meters.Cost(seconds=seconds, others=next(found))))
    monkeypatch.setattr(_disturbance.os, "cpu_count", lambda: 2)
    watch = _disturbance.Watch(2)
    for name in ("one", "two"):
        with watch.during(name):
            pass

    assert watch.disturbed == names


@pytest.fixture
def powercap(tmp_path):
    """Two packages, one of which has a zone inside that is counted in it."""
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):
        zone = tmp_path / name
        zone.mkdir()
        (zone / "energy_uj").write_text("1000000")
        (zone / "max_energy_range_uj").write_text("9000000")
    return tmp_path


def test_energy_is_read_from_counters_that_start_anew(powercap, monkeypatch):
    monkeypatch.setattr(_energy, "_nvml_counters", list)
    counter = _energy.EnergyCounter(powercap)
    counter.start()
    (powercap / "intel-rapl:0/energy_uj").write_text("3000000")
    (powercap / "intel-rapl:1/energy_uj").write_text("500000")

    assert counter.source == "rapl"
    assert counter.stop() == pytest.approx(2.0 + 8.5)


def test_without_counters_there_is_no_source(tmp_path, monkeypatch):
    monkeypatch.setattr(_energy, "_nvml_counters", list)

    assert _energy.EnergyCounter(tmp_path / "none").source is None
    assert _energy.estimated_joules(2.0, 10.0) == 20.0


# Emulated machines, and what was asked for.


def test_fewer_cores_are_held_to_and_let_go():
    before = _settings.usable_cores()
    with _settings.on_cores(1) as there:
        assert there == 1
        assert not hasattr(os, "sched_getaffinity") or _settings.usable_cores() == 1
    assert _settings.usable_cores() == before
    with pytest.raises(ProfileError, match="what-if"), _settings.on_cores(before + 1):
        pass


@pytest.mark.parametrize(("text", "message"), [("link=1GB/s", "headrace plan"), ("cores=1.5", "whole ones")])
def test_what_a_profile_cannot_emulate_is_refused(text, message):
    with pytest.raises(ProfileError, match=message):
        _settings.Emulation.parse(text)


def test_core_counts_double_up_to_all():
    assert _settings.core_counts(1) == (1,)
    assert _settings.core_counts(6) == (1, 2, 4, 6)
    assert _settings.core_counts(4, (2, 4, 8)) == (2, 4)
    with pytest.raises(ProfileError, match="were asked for"):
        _settings.core_counts(2, (4, 8))


def test_a_recipe_says_how_batches_are_made(tmp_path):
    found = transforms.Recipe(
        fields=("image",), transforms=(transforms.CenterCrop(8),), seed=0, batch_size=5, fingerprint="0" * 32
    )
    making = _settings.read_recipe(found.to_json(), transform=None, crop=None, batch_size=None)

    assert making.batch_size == 5
    assert making.transform == [transforms.CenterCrop(8)]
    with pytest.raises(ProfileError, match="1 or more"):
        _settings.read_recipe(found.to_json(), transform=None, crop=None, batch_size=0)
    with pytest.raises(ProfileError, match="leave out"):
        _settings.read_recipe(found.to_json(), transform=None, crop=9, batch_size=None)
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(ProfileError, match="no JSON"):
        _settings.read_recipe(tmp_path / "recipe.json", transform=None, crop=None, batch_size=None)


@pytest.mark.parametrize("step", [0, -1.0, float("nan"), 1e9])
def test_a_step_is_a_function_or_seconds(step):
    with pytest.raises(ProfileError, match="seconds"):
        _settings.read_step(step)


# The course.


def interrupt(_):
    raise KeyboardInterrupt


def test_ctrl_c_ends_with_what_was_found():
    told, course = [], _course.Course(1.0)
    course.hook = told.append
    course.add("first", 1, lambda _: "7 images/s")
    course.add("second", 1, interrupt)
    course.add("third", 1, lambda _: pytest.fail("is not reached"))
    course.run()

    assert not course.complete
    assert course.notes == ["interrupted while measuring: second"]
    assert told[-1].found == ("first: 7 images/s",)


def test_ctrl_c_before_anything_was_found_is_one():
    course = _course.Course(1.0)
    course.add("first", 1, interrupt)

    with pytest.raises(KeyboardInterrupt):
        course.run()


def test_what_cannot_be_measured_is_noted_and_the_rest_goes_on():
    course, seen = _course.Course(0.0), []

    def broken(_):
        raise RuntimeError("no such thing")

    course.add("broken", 1, broken)
    course.add("needed", 1, seen.append)
    course.add("needless", 1, seen.append, optional=True)
    course.run()

    assert seen == [_course.LEAST_SECONDS]
    assert "no such thing" in course.notes[0]
    assert course.notes[1] == "there was no time left for: needless"


def test_a_vital_phase_that_fails_is_an_error():
    course = _course.Course(1.0)
    course.add("loader alone", 1, lambda _: 1 // 0, vital=True)

    with pytest.raises(ZeroDivisionError):
        course.run()


def test_a_long_phase_is_ended_when_the_time_is_over():
    course = _course.Course(1.0, latest=-1.0)
    course.add("long", 1, lambda _: course.go_on("and on"))
    course.run()

    assert course.notes == ["there was not enough time for: long"]
