# SPDX-License-Identifier: Apache-2.0
"""The parts of the loader's side that need no offload worker."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from PIL import Image
from tests.loader.datasets import COUNT, assert_equal
from tests.offload.offloading import OPTIONS, TRANSFORM, plain_batches

from headrace import build
from headrace import open as open_dataset
from headrace.errors import InvalidState, LoaderError
from headrace.loader import Loader
from headrace.loader.supply import EpochBatches, EpochPlan, LoaderState, Meters, Order
from headrace.offload import Pattern
from headrace.offload.exchange import BatchName
from headrace.offload.exchange._batch_file import BatchShape, BatchShapes, SampleShape, name_arrays
from headrace.offload.host import _pace
from headrace.offload.host._figures import OffloadKnowledge, report_epoch
from headrace.offload.host._pace import HostPace, PaceMeter
from headrace.offload.host._schedule import EpochRecord
from headrace.offload.host._supply import wait_limit
from headrace.offload.worker._rank import BatchMaker
from headrace.transforms import (
    HorizontalFlip,
    MultiCrop,
    Normalize,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomResizedCrop,
    Recipe,
    Resize,
    View,
    Views,
)
from headrace.transforms import compile as compile_transform

STATE = LoaderState(epoch=3, samples=0, seed=7, shuffle=True, length=1000, selection=None, fingerprint="01" * 16)


class Clock:
    """A clock that tests set."""

    def __init__(self, monkeypatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(_pace.time, "perf_counter", lambda: self.now)


def measured(clock, batches, *, host, step, busy, pause_at=None, made_for_each=1):
    """A trainer of `step` seconds and a host of `host`, which is waited for where it is slower."""
    meters, engine = Meters(), {"read_seconds": 0.0, "decode_seconds": 0.0, "transform_seconds": 0.0, "images": 0}
    meter = PaceMeter(meters, engine.copy, threads=2, images_per_batch=8)
    for number in range(batches):
        meters.steps.append(step)
        waited = max(0.0, host - step)
        clock.now += step + waited + (50.0 if number == pause_at else 0.0)
        if number:
            meter.done.append((clock.now, waited))
        else:
            meter.start()
        engine["decode_seconds"] += busy * 2 * made_for_each
        engine["images"] += 8 * made_for_each
    return meter.pace()


def test_a_host_that_is_waited_for_sets_its_own_pace(monkeypatch):
    pace = measured(Clock(monkeypatch), 20, host=0.4, step=0.1, busy=0.3)

    assert pace.host == pytest.approx(0.4)
    assert pace.step == pytest.approx(0.1)


def test_the_pace_of_a_host_that_is_ahead_follows_from_its_busy_time(monkeypatch):
    pace = measured(Clock(monkeypatch), 400, host=0.1, step=0.4, busy=0.1)

    assert pace.host == pytest.approx(0.1, rel=0.01)
    assert pace.step == pytest.approx(0.4)


def test_a_host_that_makes_batches_ahead_is_not_taken_to_be_slower(monkeypatch):
    """As it does when an epoch begins; an offload worker would be thought to be needed."""
    pace = measured(Clock(monkeypatch), 10, host=0.1, step=0.2, busy=0.1, made_for_each=2)

    assert pace.host == pytest.approx(0.1)


def test_a_pause_of_the_machine_does_not_change_the_pace(monkeypatch):
    pace = measured(Clock(monkeypatch), 20, host=0.4, step=0.1, busy=0.3, pause_at=7)

    assert pace.host == pytest.approx(0.4)


def test_nothing_is_known_at_first():
    assert PaceMeter(Meters(), dict, threads=1, images_per_batch=8).pace() is None


def test_how_long_the_loader_waits_for_a_prepared_batch():
    """Twice what a batch takes, within half a second and half a minute."""
    assert [wait_limit(seconds) for seconds in (None, 0.01, 2.0, 100.0)] == [0.5, 0.5, 4.0, 30.0]


def test_a_state_contains_the_rest_of_the_pattern():
    plan = EpochPlan(1000, batch_size=10)
    record = EpochRecord(STATE, plan, "paced")
    record.pattern = Pattern(2, 1, 3)
    taken = bytearray(record.pattern.is_prepared(slot) for slot in range(20))
    state = LoaderState.from_json(json.loads(json.dumps(record.after(20, taken).to_json())))

    assert (state.samples, state.tail) == (140, 60)
    assert (plan.start, state.stop) == (0, 940)
    assert EpochRecord(state, plan, "paced").recorded_pattern() == Pattern(2, 1, 3).after(20)
    assert EpochRecord(state, EpochPlan(1000, batch_size=20), "paced").recorded_pattern() is None
    assert EpochRecord(state, plan, "mte").recorded_pattern() is None
    broken = LoaderState.from_json({**state.to_json(), "prongs": {**state.prongs, "pattern": {"skip": -1}}})
    with pytest.raises(InvalidState, match="offload pattern is damaged"):
        EpochRecord(broken, plan, "paced").recorded_pattern()
    with pytest.raises(InvalidState, match="1001 samples of an epoch of 1000"):
        LoaderState.from_json({**state.to_json(), "tail": 861})


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("start", "stop"), [(0, 100), (13, 61), (96, 100), (40, 40)])
def test_a_stretch_of_an_epoch(drop_last, start, stop):
    """Batches from the head and from the tail of a stretch are the same; what lies outside of it does not come."""
    positions = []
    for rank in range(3):
        plan = EpochPlan(
            100, batch_size=4, rank=rank, world_size=3, drop_last=drop_last, start=start, stop=stop
        )  # fmt: skip
        order = Order(100, seed=1, shuffle=True)
        ascending, descending = EpochBatches(order, plan, 2), EpochBatches(order, plan, 2, descending=True)
        assert len(plan) == 100 // 12 + (not drop_last)
        for number in reversed(range(plan.remaining)):
            np.testing.assert_array_equal(descending.batch(number)[0], ascending.batch(number)[0])
            found, repeat = plan.batch(number)
            positions += found[~repeat].tolist() if repeat is not None else found.tolist()
    whole = (stop - start) // 12 * 12 if drop_last else stop - start
    assert sorted(positions) == list(range(start, start + whole))
    with pytest.raises(ValueError, match="got start 0, stop 101"):
        EpochPlan(100, batch_size=4, stop=101)


def test_batches_by_their_names(core_path):
    """Who has the recipe makes the loader's pixels of any batch, of any rank."""
    options = {**OPTIONS, "rank": 1, "world_size": 2}
    with Loader(core_path, **options) as loader:
        recipe = Recipe.from_json(loader.recipe)
    plain = plain_batches(core_path, 2, **options)
    maker = BatchMaker(open_dataset(core_path), recipe, threads=1)
    shapes = BatchShapes(open_dataset(core_path), ("image", "mask"), compile_transform(TRANSFORM))
    assert maker.batch_count(epoch=2, rank=1, start=0, stop=COUNT) == len(plain)
    for number in (9, 0, 4):
        making = maker.begin(BatchName(2, 1, 0, COUNT, number))
        while not making.wait(1.0):
            pass
        arrays = making.take()
        assert_equal(arrays["image"], plain[number]["image"])
        shape = shapes.of(arrays["_rows"])
        assert_equal(shape.stacked(arrays), [arrays["image"], arrays["mask"]])
        assert shape.n_bytes == arrays["image"].nbytes + arrays["mask"].nbytes
        with pytest.raises(ValueError, match="rows"):
            shapes.of(arrays["_rows"][::-1].copy()).stacked(arrays)
    maker.close()
    other = Recipe.from_json({**recipe.to_json(), "fingerprint": "ab" * 16})
    with pytest.raises(LoaderError, match="give the offload worker the dataset that the loader has"):
        BatchMaker(open_dataset(core_path), other)


def test_arrays_by_their_names():
    rows, image = np.array([4, 2]), np.zeros((2, 3))
    ragged = [np.zeros(3), np.ones(4)]
    arrays = name_arrays({"image": image, "mask": ragged}, rows)

    assert list(arrays) == ["_rows", "image", "mask.0", "mask.1"]
    sizes = [SampleShape((3,), "float64", 24), SampleShape((4,), "float64", 32)]
    shape = BatchShape(rows, {"image": [SampleShape((3,), "float64", 24)] * 2, "mask": sizes})
    assert_equal(shape.stacked(arrays), [image, ragged])
    for missing in ("_rows", "image", "mask.1"):
        with pytest.raises(ValueError, match=r"has no array|rows"):
            shape.stacked({name: array for name, array in arrays.items() if name != missing})
    for wrong in (image[:1], image.astype(np.float32), image.T):
        with pytest.raises(ValueError, match=r"image must be float64 of shape \(2, 3\)"):
            shape.stacked({**arrays, "image": wrong})


TRANSFORMS = {
    "none": None,
    "crop": [RandomResizedCrop(24)],
    "short side": [Resize(31)],
    "two views": [Views(2, [RandomCrop(8), HorizontalFlip()])],
    "groups of views": [
        MultiCrop([View(2, [RandomCrop(8)]), View(1, [RandomResizedCrop((5, 6)), Normalize(0.5, 0.5)])])
    ],
    "ragged groups": [MultiCrop([View(2, [RandomCrop(8)]), View(2, [Resize(12)])])],
    "erased": [RandomCrop(9), Normalize(0.5, 0.25), RandomErasing()],
    "ragged views": [Views(2, [Resize(12), HorizontalFlip()])],
    "normalised": [Resize((9, 11)), Pad(3), Normalize(0.5, 0.25)],
}


@pytest.mark.parametrize("options", [{}, {"layout": "HWC", "color": "keep"}, {"dtype": "float16"}])
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_the_shapes_of_a_batch_are_known_before_it_is_made(core_path, transform, options):
    """What the engine makes is what was worked out from the index, so a prepared batch can be held against it."""
    with Loader(core_path, batch_size=5, transform=transform, output="numpy", num_workers=1, **options) as loader:
        maker = BatchMaker(open_dataset(core_path), Recipe.from_json(loader.recipe), threads=1)
    shapes = BatchShapes(open_dataset(core_path), maker.fields, compile_transform(transform, **options))
    for number in range(4):
        making = maker.begin(BatchName(1, 0, 0, COUNT, number))
        while not making.wait(1.0):
            pass
        arrays = making.take()
        stacks = shapes.of(arrays["_rows"]).stacked(arrays)
        assert len(stacks) == len(maker.fields)
    maker.close()


@pytest.mark.parametrize("color", ["auto", "RGB", "keep"])
@pytest.mark.parametrize("form", ["keep", "hri", "raw"])
def test_the_shapes_of_images_with_alpha_and_with_other_bands_are_known(tmp_path, form, color):
    """What becomes three channels depends on what the bands mean, which the index and the format say."""
    (tmp_path / "in").mkdir()
    for number, mode in enumerate(("L", "LA", "RGB", "RGBA", "L", "RGBA")):
        Image.new(mode, (9 + number // 4, 7)).save(tmp_path / "in" / f"{number}.png")
    build(tmp_path / "in", tmp_path / "kinds.hr", format=form)
    check_shapes(tmp_path / "kinds.hr", 6, color=color)
    if form != "keep" and color != "RGB":
        bands = ({"image": np.zeros((5, 6, channels), np.uint8)} for channels in (1, 2, 3, 4))
        build(bands, tmp_path / "bands.hr", format=form)
        check_shapes(tmp_path / "bands.hr", 4, color=color)


def check_shapes(path, count, **options):
    """Make all batches of one sample and of all, and hold them against what was expected."""
    for size in (1, count):
        with Loader(path, batch_size=size, output="numpy", num_workers=1, ragged="list", **options) as loader:
            maker = BatchMaker(open_dataset(path), Recipe.from_json(loader.recipe), threads=1)
        shapes = BatchShapes(open_dataset(path), maker.fields, compile_transform(None, **options))
        for number in range(count // size):
            making = maker.begin(BatchName(0, 0, 0, count, number))
            while not making.wait(1.0):
                pass
            arrays = making.take()
            assert shapes.of(arrays["_rows"]).stacked(arrays)
        maker.close()


def test_an_image_above_the_limit_of_pixels_is_left_to_the_host(core_path):
    shapes = BatchShapes(open_dataset(core_path), ("image",), compile_transform(TRANSFORM, max_pixels=10))

    assert shapes.of(np.arange(2)) is None


@pytest.mark.parametrize(
    ("prepared", "pace", "line", "gained"),
    [
        (
            40,
            HostPace(0.1, 0.02, 0),
            "prepared 40 of 100 batches; the epoch took 6.00 s, about 10.0 s without it (40 % less time)",
            4,
        ),
        (
            40,
            HostPace(0.02, 0.05, 0),
            "prepared 40 of 100 batches; the epoch took 6.00 s, about 6.00 s without it (0 % less time)",
            0,
        ),
        (40, None, "prepared 40 of 100 batches; the epoch took 6.00 s", None),
        (0, HostPace(0.1, 0.02, 0.0), "prepared 0 of 100 batches (the trainer: slow); the epoch took 6.00 s", 0),
    ],
)
def test_what_an_epoch_gained(prepared, pace, line, gained, caplog):
    caplog.set_level(logging.INFO, "headrace.loader")
    knowledge = OffloadKnowledge(pace=pace, off=None if prepared else "the trainer: slow")
    report_epoch(knowledge, 7, 100, prepared, 6.0)

    assert caplog.messages == [f"epoch 7: the offload worker {line}"]
    assert knowledge.epochs[0]["gained_seconds"] == (None if gained is None else pytest.approx(gained))
