# SPDX-License-Identifier: Apache-2.0
"""Calibrations of real folders: counts and sizes are checked, times are not."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from PIL import Image
from tests.planning.pictures import make_folder

import headrace
from headrace import errors
from headrace.measuring import take_sample
from headrace.planning import Calibration, calibrate, find_machine
from headrace.sources import open_source
from headrace.transforms import CenterCrop, HorizontalFlip, RandomCrop, Recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("calibrate") / "photos", 20)


def quickly(source, **options):
    return calibrate(source, **{"transform": [CenterCrop(64)], "batch_size": 4, "samples": 6, "quick": True, **options})


def test_every_format_is_measured_on_the_users_own_images(folder):
    seen = []
    found = quickly(folder, progress=lambda done, total, what: seen.append((done, total, what)))

    assert found.formats == ("png", "hri:dense", "hri:fast", "raw")
    assert (found.images, found.sampled, found.batch_size, found.source_format) == (20, 6, 4, "png")
    assert all(cost.cpu_seconds > 0 and cost.encode_seconds > 0 and cost.lossless for cost in found.costs)
    assert found.cost("png").read_bytes == pytest.approx(found.cost("png").stored_bytes, rel=0.2)
    assert found.cost("raw").stored_bytes > 96 * 96 * 3
    assert found.consumer_seconds > 0
    assert found.recipe["transforms"] == [CenterCrop(64).to_json()]
    assert [done for done, *_ in seen] == list(range(len(seen)))
    assert seen[-1][1] == len(seen)
    assert Calibration.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_the_affinity_is_restored(folder):
    before = os.sched_getaffinity(0)
    quickly(folder, formats=["raw"], cores=1)
    assert os.sched_getaffinity(0) == before


def test_a_dataset_is_calibrated_as_its_source_is(folder, tmp_path):
    headrace.build(folder, tmp_path / "photos.hr", format="hri:fast")
    found = quickly(headrace.open(tmp_path / "photos.hr"), cores=1)

    assert found.source_format == "hri:fast"
    assert found.formats == ("hri:fast", "hri:dense", "raw")
    assert found.cost("raw").cpu_seconds_crowded is None


def test_a_recipe_defines_how_images_are_loaded(folder):
    recipe = Recipe(
        fields=("image",), transforms=[RandomCrop(32), HorizontalFlip()], seed=1, batch_size=5, fingerprint="0" * 32
    )
    found = calibrate(folder, recipe=recipe.to_json(), formats=["raw"], samples=5, quick=True, cores=1)

    assert found.batch_size == 5
    assert found.recipe["transforms"] == [RandomCrop(32).to_json(), HorizontalFlip().to_json()]
    with pytest.raises(ValueError, match="a recipe has its own transforms"):
        calibrate(folder, recipe=recipe, transform=[CenterCrop(8)])


def test_direct_reads_are_measured_as_in_training(folder, tmp_path):
    found = quickly(folder, formats=["hri:fast"], loader_options={"direct_io": True}, cores=1, workdir=tmp_path)

    assert found.recipe["direct_io"] is True
    assert list(tmp_path.iterdir()) == []


def test_lossy_formats_are_only_those_of_the_source(folder, tmp_path):
    jpegs = make_folder(tmp_path / "jpegs", 6, suffix=".jpg")
    found = quickly(jpegs, cores=1)

    assert found.source_format == "jpeg"
    assert [cost.format for cost in found.costs if not cost.lossless] == ["jpeg"]
    with pytest.raises(ValueError, match="got jpeg, which would lose pixels"):
        quickly(folder, formats=["jpeg", "raw"])


def test_one_file_of_another_kind_keeps_a_lossy_format_out(tmp_path):
    """A plan with a share of JPEG would make a JPEG of the PNG, though it is not in the sample."""
    mixed = make_folder(tmp_path / "mixed", 8, suffix=".jpg")
    Image.fromarray(np.zeros((80, 80, 3), np.uint8)).save(mixed / "class-0" / "odd.png")
    found = quickly(mixed, samples=3, cores=1)

    assert found.source_format == "mixed"
    assert "jpeg" not in found.formats


def test_files_that_cannot_be_decoded_are_skipped_and_named(tmp_path):
    photos = make_folder(tmp_path / "photos", 8, classes=1)
    (photos / "class-0" / "garbage.png").write_bytes(b"no picture" * 2000)
    (photos / "class-0" / "empty.png").touch()
    complete = (photos / "class-0" / "0003.png").read_bytes()
    (photos / "class-0" / "half.png").write_bytes(complete[: len(complete) // 2])
    found = quickly(photos, samples=20, formats=["png", "raw"], cores=1)

    assert (found.images, found.sampled, found.source_format) == (11, 8, "png")
    assert found.provenance["left_out"] == 3
    assert found.provenance["left_out_such_as"].partition(": ")[0] == "class-0/empty.png"


def test_a_source_of_damaged_files_only_is_rejected_and_one_is_named(tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"no picture")
    with pytest.raises(errors.BadSource, match=r"none of 2 can be decoded, such as a\.png: not a known image format"):
        take_sample(tmp_path, 5)


def test_damaged_images_of_an_iterable_are_skipped():
    good = np.zeros((70, 70, 3), np.uint8)
    sample = take_sample(iter([{"image": good}, {"image": b"no picture"}, {"image": good}]), 3)

    assert (sample.sampled, len(sample.skipped)) == (2, 1)
    assert [sample.source.load(item)["image"].shape for item in sample.source.items()] == [(70, 70, 3)] * 2


def test_a_format_that_cannot_store_an_image_is_named():
    deep = [{"image": np.full((20, 20, 3), 1000, np.uint16)}] * 2
    with pytest.raises(errors.UnsupportedImage, match=r"webp cannot store .*omit webp"):
        quickly(iter(deep), formats=["webp"], samples=2, cores=1)


def test_samples_are_the_same_each_time_and_of_all_sizes(folder):
    first, again = (take_sample(folder, 6) for _ in range(2))
    sizes = [item.n_bytes for item in first.source.items()]
    everything = sorted(item.n_bytes for item in open_source(folder).items())

    assert [item.key for item in first.source.items()] == [item.key for item in again.source.items()]
    assert np.mean(sizes) == pytest.approx(np.mean(everything), rel=0.1)
    assert take_sample(folder, 1000).sampled == 20


def test_arrays_from_an_iterable_can_be_calibrated():
    pictures = [{"image": np.full((70, 70, 3), number, np.uint8), "label": number} for number in range(5)]
    found = quickly(iter(pictures), formats=["raw", "hri:fast"], samples=4, cores=1)

    assert (found.images, found.source_format) == (4, "mixed")


def test_sources_without_images_are_rejected(tmp_path):
    with pytest.raises(errors.BadSource, match="must have an image field"):
        take_sample([{"label": 3}], 2)
    with pytest.raises(errors.BadSource):
        take_sample(tmp_path, 2)


def test_a_machine_is_measured_or_given(folder, photos):
    real = find_machine(folder, photos, seconds=0.1)
    given = find_machine(folder, storage_rate=2e8, cores=3, trainer_cores=1)

    assert real.cores == len(os.sched_getaffinity(0))
    assert 0 < real.storage_rate < float("inf")
    assert not real.emulated
    assert (given.storage_rate, given.usable_cores, given.emulated) == (2e8, 2, True)
    assert find_machine([], photos).storage_rate == float("inf")
