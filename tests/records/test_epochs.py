# SPDX-License-Identifier: Apache-2.0
"""Random transforms draw again in every epoch of PyTorch's DataLoader, with `set_epoch` and without."""

from __future__ import annotations

import multiprocessing
import pickle
import warnings

import numpy as np
import pytest
from tests.records.samples import write

import headrace
from headrace import transforms

data = pytest.importorskip("torch.utils.data")
# PyTorch warns of more workers than cores: on one core, of two.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

WAYS = {
    "no workers": {"num_workers": 0},
    "two workers": {"num_workers": 2},
    "persistent": {"num_workers": 2, "persistent_workers": True},
    "spawned": {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "spawn"},
}
FLIPS = [transforms.Resize((8, 8)), transforms.RandomCrop(3)]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("epochs") / "thirty.hr")


def open_random(path) -> headrace.Dataset:
    return headrace.open(path, transform=FLIPS, seed=5)


def images(samples) -> np.ndarray:
    return np.stack([sample["image"] for sample in samples])


def expected(path, epoch: int) -> np.ndarray:
    ds = open_random(path)
    ds.set_epoch(epoch)
    return images(ds)


def epochs_of(loader, count: int) -> list[np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        return [images(sample for batch in loader for sample in batch) for _ in range(count)]


@pytest.mark.parametrize("way", WAYS)
def test_the_data_loader_counts_epochs_by_itself(path, way):
    """Epoch k draws what `set_epoch(k)` draws."""
    loader = data.DataLoader(open_random(path), batch_size=4, collate_fn=list, **WAYS[way])

    for epoch, found in enumerate(epochs_of(loader, 3)):
        assert np.array_equal(found, expected(path, epoch))
    assert not np.array_equal(expected(path, 0), expected(path, 1))


@pytest.mark.parametrize("way", WAYS)
def test_an_epoch_that_is_set_is_not_counted(path, way):
    ds = open_random(path)
    loader = data.DataLoader(ds, batch_size=4, collate_fn=list, **WAYS[way])
    for epoch in (7, 7, 2):
        ds.set_epoch(epoch)
        assert np.array_equal(epochs_of(loader, 1)[0], expected(path, epoch))


def test_shuffled_views_count_too(path):
    view = open_random(path).split([0.5, 0.5])[0]
    loader = data.DataLoader(view, batch_size=4, shuffle=True, collate_fn=list, num_workers=2)
    first, second = ({sample["name"]: sample["image"] for batch in loader for sample in batch} for _ in range(2))

    assert first.keys() == second.keys()
    assert not all(np.array_equal(first[name], second[name]) for name in first)


class Wrapped:
    """A dataset of the user's own, which asks for one sample at a time."""

    def __init__(self, dataset: headrace.Dataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> object:
        return self.dataset[index]


def test_a_wrapped_dataset_counts_in_workers_and_warns_without(path):
    workers = data.DataLoader(Wrapped(open_random(path)), batch_size=4, collate_fn=list, num_workers=2)
    for epoch, found in enumerate(epochs_of(workers, 2)):
        assert np.array_equal(found, expected(path, epoch))

    alone = data.DataLoader(Wrapped(open_random(path)), batch_size=4, collate_fn=list)
    epochs_of(alone, 1)
    with pytest.warns(UserWarning, match="set_epoch") as caught:
        epochs_of(alone, 2)
    assert len(caught) == 1


def test_a_sample_that_is_looked_at_twice_is_the_same(path):
    ds = open_random(path)
    assert np.array_equal(ds[3]["image"], ds[3]["image"])
    assert np.array_equal(ds[3]["image"], expected(path, 0)[3])


def test_samples_that_nothing_random_happens_to_cause_no_warning(path):
    for transform in (None, [transforms.Resize((8, 8)), transforms.CenterCrop(3)]):
        ds = headrace.open(path, transform=transform)
        for _ in range(3):
            assert len(list(ds)) == 30


def test_a_pickle_stays_small_and_counts_from_the_start(path):
    ds = open_random(path)
    ds.__getitems__([0, 1, 2])
    content = pickle.dumps(ds)
    again = pickle.loads(content)

    assert len(content) < 2000
    assert np.array_equal(again.__getitems__([0])[0]["image"], expected(path, 0)[0])


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_processes_share_the_count(path, method):
    ds = open_random(path)
    context = multiprocessing.get_context(method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = context.Process(target=ds.__getitems__, args=([4],))
        child.start()
        child.join()
    assert child.exitcode == 0
    assert np.array_equal(ds.__getitems__([4])[0]["image"], expected(path, 1)[4])
