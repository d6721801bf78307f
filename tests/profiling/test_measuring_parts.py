# SPDX-License-Identifier: Apache-2.0
"""The instruments by themselves: clocks, cold files, meters, counters of energy, emulated machines."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.profiling.bottlenecks import write_folder

from headrace import transforms
from headrace.errors import ProfileError
from headrace.planning import USUAL_BATCH, usual_transform
from headrace.profiling import MachineFacts, Measurements, ProfiledSource
from headrace.profiling.stages import _files, _runs
from headrace.profiling.stages._files import RawLoader, RawSample, StorageThrottle
from headrace.profiling.subjects import _foreign, _schedule, _settings

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("parts") / "photos")


# The loader of plain files.


def raw_samples(folder):
    paths = sorted(folder.rglob("*.png"))
    return [RawSample(path.name, str(path), number) for number, path in enumerate(paths)]


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
    batches = list(RawLoader(samples, transforms.compile(None), batch_size=9, workers=1, max_batch_seconds=-1.0))

    assert [len(batch["label"]) for batch in batches] == [1] * 9
    assert sorted(int(batch["label"][0]) for batch in batches) == list(range(9))


def test_the_raw_loader_passes_over_files_that_are_damaged_or_gone(folder, tmp_path):
    samples = [
        RawSample("damaged", lambda: b"\x89PNG\r\n\x1a\n and no more"),
        RawSample("gone", str(tmp_path / "gone")),
        *raw_samples(folder)[:3],
    ]
    loader = RawLoader(samples, transforms.compile(None), batch_size=5, workers=2)
    (batch,) = loader

    assert len(batch["image"]) == 3
    assert set(loader.failures) == {"damaged", "gone"}


def test_the_raw_loader_ends_its_threads_when_a_loop_is_left(folder):
    """Even if they wait for storage that would take a year: only the first image comes at once."""
    samples = raw_samples(folder)
    throttle = StorageThrottle(1.0)
    throttle.BURST_SECONDS = 1.5 * Path(samples[0].source).stat().st_size
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

    monkeypatch.setattr(_files, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    throttle = StorageThrottle(1e6)
    for _ in range(10):
        throttle.take(10_000, SimpleNamespace(wait=wait))

    assert sum(waits) == pytest.approx(0.1, abs=2 * StorageThrottle.BURST_SECONDS)


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
    assert _runs.count_images(batch) == images


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
    assert _runs.count_images(batch, SimpleNamespace(batch_size=8)) == images


def test_a_slow_loader_is_measured_all_the_same(monkeypatch):
    """One batch after the first is enough where a batch takes longer than there is time."""
    monkeypatch.setattr(_runs, "EXTRA_SECONDS", 0.0)

    def batches():
        for _ in range(100):
            time.sleep(0.03)
            yield np.zeros(2)

    class Slow:
        __iter__ = staticmethod(batches)

    run = _runs.run_loader(Slow(), seconds=0.01)

    assert run.batches == 1
    assert run.total_images == 4


def test_an_epoch_of_one_batch_is_measured():
    """Whoever does not say how long an epoch is may have only first batches, which do not count at first."""

    class Single:
        def __iter__(self):
            return iter([np.zeros(2)])

    assert _runs.run_loader(Single(), seconds=0.01).batches > 0


def test_a_loader_without_batches_is_refused():
    with pytest.raises(ProfileError, match="at least one batch"):
        _runs.run_loader([], seconds=0.01)


def test_a_trainer_is_given_the_same_batch():
    batch, seen = object(), []
    run = _runs.run_trainer(seen.append, batch, 3, seconds=0.01)

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
    timing = _foreign._time_collate(lambda batch: [sample.pop("label") for sample in batch], samples, 4, 0.01)

    assert timing.rate > 0
    assert samples[0]["label"] == 1
    assert _foreign._time_collate(lambda _: samples.pop(), samples, 4, 10.0) is None


# Emulated machines, and what was asked for.


def test_fewer_cores_are_held_to_and_let_go():
    before = _settings.usable_cores()
    with _settings.limited_cores(1) as there:
        assert there == 1
        assert not hasattr(os, "sched_getaffinity") or _settings.usable_cores() == 1
    assert _settings.usable_cores() == before
    with pytest.raises(ProfileError, match="headrace size"), _settings.limited_cores(before + 1):
        pass


def test_what_a_profile_cannot_emulate_is_refused():
    with pytest.raises(ProfileError, match="must be an integer"), _settings.limited_cores(1.5):
        pass


def test_core_counts_double_up_to_all():
    assert _settings.core_counts(1) == (1,)
    assert _settings.core_counts(6) == (1, 2, 4, 6)
    assert _settings.core_counts(4, (2, 4, 8)) == (2, 4)
    with pytest.raises(ProfileError, match="cores must contain"):
        _settings.core_counts(2, (4, 8))


def test_a_recipe_says_how_batches_are_made(tmp_path):
    found = transforms.Recipe(
        fields=("image",), transforms=(transforms.CenterCrop(8),), seed=0, batch_size=5, fingerprint="0" * 32
    )
    making = _settings.read_batches(found.to_json(), transform=None, crop=None, batch_size=None)

    assert making.batch_size == 5
    assert making.loader["transform"] == [transforms.CenterCrop(8)]
    with pytest.raises(ProfileError, match="batch_size must be >= 1"):
        _settings.read_batches(found.to_json(), transform=None, crop=None, batch_size=0)
    with pytest.raises(ProfileError, match="omit"):
        _settings.read_batches(found.to_json(), transform=None, crop=9, batch_size=None)
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(ProfileError, match="must be a JSON file"):
        _settings.read_batches(tmp_path / "recipe.json", transform=None, crop=None, batch_size=None)


def test_a_profile_uses_the_same_transforms_as_a_plan():
    batches = _settings.read_batches(None, transform=None, crop=48, batch_size=None)

    assert batches.loader["transform"] == usual_transform(48)
    assert batches.batch_size == USUAL_BATCH
    assert batches.cli_options == ("--crop", "48", "--batch-size", str(USUAL_BATCH))


@pytest.mark.parametrize("step", [0, -1.0, float("nan"), 1e9])
def test_a_step_is_a_function_or_seconds(step):
    with pytest.raises(ProfileError, match="step must be"):
        _settings.read_step(step)


# The schedule.

START = Measurements(machine=MachineFacts(cores=1), source=ProfiledSource(kind="loader", name="list"))


def phase(name, line=None, importance="needed", error=None):
    """A phase that adds a note of its own, or raises."""

    def measure(found, seconds):
        if error is not None:
            raise error
        return found.add(line, notes=[f"{name} had {seconds:.1f} s"])

    return _schedule.Phase(name, 1, measure, importance)


def test_ctrl_c_keeps_the_results_of_the_phases_before():
    updates = []
    phases = [phase("first", "7 images/s"), phase("second", error=KeyboardInterrupt()), phase("third")]
    found = _schedule.Schedule(1.0, updates.append).run(phases, START)

    assert (found.complete, found.interrupted, found.missing) == (False, True, ("second", "third"))
    assert found.notes == ("first had 0.3 s", "interrupted while measuring: second")
    assert updates[-1].found == ("first: 7 images/s",)


def test_ctrl_c_before_any_result_is_raised():
    with pytest.raises(KeyboardInterrupt):
        _schedule.Schedule(1.0).run([phase("first", error=KeyboardInterrupt())], START)


def test_a_failing_phase_is_noted_and_the_next_one_starts():
    phases = [phase("broken", error=RuntimeError("no such thing")), phase("needed"), phase("extra", None, "optional")]
    found = _schedule.Schedule(0.0).run(phases, START)

    assert found.missing == ("broken",)
    assert found.notes == (
        "broken could not be measured: RuntimeError: no such thing",
        f"needed had {_schedule.MIN_SECONDS} s",
        "no time was left for: extra",
    )


def test_a_phase_changes_no_earlier_findings():
    """Each phase returns new findings, so that a later failure cannot leave half of its results."""
    start = _schedule.Findings(START)
    added = start.add("1 image/s", differential={"loader": 1.0}, notes=["a note"])

    assert (start.measurements, start.summary) == (START, None)
    assert added.add(None, differential={"trainer": 2.0}).measurements.differential.loader == 1.0


def test_an_essential_phase_that_fails_is_an_error():
    with pytest.raises(ZeroDivisionError):
        _schedule.Schedule(1.0).run([phase("loader alone", None, "essential", ZeroDivisionError())], START)


def test_a_long_phase_ends_when_the_time_is_over():
    schedule = _schedule.Schedule(1.0, latest=-1.0)
    found = schedule.run([_schedule.Phase("long", 1, lambda _, __: schedule.update("still running"))], START)

    assert found.notes == ("there was not enough time for: long",)
