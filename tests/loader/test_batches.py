# SPDX-License-Identifier: Apache-2.0
"""What is in a batch: the samples of the dataset, field by field, in memory that stays theirs."""

from __future__ import annotations

import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tests.loader.datasets import COUNT, FIELDS, assert_equal, copied, labels, make_sample

import headrace
from headrace.errors import LoaderError, MissingExtra
from headrace.loader import _assembly, limit_storage
from headrace.loader.pixels._engine import EngineSource
from headrace.records import Boxes
from headrace.transforms import CenterCrop, HorizontalFlip, Normalize, PerBatch, RandomResizedCrop, Resize, Views

CROP = [RandomResizedCrop(16), HorizontalFlip()]


def load(path, **options):
    return headrace.Loader(path, **{"output": "numpy", "num_workers": 2, **options})


def test_without_transforms_samples_come_as_they_are_stored(path):
    """Pixels, numbers, text and boxes are those that were written."""
    with load(path) as loader:
        batches = list(loader)

    assert len(batches) == len(loader) == COUNT
    for number, batch in enumerate(batches):
        sample = make_sample(number)
        assert list(batch) == list(FIELDS)
        np.testing.assert_array_equal(batch["image"][0], sample["image"].transpose(2, 0, 1))
        np.testing.assert_array_equal(batch["mask"][0], sample["mask"])
        assert (batch["label"].dtype, batch["label"].tolist()) == (np.int64, [number])
        assert (batch["weight"].dtype, batch["weight"].tolist()) == (np.float32, [number / 8])
        assert isinstance(batch["boxes"][0], Boxes)
        np.testing.assert_array_equal(batch["boxes"][0].xyxy, sample["boxes"][0])
        np.testing.assert_array_equal(batch["boxes"][0].labels, sample["boxes"][1])
        assert batch["name"] == [sample["name"]]
        assert batch["blob"] == [sample["blob"]]
        np.testing.assert_array_equal(batch["scores"][0], sample["scores"])


def test_the_dataset_gives_the_same_samples(path):
    """Augmentations depend on seed, epoch and row, not on who runs them: pixels, masks and boxes agree."""
    ds = headrace.open(path, transform=CROP, seed=5)
    with load(path, transform=CROP, seed=5, shuffle=True, batch_size=8) as loader:
        for epoch in range(2):
            ds.set_epoch(epoch)
            for batch in loader:
                for at, label in enumerate(batch["label"].tolist()):
                    sample = ds[label]
                    np.testing.assert_array_equal(batch["image"][at], sample["image"])
                    np.testing.assert_array_equal(batch["mask"][at], sample["mask"])
                    assert_equal(batch["boxes"][at], sample["boxes"])


def test_a_dataset_brings_its_transform_seed_and_color_along(path):
    ds = headrace.open(path, transform=CROP, seed=5, color="keep")
    with (
        load(ds, shuffle=True, batch_size=8) as ours,
        load(path, transform=CROP, seed=5, shuffle=True, batch_size=8) as other,
    ):
        assert ours.recipe == {**other.recipe, "color": "keep"}
        assert_equal(next(iter(ours)), next(iter(other)))


def test_every_setting_of_speed_gives_the_same_batches(path):
    """Threads and prefetching change nothing."""
    with load(path, transform=CROP, shuffle=True, batch_size=7) as loader:
        expected = copied(list(loader))
    for threads, ahead, direct in [(0, 2, False), (0, 1, True), (1, 1, False), (3, 5, False), (8, 2, True)]:
        options = {"num_workers": threads, "batches_ahead": ahead, "direct_io": direct}
        with load(path, transform=CROP, shuffle=True, batch_size=7, **options) as loader:
            assert_equal(list(loader), expected)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts the threads of the process")
@pytest.mark.parametrize(
    "options", [{}, {"collate_fn": list}, {"device": "cpu", "output": "torch"}, {"rate": 3e6}], ids=str
)
def test_zero_workers_work_in_the_calling_thread(path, options):
    """Nothing starts a thread, whatever decodes and whoever is called; the pixels are those that threads make."""
    threads = []

    def look(sample):
        threads.append((threading.get_ident(), task_ids()))
        return sample

    before = task_ids()
    options = dict(options)
    rate = options.pop("rate", None)
    with load(path, transform=[*CROP, look], batch_size=7, num_workers=0, **options) as loader:
        limit_storage(loader, rate)
        assert (loader.num_workers, loader.batches_ahead) == (0, 1)
        found = [pixels(batch) for batch in loader]
    assert {ident for ident, _ in threads} == {threading.get_ident()}
    assert {name for _, names in threads for name in names} <= before
    with load(path, transform=[*CROP, same], batch_size=7, num_workers=3, **options) as loader:
        assert_equal(found, [pixels(batch) for batch in loader])


def test_zero_workers_decode_nothing_before_a_batch_is_asked_for(path):
    with load(path, transform=CROP, batch_size=8, num_workers=0) as loader:
        batches = iter(loader)
        assert loader.stats().images == 0
        next(batches)
        assert loader.stats().images == 16


def pixels(batch):
    images = [sample["image"] for sample in batch] if isinstance(batch, list) else batch["image"]
    return [np.array(getattr(image, "numpy", lambda image=image: image)()) for image in images]


def task_ids():
    return {task.name for task in Path("/proc/self/task").iterdir()}


def same(sample):
    return sample


def test_a_batch_that_is_kept_stays_as_it_was(path):
    """`list(loader)` equals batches that were copied one by one."""
    with load(path, transform=CROP, batch_size=4) as loader:
        kept = list(loader)
        loader.set_epoch(0)
        one_by_one = [copied(batch) for batch in loader]
        assert_equal(kept, one_by_one)
    assert_equal(kept, one_by_one)


def test_a_part_of_a_batch_keeps_its_memory(path):
    """A view of one image outlives batch, iterator and loader."""
    with load(path, transform=CROP, batch_size=4) as loader:
        views = [batch["image"][2, 1] for batch in loader]
        copies = [view.copy() for view in views]
        list(loader)
    del loader
    assert_equal(views, copies)


def test_fields_are_chosen(path):
    with load(path, fields=["label", "mask"], transform=[CenterCrop(8)], batch_size=4) as loader:
        assert list(next(iter(loader))) == ["label", "mask"]
    with load(path, fields=["name"], batch_size=3) as loader:
        assert next(iter(loader)) == {"name": ["№ 0", "№ 1", "№ 2"]}
        assert loader.stats().batches == 1


def test_indices_and_views_choose_samples(path):
    with load(path, indices=[5, 3, -1, 3], batch_size=4) as loader:
        assert labels(loader) == [[5, 3, 39, 3]]
    with load(headrace.open(path).select(range(10, 30)), indices=slice(0, None, 5), batch_size=4) as loader:
        assert labels(loader) == [[10, 15, 20, 25]]


def test_weights_draw_with_replacement(path):
    weights = np.zeros(COUNT)
    weights[[3, 8]] = 1, 3
    with load(path, weights=weights, batch_size=COUNT, fields=["label"]) as loader:
        first, second = labels(loader) + labels(loader)
    assert set(first) == {3, 8}
    assert len(first) == COUNT
    assert first.count(8) > first.count(3)
    assert first != second
    with pytest.raises(ValueError, match="shuffle"):
        load(path, weights=weights, shuffle=True)
    with pytest.raises(ValueError, match="40 samples"):
        load(path, weights=[1, 2])


def test_layout_and_dtype(path):
    with load(path, transform=[CenterCrop(8)], layout="HWC", dtype="float32", batch_size=2) as loader:
        image = next(iter(loader))["image"]
    assert (image.shape, image.dtype) == ((2, 8, 8, 3), np.float32)
    assert 0 <= image.min() < image.max() <= 1
    with load(path, transform=[CenterCrop(8), Normalize(0.5, 0.5)], dtype=np.float16) as loader:
        assert next(iter(loader))["image"].dtype == np.float16


def test_several_views_of_a_sample(path):
    with load(path, transform=[Views(3, CROP)], batch_size=4) as loader:
        batch = next(iter(loader))
    assert batch["image"].shape == (4, 3, 3, 16, 16)
    assert batch["mask"].shape == (4, 3, 16, 16)
    assert [len(views) for views in batch["boxes"]] == [3] * 4
    assert not np.array_equal(batch["image"][:, 0], batch["image"][:, 1])
    ds = headrace.open(path, transform=[Views(3, CROP)])
    np.testing.assert_array_equal(batch["image"][2], ds[2]["image"])
    assert_equal(batch["boxes"][3], ds[3]["boxes"])


def test_views_of_differing_shape_stay_together(path):
    with load(path, transform=[Views(2, [HorizontalFlip()])], batch_size=4) as loader:
        images = next(iter(loader))["image"]
    assert [image.shape for image in images] == [(2, 3, *make_sample(n)["mask"].shape) for n in range(4)]


class TestRagged:
    """Images of differing shape."""

    def test_a_list_by_default(self, path):
        with load(path, batch_size=4) as loader:
            batch = next(iter(loader))
        for number, image in enumerate(batch["image"]):
            np.testing.assert_array_equal(image, make_sample(number)["image"].transpose(2, 0, 1))

    @pytest.mark.parametrize("layout", ["CHW", "HWC"])
    def test_padded(self, path, layout):
        with load(path, batch_size=4, ragged="pad", layout=layout) as loader:
            batch = next(iter(loader))
        sizes = [make_sample(n)["mask"].shape for n in range(4)]
        assert batch["_image_size"].tolist() == batch["_mask_size"].tolist() == [list(size) for size in sizes]
        for number, (height, width) in enumerate(sizes):
            image = batch["image"][number] if layout == "HWC" else batch["image"][number].transpose(1, 2, 0)
            np.testing.assert_array_equal(image[:height, :width], make_sample(number)["image"])
            assert not image[height:].any()
            assert not image[:, width:].any()
            assert (batch["mask"][number, height:] == 255).all()

    def test_padding_what_needs_none_tells_the_sizes_too(self, path):
        with load(path, batch_size=4, ragged="pad", transform=[Resize((9, 12))]) as loader:
            assert next(iter(loader))["_image_size"].tolist() == [[9, 12]] * 4

    def test_an_error_that_names_two(self, path):
        with load(path, batch_size=4, ragged="error") as loader, pytest.raises(LoaderError) as caught:
            next(iter(loader))
        for part in ("'image'", "'sample/0' (row 0)", "'sample/1' (row 1)", "Resize", "ragged="):
            assert part in str(caught.value)


class TestFunctions:
    """Functions of the user's, for samples and for batches."""

    def test_they_get_samples_in_order(self, path):
        seen = []

        def note(sample):
            seen.append(sample["label"])
            return {"image": sample["image"], "twice": 2 * sample["label"], "half": sample["weight"] / 2}

        with load(path, transform=[CenterCrop(8), note], batch_size=8) as loader:
            batches = list(loader)
        assert [batch["twice"].tolist() for batch in batches] == [[2 * n for n in part] for part in labels_of(8)]
        assert sorted(seen) == list(range(COUNT))
        assert batches[0]["image"].shape == (8, 3, 8, 8)
        assert batches[0]["half"].dtype == np.float32
        assert loader.stats().busy_seconds.callables > 0

    def test_they_give_what_they_like(self, path):
        with load(
            path, transform=lambda sample: (sample["image"][:, :8, :8], sample["label"], sample["name"])
        ) as loader:
            image, label, name = next(iter(loader))
        assert (image.shape, label.tolist(), name) == ((1, 3, 8, 8), [0], ["№ 0"])

    def test_ragged_results_follow_the_rule(self, path):
        def keep(sample):
            return {"image": sample["image"], "scores": sample["scores"]}

        with load(path, transform=keep, batch_size=3) as loader:
            assert [image.shape[0] for image in next(iter(loader))["image"]] == [3, 3, 3]
        with load(path, transform=keep, batch_size=3, ragged="pad") as loader:
            batch = next(iter(loader))
        assert batch["_image_size"].shape == (3, 2)
        assert [len(scores) for scores in batch["scores"]] == [0, 1, 2]
        with (
            load(path, transform=keep, batch_size=3, ragged="error") as loader,
            pytest.raises(LoaderError, match="row 1"),
        ):
            next(iter(loader))

    def test_samples_must_have_the_same_entries(self, path):
        def odd(sample):
            return {"label": 1} if sample["label"] % 2 else {"label": 0, "even": 1}

        with load(path, transform=odd, batch_size=2) as loader, pytest.raises(LoaderError, match=r"'even'.*row 1"):
            next(iter(loader))

    def test_for_batches(self, path):
        def mean(batch):
            return {**batch, "mean": batch["image"].mean()}

        with load(path, transform=[CenterCrop(8), PerBatch(mean)], batch_size=4) as loader:
            batch = next(iter(loader))
        assert batch["mean"] == batch["image"].mean()

    def test_collate_fn_takes_the_place_of_stacking(self, path):
        with load(path, collate_fn=lambda samples: [sample["name"] for sample in samples], batch_size=3) as loader:
            assert list(loader)[:2] == [["№ 0", "№ 1", "№ 2"], ["№ 3", "№ 4", "№ 5"]]

    def test_an_exception_says_whose_it_is(self, path):
        def fail(sample):
            if sample["label"] == 13:
                raise ZeroDivisionError("no")
            return sample

        with load(path, transform=fail, batch_size=4) as loader, pytest.raises(ZeroDivisionError) as caught:
            list(loader)
        assert "sample 'sample/13' (row 13)" in "".join(caught.value.__notes__)


def labels_of(batch_size):
    return [list(range(start, start + batch_size)) for start in range(0, COUNT, batch_size)]


def test_stats_tell_what_was_done(path):
    with load(path, transform=CROP, batch_size=8) as loader:
        list(loader)
        stats = loader.stats()
        assert stats.batches == 5
        assert stats.samples == COUNT
        assert stats.images == 2 * COUNT
        assert stats.bytes_read > 0
        assert stats.wait_seconds > 0
        assert min(stats.busy_seconds.read, stats.busy_seconds.decode, stats.busy_seconds.batch) > 0
        assert stats.error_count == 0
        assert stats.errors == ()
    assert loader.stats().images == 2 * COUNT


def test_the_recipe_says_how_batches_are_made(path):
    with load(path, transform=CROP, seed=4, shuffle=True, batch_size=8, rank=1, world_size=2) as loader:
        recipe = headrace.transforms.Recipe.from_json(loader.recipe)
    assert recipe.transforms == tuple(CROP)
    assert (recipe.seed, recipe.batch_size, recipe.world_size, recipe.shuffle) == (4, 8, 2, True)
    assert recipe.fingerprint == headrace.open(path).fingerprint
    with load(path, transform=[len]) as loader, pytest.raises(ValueError, match="len"):
        _ = loader.recipe


def test_boxes_too_small_are_left_out(path):
    with load(path, transform=CROP, batch_size=COUNT, min_area=40) as loader:
        few = next(iter(loader))["boxes"]
    with load(path, transform=CROP, batch_size=COUNT) as loader:
        many = next(iter(loader))["boxes"]
    assert sum(len(boxes.labels) for boxes in few) < sum(len(boxes.labels) for boxes in many)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"batch_size": None}, TypeError, "batch_size"),
        ({"batch_size": 2.5}, TypeError, "batch_size"),
        ({"num_workers": -1}, ValueError, "num_workers"),
        ({"batches_ahead": 0}, ValueError, "batches_ahead"),
        ({"seed": -1}, ValueError, "seed"),
        ({"output": "tf"}, ValueError, "'torch', 'numpy', 'jax'"),
        ({"on_error": "ignore"}, ValueError, "'raise', 'skip', 'replace'"),
        ({"layout": "NCHW"}, ValueError, "'CHW', 'HWC'"),
        ({"ragged": "crop"}, ValueError, "'list', 'pad', 'error'"),
        ({"color": "BGR"}, ValueError, "'RGB', 'keep'"),
        ({"dtype": "float64"}, ValueError, "float16"),
        ({"device": "cuda"}, ValueError, "output='torch'"),
        ({"pin_memory": True}, ValueError, "output='torch'"),
        ({"fields": ["images"]}, ValueError, "image, mask, label"),
        ({"fields": "image"}, TypeError, r"\['image'\]"),
        ({"fields": []}, ValueError, "empty"),
        ({"indices": [99]}, IndexError, "40"),
        ({"rank": 1}, ValueError, "world_size"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank 2"),
        ({"collate_fn": 3}, TypeError, "collate_fn"),
        (
            {"num_workers": 0, "decode": "device", "output": "torch", "device": "cpu"},
            ValueError,
            "num_workers of at least 1",
        ),
        ({"sampler": [1]}, TypeError, "indices or weights"),
        ({"generator": 1}, TypeError, "seed"),
        ({"prefetch_factor": 2}, TypeError, "give batches_ahead"),
        ({"in_order": False}, TypeError, "order"),
        ({"batchsize": 3}, TypeError, "did you mean 'batch_size'"),
        ({"numworkers": 3}, TypeError, "did you mean 'num_workers'"),
        ({"persistent_worker": True}, TypeError, "did you mean 'persistent_workers'"),
        ({"xyzzy": 3}, TypeError, "no argument 'xyzzy'$"),
    ],
)
def test_wrong_options_are_told(path, options, error, message):
    with pytest.raises(error, match=message):
        load(path, **options)


def test_words_of_pytorch_that_do_no_harm(path):
    words = {"persistent_workers": True, "timeout": 30, "sampler": None, "in_order": True, "worker_init_fn": None}
    with load(path, shuffle=None, prefetch_factor=None, **words) as loader:
        assert labels(loader)[:2] == [[0], [1]]


def test_a_missing_framework_is_named(path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"headrace\[torch\].*output='numpy'"):
        headrace.Loader(path)


JAX = """
import sys
import jax, numpy
import headrace
from headrace.transforms import HorizontalFlip, RandomResizedCrop

options = {"transform": [RandomResizedCrop(16), HorizontalFlip()], "batch_size": 4, "fields": ["image", "label"]}
with headrace.Loader(sys.argv[1], **options, output="jax") as loader:
    with headrace.Loader(sys.argv[1], **options, output="numpy") as plain:
        for ours, expected in zip(list(loader), plain, strict=True):
            assert isinstance(ours["image"], jax.Array)
            numpy.testing.assert_array_equal(numpy.asarray(ours["image"]), expected["image"])
            assert ours["label"].tolist() == expected["label"].tolist()
"""


def test_jax(path):
    """In a process of its own: JAX starts threads, and warns of every later fork."""
    if find_spec("jax") is None:
        pytest.skip("jax is not installed: pip install --group trainers")
    subprocess.run([sys.executable, "-c", JAX, str(path)], check=True)


@pytest.mark.parametrize(("batch_size", "threads", "ahead"), [(8, 1, 2), (1, 2, 4), (1, 3, 6), (3, 2, 2)])
def test_no_more_is_prepared_than_was_asked_for(path, monkeypatch, batch_size, threads, ahead):
    """Two batches, or two samples a thread, run ahead of the trainer; a trainer that stops stops them."""
    submitted = []

    class Counting(EngineSource):
        def submit(self, rows, epoch):
            submitted.append(len(rows))
            return super().submit(rows, epoch)

    monkeypatch.setattr(_assembly, "EngineSource", Counting)
    with load(path, transform=CROP, batch_size=batch_size, num_workers=threads) as loader:
        iteration = iter(loader)
        assert submitted == []
        for taken in range(1, 4):
            next(iteration)
            assert len(submitted) == taken + ahead if taken + ahead < len(loader) else len(loader)


def test_an_empty_selection_has_no_batches(path):
    with load(path, indices=[]) as loader:
        assert len(loader) == 0
        assert list(loader) == []
