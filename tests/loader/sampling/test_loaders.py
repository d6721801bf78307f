# SPDX-License-Identifier: Apache-2.0
"""A loader with a sampler: what its batches have, how it resumes, and what it refuses."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from tests.loader.datasets import assert_equal, copied, labels
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, WeightedRandomSampler

import headrace
from headrace.errors import InvalidState, LoaderError
from headrace.samplers import Buckets, ClassBalanced, EpochSamples, Grouped, OpenSampler, PerClass, Repeated
from headrace.transforms import RandomCrop, Resize


def load(path, sampler=None, **options):
    options = {"batch_size": 4, "output": "numpy", "num_workers": 2, "fields": ["label", "image"], **options}
    return headrace.Loader(path, sampler=sampler, **options)


def flat(batches):
    return [label for batch in batches for label in batch]


@pytest.mark.parametrize("sampler", [Buckets(count=3), ClassBalanced(), PerClass(2), Grouped("label", 2), Repeated(2)])
def test_a_run_continues_where_it_was_interrupted(path, sampler):
    """Batches before a checkpoint and after it are those of the uninterrupted run, whatever the number of threads."""
    options = {"transform": [RandomCrop(20)], "seed": 4}
    with load(path, sampler, **options) as loader:
        whole = [copied(batch) for batch in loader]
        assert len(loader) == len(whole)
    with load(path, sampler, num_workers=0, **options) as loader:
        iteration = iter(loader)
        before = [copied(next(iteration)) for _ in range(3)]
        state = json.loads(json.dumps(loader.state_dict()))
    with load(path, sampler, **options) as loader:
        loader.load_state_dict(state)
        after = [copied(batch) for batch in loader]
        assert loader.epoch == 1

    assert state["version"] == 3
    assert_equal(before + after, whole)


def test_a_run_continues_with_other_ranks(path):
    """Two ranks continue the epoch that one rank began; each sample comes once."""
    with load(path, Buckets(count=4), batch_size=3) as loader:
        iteration = iter(loader)
        first = [next(iteration)["label"].tolist() for _ in range(5)]
        state = loader.state_dict()
    rest = []
    for rank in range(2):
        with load(path, Buckets(count=4), batch_size=5, rank=rank, world_size=2) as loader:
            loader.load_state_dict(state)
            batches = [copied(batch) for batch in loader]
            rest.append([len(batch["label"]) for batch in batches])
            marks = [batch.get("_repeat", np.zeros(len(batch["label"]), bool)) for batch in batches]
            first += [batch["label"][~mark].tolist() for batch, mark in zip(batches, marks, strict=True)]

    assert rest[0] == rest[1]
    assert sorted(flat(first)) == list(range(40))


def test_padded_shapes_are_equal_on_all_ranks(path):
    """With ragged="pad" every rank gets the shape of the largest image of the global batch."""
    shapes = []
    for rank in range(2):
        with load(path, Buckets(by="area"), batch_size=4, rank=rank, world_size=2, ragged="pad") as loader:
            shapes.append([batch["image"].shape for batch in loader])
            figures = loader.stats().sampling

    assert shapes[0] == shapes[1]
    assert len(set(shapes[0])) > 1
    assert figures["buckets"] == 8
    assert 0 < figures["padding"] < 0.6


def test_copies_of_a_sample_have_other_crops_and_the_same_label(path):
    """Repeated augmentation: the fields are those of the sample, the random crop differs."""
    with load(path, Repeated(2, shuffle=False), transform=[Resize(64), RandomCrop(16)]) as loader:
        batch = next(iter(loader))

    assert batch["label"].tolist() == [0, 0, 1, 1]
    assert (batch["image"][0] != batch["image"][1]).any()


def test_views_of_a_dataset_have_samplers(path):
    """A sampler of a view chooses among its samples only."""
    with load(path, ClassBalanced(), indices=[3, 5, 8]) as loader:
        assert sorted(flat(labels(loader))) == [3, 5, 8]


def test_pytorch_samplers_give_the_samples_of_a_rank(path):
    """Samplers and batch samplers of PyTorch decide the order."""
    dataset = range(40)
    with load(path, SequentialSampler(dataset), batch_size=16) as loader:
        assert labels(loader) == [list(range(16)), list(range(16, 32)), list(range(32, 40))]
        assert len(loader) == 3
    with load(path, SequentialSampler(dataset), batch_size=16, drop_last=True) as loader:
        assert len(labels(loader)) == len(loader) == 2
    with load(path, batch_sampler=BatchSampler(SequentialSampler(dataset), 30, False), batch_size=1) as loader:
        assert labels(loader) == [list(range(30)), list(range(30, 40))]
    generator = torch.Generator().manual_seed(0)
    with load(path, WeightedRandomSampler([1.0] + [0.0] * 39, 8, generator=generator)) as loader:
        assert labels(loader) == [[0] * 4] * 2


def test_distributed_samplers_get_the_epoch_and_continue(path):
    """The loader calls set_epoch, and a resumed epoch skips what was returned."""
    sampler = DistributedSampler(range(40), num_replicas=2, rank=1, seed=3)
    with load(path, sampler, rank=1, world_size=2) as loader:
        first, second = labels(loader), labels(loader)
        assert first != second
        iteration = iter(loader)
        third = [next(iteration)["label"].tolist() for _ in range(2)]
        state = loader.state_dict()
    sampler = DistributedSampler(range(40), num_replicas=2, rank=1, seed=3)
    with load(path, sampler, rank=1, world_size=2) as loader:
        loader.load_state_dict(state)
        rest = labels(loader)
    sampler.set_epoch(2)
    assert flat(third + rest) == list(sampler)

    with load(path, sampler, batch_size=8, rank=1, world_size=2) as loader:
        loader.load_state_dict(state)
        with pytest.raises(InvalidState, match="same batch_size, 4; got 8"):
            iter(loader)


class EveryOther(OpenSampler):
    """A sampler of a user: every second sample, in batches of one rank."""

    identity = "every other"

    def open(self, dataset):
        self.n = len(dataset) // 2
        return self

    def start(self, request):
        return EveryOtherSamples(self.n, request)


class EveryOtherSamples(EpochSamples):
    def __init__(self, n, request):
        done = (request.progress or {"samples": 0})["samples"]
        self.indices = np.arange(done, n) * 2
        self.done, self.size = done, request.batch_size

    def __len__(self):
        return len(self.indices) // self.size

    def batch(self, g):
        return self.indices[g * self.size : (g + 1) * self.size], None

    def samples_after(self, g):
        return self.done + g * self.size

    def progress_after(self, g):
        return {"samples": self.samples_after(g)}


def test_users_write_their_own(path):
    """The protocol suffices for a sampler that resumes."""
    with load(path, EveryOther()) as loader:
        iteration = iter(loader)
        first = next(iteration)["label"].tolist()
        state = loader.state_dict()
    with load(path, EveryOther(), batch_size=8) as loader:
        loader.load_state_dict(state)
        assert first + flat(labels(loader)) == list(range(0, 40, 2))


def test_loaders_with_samplers_can_be_pickled(path):
    """A pickled loader continues at the same place."""
    with load(path, Buckets(count=3)) as loader:
        iteration = iter(loader)
        next(iteration)
        copy = pickle.loads(pickle.dumps(loader))
        copy.load_state_dict(loader.state_dict())
        expected = labels(iteration)
    with copy:
        assert labels(copy) == expected


def test_states_of_other_samplers_are_refused(path):
    """A state belongs to a sampler with its settings."""
    with load(path, Buckets(count=3)) as loader:
        state = loader.state_dict()
    for other in (Buckets(count=4), ClassBalanced(), None):
        with load(path, other) as loader, pytest.raises(InvalidState, match="same view, indices, weights or sampler"):
            loader.load_state_dict(state)
    with load(path, Buckets(count=3)) as loader, pytest.raises(InvalidState, match="the state is damaged: sampler"):
        loader.load_state_dict({**state, "sampler": 3})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sampler": Buckets(), "shuffle": True}, ValueError, "shuffle must not be set together with sampler"),
        ({"sampler": Buckets(), "weights": [1] * 40}, ValueError, "weights must not be set together with sampler"),
        ({"sampler": Buckets(), "batch_sampler": [[1]]}, ValueError, "must not be set together: give one"),
        ({"sampler": Buckets}, TypeError, r"must be an object; got the class Buckets: write Buckets\("),
        ({"sampler": 3}, TypeError, "sampler must be one of headrace.samplers, or have __iter__ and __len__"),
        ({"batch_sampler": [[1]]}, ValueError, "batch_size and drop_last must not be set together with batch_sampler"),
        ({"sampler": Buckets(), "offload": "exchange"}, ValueError, "offload must not be set together with a sampler"),
    ],
)
def test_arguments_that_do_not_go_together(path, options, error, message):
    """The loader refuses them when it is created."""
    with pytest.raises(error, match=message):
        load(path, **options)


@pytest.mark.parametrize("indices", [[99], ["a"], [[1], [2]]])
def test_bad_indices_of_a_sampler_raise(path, indices):
    """What a PyTorch sampler returns is checked."""
    with load(path, indices) as loader, pytest.raises(LoaderError, match="the sampler must give"):
        list(loader)


def test_random_samplers_of_pytorch_work(path):
    """A sampler without a length for set_epoch works, too."""
    with load(path, RandomSampler(range(40))) as loader:
        assert sorted(flat(labels(loader))) == list(range(40))
