# SPDX-License-Identifier: Apache-2.0
"""Datasets in an S3 bucket: the same samples and batches as from a local folder, whatever the network does."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.storage import faulty_proxy as faults
from tests.storage.conftest import SAMPLES
from tests.storage.faulty_proxy import Sometimes

import headrace
from headrace.errors import CorruptDataset, StoreError
from headrace.transforms import RandomResizedCrop

URL = "s3://bucket/photos.hr"
RETRIED = {
    "503": faults.status(503),
    "429": faults.status(429),
    "500": faults.status(500),
    "reset": faults.reset,
    "truncated": faults.truncate,
    "wrong range": faults.wrong_range,
    "flipped bit": faults.flip_a_bit,
}


def epoch(dataset: Any, **options: Any) -> list[np.ndarray]:
    with headrace.Loader(
        dataset, batch_size=6, shuffle=True, transform=RandomResizedCrop(32), output="numpy", **options
    ) as loader:
        return [batch["image"].copy() for batch in loader]


@pytest.fixture(scope="module")
def expected(local: Path) -> list[np.ndarray]:
    return epoch(local)


@pytest.fixture
def dataset(options: dict[str, object]) -> headrace.records.Dataset:
    return headrace.open(URL, storage_options=options)


def same(found: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    return len(found) == len(expected) and all(map(np.array_equal, found, expected))


def test_samples_and_columns_are_those_of_the_local_dataset(dataset, local):
    ours, theirs = dataset, headrace.open(local)

    assert len(ours) == SAMPLES
    assert ours.fingerprint == theirs.fingerprint
    assert np.array_equal(ours[7]["image"], theirs[7]["image"])
    assert np.array_equal(ours.targets, theirs.targets)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_are_those_of_the_local_dataset(dataset, expected, workers):
    assert same(epoch(dataset, num_workers=workers), expected)


def test_an_epoch_downloads_the_dataset_once(dataset, expected, proxy, local):
    proxy.bytes = 0
    assert same(epoch(dataset), expected)

    stored = sum(file.stat().st_size for file in (local / "shards").iterdir())
    assert stored * 0.9 < proxy.bytes <= 1.05 * stored


def test_the_index_is_downloaded_once(dataset, options, proxy):
    before = proxy.ranges
    headrace.open(URL, storage_options=options)

    assert len(dataset) == SAMPLES
    assert proxy.ranges == before


@pytest.mark.parametrize("fault", RETRIED.values(), ids=RETRIED.keys())
def test_passing_faults_are_retried(dataset, expected, proxy, fault):
    proxy.fault = Sometimes(fault, every=7)
    found = epoch(dataset)

    assert proxy.fault.done > 0
    assert same(found, expected)


def test_a_store_that_stops_answering_ends_in_an_error_that_names_the_object(dataset, proxy, monkeypatch):
    monkeypatch.setattr("headrace.storage._requests.MAX_TRIES", 2)
    proxy.fault = Sometimes(faults.status(503), every=1)
    with pytest.raises(StoreError, match=r"sample '.*'.* of s3://bucket/photos.hr/shards/00000\d.hrs.*503"):
        epoch(dataset)


def test_an_object_that_was_replaced_is_an_error(dataset, proxy):
    proxy.fault = Sometimes(faults.another_version, every=3)
    with pytest.raises(StoreError, match=r"replaced since it was opened: open the dataset again"):
        epoch(dataset)


def test_bytes_that_are_damaged_in_the_store_are_an_error(dataset, proxy):
    proxy.fault = Sometimes(faults.flip_a_bit, every=1)
    with pytest.raises(CorruptDataset, match=r"checksum of the bytes in the store does not match the index"):
        epoch(dataset)


def test_damaged_samples_can_be_skipped(dataset, proxy):
    proxy.fault = Sometimes(faults.another_version, every=4)
    with headrace.Loader(dataset, batch_size=6, on_error="skip", ragged="list") as loader:
        n = sum(len(batch["label"]) for batch in loader)
        errors = loader.stats().error_count

    assert errors > 0
    assert n == SAMPLES - errors


def test_credentials_are_never_shown(dataset, proxy, options):
    proxy.fault = Sometimes(faults.status(403), every=1)
    with pytest.raises(StoreError, match="access is denied") as caught:
        dataset[0]

    shown = f"{dataset!r} {caught.value} {dataset.objects!r} {dataset.manifest}"
    assert options["secret_access_key"] not in shown


def test_a_break_and_a_new_epoch_leave_nothing_behind(dataset, expected):
    with headrace.Loader(
        dataset, batch_size=6, shuffle=True, transform=RandomResizedCrop(32), output="numpy"
    ) as loader:
        for _ in range(3):
            next(iter(loader))
        loader.set_epoch(0)
        found = [batch["image"].copy() for batch in loader]

    assert same(found, expected)


def test_a_state_resumes_in_mid_epoch(dataset, expected, options):
    with headrace.Loader(
        dataset, batch_size=6, shuffle=True, transform=RandomResizedCrop(32), output="numpy"
    ) as loader:
        iterator = iter(loader)
        first = [next(iterator)["image"].copy() for _ in range(3)]
        state = loader.state_dict()
    with headrace.Loader(
        headrace.open(URL, storage_options=options),
        batch_size=6,
        shuffle=True,
        transform=RandomResizedCrop(32),
        output="numpy",
    ) as loader:
        loader.load_state_dict(state)
        rest = [batch["image"].copy() for batch in loader]

    assert same(first + rest, expected)


def test_a_pickle_opens_the_same_dataset(dataset):
    again = pickle.loads(pickle.dumps(dataset))

    assert np.array_equal(again[3]["image"], dataset[3]["image"])


def test_a_missing_dataset_is_named(options):
    with pytest.raises(FileNotFoundError, match=r"s3://bucket/nothing.hr is not a dataset"):
        headrace.open("s3://bucket/nothing.hr", storage_options=options)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/ds", "must start with s3://"),
        ("https://user:word@host/ds", "use https://host/ds and pass credentials in storage_options"),
        ("https://host/ds?sig=abc", "must have no user name, query or fragment"),
    ],
)
def test_urls_that_cannot_be_used_say_why(url, message):
    with pytest.raises(ValueError, match=message) as caught:
        headrace.open(url)

    assert "word" not in str(caught.value).replace("password", "")
    assert "abc" not in str(caught.value)
