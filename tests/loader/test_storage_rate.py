# SPDX-License-Identifier: Apache-2.0
"""Emulated storage: no faster than its rate, and never in the way of an end."""

from __future__ import annotations

import dataclasses
import json
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from tests.loader.datasets import COUNT, assert_equal, copied, labels

import headrace
from headrace.loader import limit_storage, storage_limit


def _loader(path: Path, *, rate: float | None = None, **options: Any) -> headrace.Loader:
    loader = headrace.Loader(path, **{"batch_size": 8, "output": "numpy", "num_workers": 2, **options})
    if rate is not None:
        limit_storage(loader, rate)
    return loader


def test_reads_are_no_faster_than_the_rate(path: Path) -> None:
    rate = 400_000
    with _loader(path, rate=rate) as loader:
        begun = time.perf_counter()
        assert len(labels(loader)) == 5
        seconds = time.perf_counter() - begun
        n_bytes = loader.stats().bytes_read
    assert n_bytes > rate / 4
    assert n_bytes <= rate * (seconds + 0.02), "a burst is 10 ms and what a sleep is not worth"


def test_the_rate_changes_nothing_but_time(path: Path) -> None:
    with _loader(path) as plain, _loader(path, rate=2_000_000, num_workers=1) as slow:
        for first, second in zip(plain, slow, strict=True):
            assert_equal(copied(first), copied(second))
        read = plain.stats().bytes_read, slow.stats().bytes_read
    assert read[0] == read[1]


def test_a_loader_that_waits_for_storage_can_be_closed(path: Path) -> None:
    loader = _loader(path, rate=1)
    batches = iter(loader)
    loader._parts.source.submit(loader.dataset.gather.rows([0]), 0)
    loader.close()
    del batches


def test_the_rate_can_be_lifted_while_all_wait_for_it(path: Path) -> None:
    with _loader(path, rate=1) as loader:
        batches = iter(loader)
        limit_storage(loader, None)
        assert sum(len(batch["label"]) for batch in batches) == COUNT
        assert storage_limit(loader) is None


def test_a_copy_has_the_same_limit_and_prepares_more_batches_while_reads_wait(path: Path) -> None:
    with _loader(path, rate=4e6, batch_size=3) as loader, pickle.loads(pickle.dumps(loader)) as copy:
        for each in (loader, copy):
            assert (storage_limit(each), each.batches_ahead) == (4e6, 8)


@pytest.mark.parametrize("rate", [0, -1.0, float("nan"), float("inf")])
def test_a_rate_is_positive(path: Path, rate: float) -> None:
    with pytest.raises(ValueError, match="must be > 0 bytes per second"):
        _loader(path, rate=rate)


def test_every_format_is_accounted_for(path: Path) -> None:
    with _loader(path, fields=["image", "label"]) as loader:
        list(loader)
        list(loader)
        stats = loader.stats()
        formats = stats.formats
    assert formats.keys() == {"hri:fast", "hri:dense", "raw", "png", "webp"}
    assert {name: figures.images for name, figures in formats.items()} == {
        name: 2 * count for name, count in headrace.open(path).formats["image"].items()
    }
    for figures in formats.values():
        assert figures.bytes_read > 0
        assert figures.cpu_seconds > 0
        assert figures.read_seconds > 0
    for name in ("images", "bytes_read", "cpu_seconds"):
        assert sum(getattr(figures, name) for figures in formats.values()) == pytest.approx(getattr(stats, name))
    assert stats.wall_seconds >= stats.wait_seconds > 0


def test_figures_outlive_the_threads(path: Path) -> None:
    loader = _loader(path)
    list(loader)
    before = loader.stats()
    loader.close()
    after = loader.stats()
    for name in ("formats", "images", "bytes_read", "cpu_seconds", "wall_seconds"):
        assert getattr(after, name) == getattr(before, name)


def test_stats_are_frozen_and_subtract(path: Path) -> None:
    with _loader(path, fields=["image", "label"]) as loader:
        list(loader)
        first = loader.stats()
        list(loader)
        second = loader.stats()
    epoch = second.since(first)
    assert (epoch.batches, epoch.samples, epoch.images) == (first.batches, COUNT, COUNT)
    assert {name: each.images for name, each in epoch.formats.items()} == {
        name: each.images for name, each in first.formats.items()
    }
    assert epoch.busy_seconds.decode == pytest.approx(second.busy_seconds.decode - first.busy_seconds.decode)
    with pytest.raises(dataclasses.FrozenInstanceError):
        epoch.batches = 0  # type: ignore[misc]
    assert json.loads(json.dumps(epoch.to_json()))["busy_seconds"]["read"] == epoch.busy_seconds.read


def test_stats_print_what_matters(path: Path) -> None:
    assert repr(headrace.loader.LoaderStats()).startswith("LoaderStats: 0 batches, 0 samples\n")
    with _loader(path) as loader:
        list(loader)
        shown = repr(loader.stats())
    assert shown.startswith(f"LoaderStats: 5 batches, {COUNT} samples, ")
    for words in ("training waited", "decode", "hri:fast: ", "bytes read"):
        assert words in shown
