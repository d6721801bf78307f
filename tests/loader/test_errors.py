# SPDX-License-Identifier: Apache-2.0
"""Samples that cannot be loaded: told with all that is needed to mend them, skipped, or replaced."""

from __future__ import annotations

import logging
import shutil
import time

import numpy as np
import pytest
from tests.loader.datasets import COUNT, assert_equal, copied, labels

import headrace
from headrace.errors import CorruptDataset, CorruptImage, HeadraceError, LoaderError, TransformError
from headrace.loader.pixels._errors import MAX_TRIES
from headrace.transforms import CenterCrop, RandomCrop, RandomResizedCrop

CROP = [RandomResizedCrop(12)]


def load(path, **options):
    return headrace.Loader(path, **{"output": "numpy", "num_workers": 2, "transform": CROP, **options})


@pytest.fixture
def hurt(path, tmp_path):
    """A copy of the dataset, and a way to damage the image of one of its samples."""
    copy = shutil.copytree(path, tmp_path / "hurt.hr")
    ds = headrace.open(copy)

    def damage(*rows):
        for row in rows:
            _, rendition = ds.read(row, "image")
            with (copy / rendition.shard).open("r+b") as file:
                file.seek(rendition.offset)
                file.write(bytes(rendition.n_bytes))

    return copy, damage


def rows_by_format(path):
    """A row of each format that the dataset has."""
    ds = headrace.open(path)
    return {ds.read(row, "image")[1].format: row for row in range(len(ds))}


def test_the_error_names_everything(hurt, path):
    """Key, row, field, file and offset, and what to do, for formats of the core and of others."""
    copy, damage = hurt
    for form, row in rows_by_format(path).items():
        damage(row)
        _, rendition = headrace.open(copy).read(row, "image")
        with load(copy, batch_size=8, indices=[row]) as loader, pytest.raises(HeadraceError) as caught:
            list(loader)
        message = str(caught.value)
        for part in (
            f"sample/{row}",
            f"row {row}",
            "'image'",
            f"offset {rendition.offset}",
            rendition.shard,
            "on_error",
        ):
            assert part in message, form
        assert isinstance(caught.value, CorruptImage), form


def test_after_an_error_the_loader_can_go_on(hurt):
    """The iteration has ended; the state is that of the batch before."""
    copy, damage = hurt
    damage(13)
    with load(copy, batch_size=4) as loader:
        iteration = iter(loader)
        assert labels([next(iteration) for _ in range(3)])[-1] == [8, 9, 10, 11]
        with pytest.raises(CorruptImage, match="row 13"):
            next(iteration)
        with pytest.raises(LoaderError, match="ended"):
            next(iteration)
        assert loader.state_dict()["samples"] == 12
        assert loader.stats().error_count == 0


def test_skipped_samples_leave_a_shorter_batch(hurt, path, caplog):
    copy, damage = hurt
    damage(5, 6, 13)
    with caplog.at_level(logging.WARNING, "headrace.loader"), load(copy, batch_size=4, on_error="skip") as loader:
        batches = copied(list(loader))
        stats = loader.stats()
    expected = [list(range(start, start + 4)) for start in range(0, COUNT, 4)]
    expected[1], expected[3] = [4, 7], [12, 14, 15]
    assert labels(batches) == expected
    assert all(len(batch["image"]) == len(batch["name"]) == len(batch["label"]) for batch in batches)
    assert [(error.row, error.action) for error in stats.errors] == [
        (5, "skipped"),
        (6, "skipped"),
        (13, "skipped"),
    ]
    assert stats.error_count == 3
    assert [record.message.count("sample/") for record in caplog.records] == [1, 1, 1]
    with load(path, batch_size=4) as loader:
        whole = list(loader)
    np.testing.assert_array_equal(batches[1]["image"], whole[1]["image"][[0, 3]])


def test_a_batch_may_be_skipped_altogether(hurt):
    copy, damage = hurt
    damage(*range(4, 8))
    with load(copy, batch_size=4, on_error="skip") as loader:
        batches = list(loader)
    assert len(batches) == 10
    assert batches[1]["image"].shape == (0, 3, 12, 12)
    assert batches[1]["name"] == []


@pytest.mark.parametrize("transform", [CROP, None], ids=["uniform", "ragged"])
def test_replaced_samples_are_whole_samples(hurt, path, transform):
    """All fields are those of the substitute, which is the same in every run."""
    copy, damage = hurt
    damage(5, 6, 13)
    options = {"batch_size": 4, "on_error": "replace", "transform": transform, "seed": 2}
    with load(copy, **options) as loader, load(copy, **options, num_workers=0) as again:
        batches = copied(list(loader))
        assert_equal(batches, list(again))
        assert [error.action for error in loader.stats().errors] == ["replaced"] * 3
    assert [len(batch["label"]) for batch in batches] == [4] * 10
    ds = headrace.open(path, transform=transform, seed=2)
    changed = []
    for number, batch in enumerate(batches):
        for at, label in enumerate(batch["label"].tolist()):
            if label != 4 * number + at:
                changed.append(4 * number + at)
            expected = ds[label]["image"] if transform else ds[label]["image"].transpose(2, 0, 1)
            np.testing.assert_array_equal(batch["image"][at], expected)
            assert batch["name"][at] == f"№ {label}"
    assert changed == [5, 6, 13]


def test_there_is_an_end_to_replacing(hurt):
    """A dataset without a good sample is an error, not an endless search."""
    copy, damage = hurt
    damage(*range(COUNT))
    with (
        load(copy, batch_size=4, on_error="replace") as loader,
        pytest.raises(LoaderError, match=f"{MAX_TRIES} samples"),
    ):
        next(iter(loader))


@pytest.mark.parametrize("change", ["truncated", "deleted"])
def test_a_shard_that_goes_while_training(hurt, change):
    """A clear error within a second, or what is left."""
    copy, _ = hurt
    with load(copy, batch_size=2, batches_ahead=1, num_workers=1) as loader:
        iteration = iter(loader)
        next(iteration)
        shards = sorted((copy / "shards").iterdir())
        for shard in shards[2:]:
            if change == "deleted":
                shard.unlink()
            else:
                with shard.open("r+b") as file:
                    file.truncate(100)
        begun = time.monotonic()
        with pytest.raises(CorruptDataset, match=f"{shards[2].name}"):
            list(iteration)
        assert time.monotonic() - begun < 1
    with load(copy, batch_size=2, on_error="skip") as loader:
        assert [label for batch in labels(loader) for label in batch][:14] == list(range(14))


def test_a_crop_larger_than_its_image(path):
    with load(path, batch_size=4, transform=[RandomCrop(500)]) as loader, pytest.raises(TransformError, match="row 0"):
        next(iter(loader))
    with pytest.raises(TransformError, match="row 3"):
        headrace.open(path, transform=[RandomCrop(500)])[3]
    sizes = [sample["mask"].shape for sample in headrace.open(path)]
    with load(path, batch_size=4, transform=[RandomCrop(40)], on_error="skip") as loader:
        kept = [label for batch in labels(loader) for label in batch]
    assert kept == [row for row, size in enumerate(sizes) if min(size) >= 40]


def test_the_stored_checksum_of_lossy_formats_is_checked(hurt, path):
    """One changed byte of a WebP file would decode to wrong pixels."""
    copy, _ = hurt
    row = rows_by_format(path)["webp"]
    _, rendition = headrace.open(copy).read(row, "image")
    with (copy / rendition.shard).open("r+b") as file:
        file.seek(rendition.offset + rendition.n_bytes - 20)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    with load(copy, indices=[row], transform=[CenterCrop(4)]) as loader, pytest.raises(CorruptImage, match="checksum"):
        list(loader)
