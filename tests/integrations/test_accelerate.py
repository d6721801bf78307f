# SPDX-License-Identifier: Apache-2.0
"""A loader prepared for Accelerate, in one process; runs with several ranks are in test_trainers.py."""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import SimpleNamespace

import pytest
from tests.integrations.runs.job import CLASSES, Job

pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate", reason="pip install --group trainers")

from headrace.integrations.accelerate import prepare  # noqa: E402 - needs Accelerate

pytestmark = pytest.mark.filterwarnings("ignore")
BATCHES = 13  # of an epoch: 51 samples, 4 per batch


@pytest.fixture
def accelerator():
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()
    return accelerate.Accelerator(cpu=True, gradient_accumulation_steps=3)


@pytest.fixture
def job(dataset, tmp_path):
    return Job(dataset, str(tmp_path))


def labels(batches):
    return [batch["label"].tolist() for batch in batches]


def epochs(job, count):
    with job.loader() as loader:
        return [labels(loader) for _ in range(count)]


def taken(batches, count):
    """Take some batches of an iteration, as a training loop that then ends."""
    return labels(batch for _, batch in zip(range(count), batches, strict=False))


class TestPrepare:
    """It is one of Accelerate's own loaders, and Accelerate leaves it as it is."""

    def test_accelerate_knows_it(self, job, accelerator):
        prepared = prepare(job.loader(), accelerator)
        assert accelerator._dataloaders == [prepared]
        assert accelerator.prepare(prepared) is prepared
        assert prepare(prepared, accelerator) is prepared
        assert accelerator._dataloaders == [prepared]
        assert len(prepared) == BATCHES
        assert len(prepared.dataset) == CLASSES
        assert (prepared.total_batch_size, prepared.batch_sampler.drop_last) == (4, False)

    def test_epochs_follow_each_other(self, job, accelerator):
        prepared = prepare(job.loader(), accelerator)
        assert [labels(prepared) for _ in range(3)] == epochs(job, 3)
        prepared.set_epoch(1)
        assert labels(prepared) == epochs(job, 2)[1]

    def test_an_epoch_that_was_left_starts_again(self, job, accelerator):
        """As with Accelerate's own loaders: only a complete iteration counts."""
        prepared = prepare(job.loader(), accelerator)
        taken(prepared, 3)
        assert labels(prepared) == epochs(job, 1)[0]

    def test_the_last_batch_ends_an_accumulation(self, job, accelerator):
        synced = []
        for _ in prepare(job.loader(), accelerator):
            with accelerator.accumulate():
                synced.append(accelerator.sync_gradients)
        assert synced == [False, False, True] * 4 + [True]

    def test_metrics_are_not_cut(self, job, accelerator):
        """Accelerate would cut the last ones; repeats are marked by `_repeat` instead."""
        prepared = prepare(job.loader(), accelerator)
        gathered = [len(accelerator.gather_for_metrics(batch["label"])) for batch in prepared]
        assert gathered == [4] * 12 + [3]


class TestStates:
    """`state_dict` counts what the training loop received, although Accelerate fetches one batch ahead."""

    @pytest.mark.parametrize("count", [0, 1, 6, 12, 13, 14])
    def test_it_continues_with_the_next_batch(self, job, accelerator, count):
        first, second = epochs(job, 2)
        prepared = prepare(job.loader(), accelerator)
        before, state = [], prepared.state_dict()
        for batch in (batch for _ in range(2) for batch in prepared):
            if len(before) == count:
                break
            before.append(batch["label"].tolist())
            state = prepared.state_dict()
        resumed = prepare(job.loader(), accelerator)
        resumed.load_state_dict(pickle.loads(pickle.dumps(state)))
        rest = labels(resumed) + (labels(resumed) if count < BATCHES else [])
        assert before + rest == first + second
        assert resumed.iteration == 2

    def test_save_state(self, job, accelerator, tmp_path):
        prepared = prepare(job.loader(), accelerator)
        for number, _ in enumerate(prepared, start=1):
            if number == 5:
                accelerator.save_state(str(tmp_path / "state"))
                break
        accelerator.load_state(str(tmp_path / "state"))
        assert labels(prepared) == epochs(job, 1)[0][5:]

    def test_another_batch_size(self, job, accelerator):
        prepared = prepare(job.loader(), accelerator)
        first = taken(prepared, 5)
        other = prepare(job.loader(batch_size=6), accelerator)
        other.load_state_dict(prepared.state_dict())
        assert sorted(label for batch in first + labels(other) for label in batch) == list(range(CLASSES))


class TestSkipping:
    """`skip_first_batches` costs nothing, and states stay exact."""

    @pytest.mark.parametrize("count", [0, 1, 12, 13])
    def test_skipped_batches_are_not_loaded(self, job, accelerator, count):
        loader = job.loader(num_workers=0)
        skipped = accelerator.skip_first_batches(prepare(loader, accelerator), count)
        assert len(skipped) == BATCHES - count
        assert labels(skipped) == epochs(job, 1)[0][count:]
        assert loader.stats().batches == BATCHES - count

    def test_in_the_epoch_that_was_chosen(self, job, accelerator):
        prepared = prepare(job.loader(), accelerator)
        prepared.set_epoch(2)
        skipped = accelerator.skip_first_batches(prepared, 7)
        assert labels(skipped) == epochs(job, 3)[2][7:]

    def test_after_a_state_was_loaded(self, job, accelerator):
        """As in Accelerate's examples: load the state, skip what the epoch had, and save again later."""
        prepared = prepare(job.loader(), accelerator)
        for number, _ in enumerate(prepared, start=1):
            state = prepared.state_dict()
            if number == 5:
                break
        prepared.load_state_dict(state)
        skipped = accelerator.skip_first_batches(prepared, 5)
        for number, _ in enumerate(skipped, start=1):
            if number == 3:
                state = prepared.state_dict()
        prepared.load_state_dict(state)
        assert labels(prepared) == epochs(job, 1)[0][8:]


class TestWrongUse:
    """What would divide or load the batches again is an error that says what to do."""

    def test_accelerates_own_prepare_changes_nothing(self, job, accelerator):
        loader = job.loader()
        assert accelerator.prepare(loader) is loader
        assert labels(loader) == epochs(job, 1)[0]

    def test_without_accelerate(self):
        code = (
            "import sys; sys.modules['accelerate'] = None; from headrace.errors import MissingExtra\n"
            "try: import headrace.integrations.accelerate\nexcept MissingExtra as error: print(error)"
        )
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert "pip install 'headrace[accelerate]'" in printed

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            ({"dispatch_batches": True}, "dispatch_batches must be None or False"),
            ({"split_batches": True}, r"split_batches must be False.*Divide batch_size by the number of processes"),
        ],
    )
    def test_options_of_the_accelerator(self, job, option, message):
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        config = accelerate.DataLoaderConfiguration(**option)
        with pytest.raises(ValueError, match=message):
            prepare(job.loader(), accelerate.Accelerator(cpu=True, dataloader_config=config))

    def test_ranks_of_another_run(self, job, accelerator):
        with pytest.raises(ValueError, match=r"must be 0 and 1, as the accelerator has them; they are 1 and 2"):
            prepare(job.loader(rank=1, world_size=2), accelerator)

    def test_ranks_with_tensor_parallelism(self, job):
        """Ranks that share a sample need the same batches."""
        settings = {"dispatch_batches": None, "split_batches": False, "process_index": 3, "num_processes": 4}
        parallel = SimpleNamespace(tp_size=2, cp_size=1)
        with pytest.raises(ValueError, match=r"Loader\(rank=1, world_size=2\)"):
            prepare(job.loader(rank=3, world_size=4), SimpleNamespace(**settings, parallelism_config=parallel))

    def test_other_loaders(self, accelerator):
        with pytest.raises(TypeError, match=r"must be a headrace.Loader; got a list: pass others to accelerator"):
            prepare([], accelerator)

    def test_skipping_without_prepare(self, job, accelerator):
        skipped = accelerator.skip_first_batches(job.loader(), 3)
        with pytest.raises(TypeError, match=r"headrace.integrations.accelerate.prepare\(loader, accelerator\)"):
            next(iter(skipped))

    def test_batches_out_of_order(self, job, accelerator):
        prepared = prepare(job.loader(), accelerator)
        assert len(prepared.dataset[0]["label"]) == 4
        with pytest.raises(IndexError, match="1 is the next one; got 5"):
            prepared.dataset[5]
