# SPDX-License-Identifier: Apache-2.0
"""A bottleneck that was put there on purpose is found: in our loader, in a folder, in PyTorch's DataLoader."""

from __future__ import annotations

import pytest
from tests.profiling.bottlenecks import (
    BATCH,
    SLOW,
    Samples,
    fast_step,
    slow_collate,
    slow_function,
    slow_step,
    write_dataset,
    write_folder,
)

import headrace
from headrace.loader import limit_storage
from headrace.transforms import RandomResizedCrop

pytestmark = pytest.mark.alone

SECONDS = 0.7


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("profiling") / "small.hr")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("profiling") / "photos")


def verdict(loader, *wanted, step=fast_step, **options):
    """Judge what was measured; again, up to three times, while another stage is named: a busy machine may hide one."""
    for _ in range(3):
        found = headrace.profile(loader, step, seconds=SECONDS, **options).verdict
        if found.stage in wanted:
            break
    return found


def test_slow_storage_is_found(dataset):
    """With very slow storage, reading is the bottleneck."""
    rate = 64 * 64 * 3 * BATCH / SLOW
    with headrace.Loader(dataset, batch_size=BATCH, output="numpy") as loader:
        limit_storage(loader, rate / 10)
        found = verdict(loader, "read")

    assert (found.stage, found.place) == ("read", "storage")


def test_too_few_cores_are_found(tmp_path):
    """With one core, large images and a trainer that takes no time, the cores are the bottleneck.

    Of a machine with idle cores more workers would be asked for, and not more cores.
    """
    path = write_dataset(tmp_path / "large.hr", count=16, edge=768, format="hri:dense")
    with headrace.Loader(
        path, batch_size=BATCH, output="numpy", num_workers=1, transform=[RandomResizedCrop(224)]
    ) as loader:
        found = verdict(loader, "decode", "transform", step=1e-5, emulate="cores=1")

    assert found.stage in ("decode", "transform")
    assert found.place == "cores"
    assert {remedy.kind for remedy in found.remedies} & {"cores", "workers"} == {"cores"}


def test_a_slow_transform_is_found(dataset):
    """A function of the user's that is slow is the bottleneck, however many threads run it."""
    with headrace.Loader(dataset, batch_size=BATCH, output="numpy", transform=[slow_function]) as loader:
        found = verdict(loader, "transform")

    assert (found.stage, found.place) == ("transform", "thread")


def test_a_slow_trainer_is_found(dataset):
    with headrace.Loader(dataset, batch_size=BATCH, output="numpy") as loader:
        found = verdict(loader, "step", step=slow_step)

    assert (found.kind, found.stage) == ("trainer", "step")


def test_a_slow_collate_is_found(dataset):
    """One thread puts batches together, so a slow `collate_fn` is the bottleneck."""
    with headrace.Loader(dataset, batch_size=BATCH, output="numpy", collate_fn=slow_collate) as loader:
        found = verdict(loader, "batch")

    assert (found.stage, found.place) == ("batch", "thread")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "stage"),
    [
        ({"emulate": "storage=500kB/s"}, "read"),
        ({"transform": [slow_function]}, "transform"),
        ({"step": slow_step}, "step"),
    ],
    ids=["storage", "transform", "trainer"],
)
def test_bottlenecks_of_a_folder_are_found(folder, options, stage):
    options = {"batch_size": BATCH, "transform": [RandomResizedCrop(16)], **options}

    assert verdict(folder, stage, **options).stage == stage


@pytest.fixture
def data_loader():
    return pytest.importorskip("torch.utils.data").DataLoader


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_slow_samples_of_a_data_loader_are_found(data_loader, workers):
    """A dataset that waits while it makes a sample waits for storage, as far as can be seen from outside."""
    loader = data_loader(Samples(read=SLOW / BATCH), batch_size=BATCH, num_workers=workers, collate_fn=list)

    assert verdict(loader, "read").stage == "read"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_too_few_cores_of_a_data_loader_are_found(data_loader, workers):
    """A dataset that works while it makes a sample needs cores, and not faster storage. A busy machine hides that."""
    loader = data_loader(Samples(work=SLOW / BATCH / 4), batch_size=BATCH, num_workers=workers, collate_fn=list)
    found = verdict(loader, "sample", emulate="cores=1")

    assert found.stage == "sample"
    assert found.place == ("cores" if workers else "trainer")


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_slow_transform_of_a_data_loader_is_found(data_loader, workers):
    loader = data_loader(Samples(transform=slow_function), batch_size=BATCH, num_workers=workers, collate_fn=list)

    assert verdict(loader, "transform").stage == "transform"


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_slow_collate_of_a_data_loader_is_found(data_loader, workers):
    loader = data_loader(Samples(), batch_size=BATCH, num_workers=workers, collate_fn=slow_collate)

    assert verdict(loader, "batch").stage == "batch"


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_slow_trainer_with_a_data_loader_is_found(data_loader, workers):
    loader = data_loader(Samples(), batch_size=BATCH, num_workers=workers, collate_fn=list)

    assert verdict(loader, "step", step=slow_step).stage == "step"
