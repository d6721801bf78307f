# SPDX-License-Identifier: Apache-2.0
"""What trainers read of a loader and do to it: the sampler, the length, `iter` without `next`, batches to skip."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.loader.datasets import COUNT, labels

import headrace
from headrace.errors import LoaderError
from headrace.loader._options import Ranks, find_ranks


def load(path, **options):
    return headrace.Loader(
        path, **{"output": "numpy", "num_workers": 0, "fields": ["label"], "shuffle": True, "batch_size": 8, **options}
    )


def flat(batches):
    return [label for batch in labels(batches) for label in batch]


class TestSampler:
    """`Loader.sampler`: what the next iteration returns, as positions in `Loader.dataset`."""

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        batch_size=st.integers(1, 50),
        ranks=st.integers(1, 7).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))),
        drop_last=st.booleans(),
        epoch=st.integers(0, 5),
    )
    def test_it_lists_what_comes(self, path, batch_size, ranks, drop_last, epoch):
        options = {"batch_size": batch_size, "drop_last": drop_last, "indices": slice(3, None, 2)}
        with load(path, rank=ranks[0], world_size=ranks[1], **options) as loader:
            loader.sampler.set_epoch(epoch)
            listed = list(loader.sampler)
            assert len(listed) == len(loader.sampler)
            assert [loader.dataset[at]["label"] for at in listed] == flat(loader)
            assert loader.epoch == epoch + 1

    def test_it_starts_where_a_state_does(self, path):
        with load(path) as loader, load(path) as resumed:
            iteration = iter(loader)
            next(iteration)
            resumed.load_state_dict(loader.state_dict())
            assert list(resumed.sampler) == flat(iteration)
            assert len(resumed.sampler) == COUNT

    def test_trainers_read_these(self, path):
        with load(path, rank=1, world_size=3, drop_last=True) as loader:
            assert (loader.rank, loader.world_size, loader.drop_last, loader.batch_size) == (1, 3, True, 8)
            assert len(loader.dataset) == COUNT
            batches = loader.batch_sampler
            assert (batches.batch_size, batches.drop_last, len(batches)) == (8, True, len(loader))
            batches.set_epoch(4)
            assert loader.epoch == 4
            batches.sampler.set_epoch(2)
            assert loader.epoch == 2


class TestUnusedIterations:
    """An iteration that returned nothing does not count: Lightning calls `iter` once more, to check the type."""

    def test_the_epoch_stays(self, path):
        with load(path) as loader, load(path) as other:
            iter(loader)
            iter(loader)
            assert loader.epoch == 0
            assert flat(loader) == flat(other)
            assert loader.epoch == other.epoch == 1

    def test_the_state_stays(self, path):
        with load(path) as loader, load(path) as other:
            iteration = iter(other)
            next(iteration)
            loader.load_state_dict(other.state_dict())
            iter(loader)
            assert loader.state_dict() == other.state_dict()
            assert pickle.loads(pickle.dumps(loader)).epoch == 0
            loader.set_epoch(0)
            assert flat(loader) == flat(iteration)

    def test_a_chosen_epoch_stays(self, path):
        with load(path) as loader:
            unused = iter(loader)
            loader.set_epoch(1)
            del unused
            assert loader.epoch == 1

    @pytest.mark.parametrize("workers", [0, 2])
    def test_its_epoch_can_still_be_chosen(self, path, workers):
        """Lightning calls `set_epoch` after `iter`; a user function makes the loader work in a thread."""
        options = {"num_workers": workers, "transform": [lambda sample: sample]}
        with load(path) as other, load(path, **options) as loader:
            epochs = [flat(other) for _ in range(5)]
            iteration = iter(loader)
            loader.set_epoch(3)
            loader.sampler.set_epoch(3)
            assert (loader.epoch, len(iteration)) == (3, 5)
            assert flat(iteration) == epochs[3]
            assert flat(loader) == epochs[4]

    def test_a_loaded_position_stays_if_its_epoch_is_chosen(self, path):
        with load(path) as loader, load(path) as other:
            rest = iter(other)
            next(rest)
            loader.load_state_dict(other.state_dict())
            iteration = iter(loader)
            loader.set_epoch(0)
            assert flat(iteration) == flat(rest)

    def test_another_epoch_starts_at_its_start(self, path):
        with load(path) as loader, load(path) as other:
            next(iter(loader))
            loader.load_state_dict(loader.state_dict())
            iteration = iter(loader)
            assert len(iteration) == 4
            loader.set_epoch(2)
            other.set_epoch(2)
            assert len(iteration) == 5
            assert flat(iteration) == flat(other)

    def test_an_epoch_without_batches_counts(self, path):
        with load(path, indices=range(5), drop_last=True) as loader:
            assert list(loader) == []
            assert loader.epoch == 1


class TestSkipping:
    """`skip_batches`: the way of trainers that count."""

    @pytest.mark.parametrize("skipped", [0, 1, 4, 5])
    def test_the_rest_is_the_same(self, path, skipped):
        with load(path) as loader, load(path) as other:
            for each in (loader, other):
                each.set_epoch(2)
            loader.skip_batches(skipped)
            assert labels(loader) == labels(other)[skipped:]
            assert loader.epoch == 3

    def test_they_are_counted_from_the_start(self, path):
        """Also if a state was loaded in mid-epoch, as Accelerate's users load a state and then skip."""
        with load(path) as loader, load(path) as other:
            next(iter(loader))
            loader.load_state_dict(loader.state_dict())
            loader.skip_batches(3)
            assert labels(loader) == labels(other)[3:]

    def test_errors(self, path, tmp_path):
        with load(path) as loader:
            with pytest.raises(ValueError, match="at most the 5 of an epoch; got 6"):
                loader.skip_batches(6)
            with pytest.raises(ValueError, match="batches must be at least 0; got -1"):
                loader.skip_batches(-1)
            iteration = iter(loader)
            with pytest.raises(LoaderError, match="before iter"):
                loader.skip_batches(1)
            iteration.close()
        (tmp_path / "exchange").mkdir()
        with load(path, offload=tmp_path / "exchange") as loader, pytest.raises(LoaderError, match="load_state_dict"):
            loader.skip_batches(1)


class TestWrongUse:
    """Errors say what to do instead."""

    def test_a_data_loader_around_it(self, path):
        torch = pytest.importorskip("torch")
        with load(path) as loader:
            sampler = torch.utils.data.DistributedSampler(loader, num_replicas=2, rank=0)
            with pytest.raises(TypeError, match=r"needs no DataLoader and no DistributedSampler around it"):
                next(iter(torch.utils.data.DataLoader(loader, sampler=sampler)))

    def test_batches_made_from_its_batch_sampler(self, path):
        with load(path) as loader, pytest.raises(TypeError, match=r"loader.load_state_dict or loader.skip_batches"):
            iter(loader.batch_sampler)


class TestJaxRanks:
    """jax.distributed is asked as torch.distributed is."""

    def ranks(self, monkeypatch, **jax):
        monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
        monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(**jax))
        return find_ranks()

    def test_it_is_asked(self, monkeypatch):
        functions = {"process_index": lambda: 1, "process_count": lambda: 3}
        for initialized, expected in ((True, Ranks(1, 3)), (False, Ranks(0, 1))):
            distributed = SimpleNamespace(is_initialized=lambda initialized=initialized: initialized)
            assert self.ranks(monkeypatch, distributed=distributed, **functions) == expected

    def test_an_old_or_unfinished_import(self, monkeypatch):
        assert self.ranks(monkeypatch) == Ranks(0, 1)
        assert self.ranks(monkeypatch, distributed=SimpleNamespace()) == Ranks(0, 1)
