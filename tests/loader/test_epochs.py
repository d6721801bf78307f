# SPDX-License-Identifier: Apache-2.0
"""Epochs, ranks and states: every sample once, the same everywhere, and resumed to the very next one."""

from __future__ import annotations

import json
import pickle
import random

import pytest
from tests.loader.datasets import COUNT, assert_equal, copied, labels

import headrace
from headrace.errors import InvalidState, LoaderError
from headrace.transforms import HorizontalFlip, RandomResizedCrop

CROP = [RandomResizedCrop(8), HorizontalFlip()]


def load(path, **options):
    return headrace.Loader(path, **{"output": "numpy", "num_workers": 2, "transform": CROP, "shuffle": True, **options})


def flat(batches):
    return [label for batch in labels(batches) for label in batch]


class TestEpochs:
    """Which epoch an iteration is of."""

    def test_each_iteration_starts_the_next(self, path):
        with load(path, batch_size=8) as loader:
            first, second = flat(loader), flat(loader)
            assert loader.epoch == 2
            loader.set_epoch(0)
            again = flat(loader)
        assert sorted(first) == sorted(second) == list(range(COUNT))
        assert first != second
        assert again == first

    def test_after_a_break_too(self, path):
        with load(path, batch_size=8) as loader, load(path, batch_size=8) as other:
            next(iter(loader))
            list(other)
            assert flat(loader) == flat(other)

    def test_the_epoch_can_be_chosen(self, path):
        with load(path, batch_size=8) as loader, load(path, batch_size=8) as other:
            epochs = [flat(other) for _ in range(4)]
            loader.set_epoch(3)
            assert loader.epoch == 3
            assert flat(loader) == epochs[3]
            loader.set_epoch(1)
            assert flat(loader) == epochs[1]
            assert flat(loader) == epochs[2]
            with pytest.raises(ValueError, match="epoch"):
                loader.set_epoch(-1)

    def test_while_iterating_it_is_the_next_ones(self, path):
        with load(path, batch_size=8) as loader:
            iteration = iter(loader)
            first = labels([next(iteration)])
            loader.set_epoch(0)
            assert loader.epoch == 0
            rest = labels(iteration)
            assert flat(loader) == [label for batch in first + rest for label in batch]

    def test_the_length_is_the_whole_epochs(self, path):
        with load(path, batch_size=16) as loader:
            assert len(loader) == 3
            iteration = iter(loader)
            next(iteration)
            assert (len(loader), len(iteration)) == (3, 2)
        with load(path, batch_size=16, drop_last=True) as loader:
            assert len(loader) == len(list(loader)) == 2

    def test_a_new_iteration_ends_the_one_before(self, path):
        with load(path, batch_size=8) as loader:
            older = iter(loader)
            next(older)
            newer = iter(loader)
            next(newer)
            with pytest.raises(LoaderError, match="another iteration of the same loader started"):
                next(older)
            assert len(list(newer)) == 4


def test_ranks_divide_an_epoch(path):
    """Together they have every sample once, and marked repeats beside; all have as many batches."""
    rng = random.Random(7)
    for _ in range(12):
        world_size, batch_size, threads = rng.randint(1, 6), rng.randint(1, 9), rng.randint(1, 4)
        options = {
            "world_size": world_size,
            "batch_size": batch_size,
            "num_workers": threads,
            "seed": rng.randint(0, 99),
        }
        options |= {"batches_ahead": rng.randint(1, 5), "fields": ["label"]}
        seen, repeats, lengths = [], 0, set()
        for rank in range(world_size):
            with load(path, rank=rank, **options) as loader:
                batches = list(loader)
            lengths.add((len(batches), len(loader), sum(len(batch["label"]) for batch in batches)))
            for batch in batches:
                marks = batch.get("_repeat", [False] * len(batch["label"]))
                repeats += sum(map(bool, marks))
                seen += [int(label) for label, mark in zip(batch["label"], marks, strict=True) if not mark]
        assert sorted(seen) == list(range(COUNT))
        assert len(lengths) == 1
        assert repeats == -COUNT % world_size


def test_torch_distributed_is_asked(path, monkeypatch):
    """Neither rank nor world size need be given."""
    distributed = pytest.importorskip("torch.distributed")
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 4)
    with load(path, batch_size=5, shuffle=False) as loader:
        assert labels(loader)[0] == [1, 5, 9, 13, 17]
        assert loader.recipe["world_size"] == 4


class TestState:
    """A run that was stopped goes on with the very next sample."""

    def test_resumed_batches_equal_those_of_a_run_that_was_not_stopped(self, path):
        """Bit for bit, at any place, with any number of threads."""
        with load(path, batch_size=6, seed=3) as loader:
            whole = copied(list(loader)) + copied(list(loader))
        rng = random.Random(1)
        for stop in rng.sample(range(len(whole) + 1), 8):
            with load(path, batch_size=6, seed=3, num_workers=rng.randint(1, 3)) as first:
                taken = []
                while len(taken) < stop:
                    for batch in first:
                        taken.append(copied(batch))
                        if len(taken) == stop:
                            break
                state = json.loads(json.dumps(first.state_dict()))
            with load(path, batch_size=6, seed=3, num_workers=rng.randint(1, 3)) as second:
                second.load_state_dict(state)
                while len(taken) < len(whole):
                    taken += copied(list(second))
            assert_equal(taken, whole)

    def test_the_world_may_change(self, path):
        """Three ranks go on where two stopped; nothing is lost and nothing comes twice."""
        halves = [load(path, batch_size=4, rank=rank, world_size=2) for rank in range(2)]
        iterations = [iter(loader) for loader in halves]
        seen = [flat([next(iteration)]) for _ in range(2) for iteration in iterations]
        states = [loader.state_dict() for loader in halves]
        for loader in halves:
            loader.close()
        assert states[0] == states[1]
        assert states[0]["samples"] == 16
        for rank in range(3):
            with load(path, batch_size=2, rank=rank, world_size=3) as loader:
                loader.load_state_dict(states[0])
                assert len(loader) == 7
                seen += [flat(loader)]
        assert sorted(label for part in seen for label in part) == list(range(COUNT))

    def test_what_is_prefetched_does_not_count(self, path):
        with load(path, batch_size=2, batches_ahead=8) as loader:
            assert (loader.state_dict()["epoch"], loader.state_dict()["samples"]) == (0, 0)
            iteration = iter(loader)
            assert loader.state_dict()["samples"] == 0
            next(iteration)
            assert loader.state_dict()["samples"] == 2

    @pytest.mark.parametrize("drop_last", [True, False])
    def test_the_end_of_an_epoch_is_the_start_of_the_next(self, path, drop_last):
        with load(path, batch_size=16, drop_last=drop_last) as loader:
            iteration = iter(loader)
            for _ in range(len(loader)):
                next(iteration)
            state = loader.state_dict()
            assert (state["epoch"], state["samples"]) == (1, 0)
            second = flat(loader)
        with load(path, batch_size=16, drop_last=drop_last) as loader:
            loader.load_state_dict(state)
            assert flat(loader) == second

    def test_setting_the_epoch_of_a_loaded_state_keeps_its_place(self, path):
        """Trainers call `set_epoch` before every epoch, after resuming too."""
        with load(path, batch_size=8) as loader:
            iteration = iter(loader)
            next(iteration)
            state, rest = loader.state_dict(), labels(iteration)
            loader.load_state_dict(state)
            loader.set_epoch(0)
            assert labels(loader) == rest
            loader.load_state_dict(state)
            loader.set_epoch(1)
            assert loader.state_dict()["samples"] == 0
            assert len(labels(loader)) == 5

    def test_a_state_comes_too_late_for_an_iteration(self, path):
        with load(path, batch_size=8) as loader:
            state = loader.state_dict()
            iteration = iter(loader)
            with pytest.raises(InvalidState, match="before iter"):
                loader.load_state_dict(state)
            next(iteration)
            with pytest.raises(InvalidState, match="before iter"):
                loader.load_state_dict(state)
            list(iteration)
            loader.load_state_dict(state)
            assert loader.epoch == 0

    @pytest.mark.parametrize(
        ("change", "name"),
        [({"seed": 9}, "seed"), ({"shuffle": False}, "shuffle"), ({"indices": range(30)}, "length")],
    )
    def test_a_state_of_another_run_is_refused(self, path, change, name):
        with load(path) as loader:
            state = loader.state_dict()
        with load(path, **change) as other, pytest.raises(InvalidState, match=name):
            other.load_state_dict(state)

    def test_a_state_of_another_dataset_is_refused(self, path, core_path):
        with load(path) as loader, load(core_path) as other, pytest.raises(InvalidState, match="fingerprint"):
            other.load_state_dict(loader.state_dict())


def test_a_loader_pickles_with_its_place(path):
    """As it goes to processes that are spawned."""
    with load(path, batch_size=8) as loader:
        list(loader)
        copy = pickle.loads(pickle.dumps(loader))
        with copy:
            assert copy.recipe == loader.recipe
            assert flat(copy) == flat(loader)
