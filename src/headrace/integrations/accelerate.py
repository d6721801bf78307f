# SPDX-License-Identifier: Apache-2.0
"""Hugging Face Accelerate, and the Trainer of Transformers that is built on it.

Accelerate takes a data loader apart: its dataset, its batch sampler and its collate function become a new loader, which
divides the batches among ranks, or skips the first ones of a resumed epoch. So this module offers such parts. The batch
sampler yields the numbers of batches, and the dataset returns the batch of a number, as the loader made it. The loader
itself continues at the first number that is asked for, so batches that are skipped are not loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from headrace.errors import MissingExtra
from headrace.loader import Loader, LoaderIterator

try:
    from accelerate import Accelerator
    from accelerate.data_loader import DataLoaderShard
except ImportError as error:
    raise MissingExtra("Accelerate is not installed: pip install 'headrace[accelerate]'") from error

__all__ = ["BatchNumbers", "NumberedBatches", "PreparedLoader", "prepare"]


def prepare(loader: Loader, accelerator: Accelerator) -> PreparedLoader:
    """Prepare a loader for an accelerator, in place of `accelerator.prepare(loader)`.

    The result moves batches to the accelerator's device. `save_state` and `load_state` of the accelerator include its
    position, so a run continues at the next batch; `skip_first_batches` works too. The loader divides the samples among
    the ranks itself: `batch_size` is per rank, and what fills the last batch is marked in `batch["_repeat"]`.

    Raises:
        ValueError: The accelerator would divide batches again, or the loader is of another rank.

    """
    if isinstance(loader, PreparedLoader):
        return loader
    if not isinstance(loader, Loader):
        raise TypeError(
            f"loader must be a headrace.Loader; got a {type(loader).__name__}: pass others to accelerator.prepare"
        )
    _check(loader, accelerator)
    device = accelerator.device if accelerator.device_placement else None
    prepared = PreparedLoader(loader, device=device, non_blocking=accelerator.non_blocking)
    return cast("PreparedLoader", accelerator.prepare_data_loader(prepared))  # registers it


def _check(loader: Loader, accelerator: Accelerator) -> None:
    if accelerator.dispatch_batches:
        raise ValueError(
            "dispatch_batches must be None or False: every rank of a headrace.Loader loads its own batches; got True"
        )
    if accelerator.split_batches:
        raise ValueError(
            "split_batches must be False: the batch_size of a headrace.Loader is per rank; got True. Divide batch_size "
            f"by the number of processes instead, {accelerator.num_processes}"
        )
    parallel = accelerator.parallelism_config
    same_batch = 1 if parallel is None else parallel.tp_size * parallel.cp_size  # ranks that need equal batches
    expected = accelerator.process_index // same_batch, accelerator.num_processes // same_batch
    if (loader.rank, loader.world_size) != expected:
        raise ValueError(
            f"rank and world_size of the loader must be {expected[0]} and {expected[1]}, as the accelerator has them; "
            f"they are {loader.rank} and {loader.world_size}: give Loader(rank={expected[0]}, "
            f"world_size={expected[1]}), or create the Accelerator first"
        )


class NumberedBatches:
    """The batches of one epoch by number, for a caller that takes them in order.

    The caller is `DataLoaderShard`, which fetches one batch ahead of the training loop.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self._iteration: LoaderIterator | None = None
        self._next = 0
        self._before_last: dict[str, Any] | None = None  # the loader's state before the last batch was fetched

    def __len__(self) -> int:
        """Return the number of samples over all ranks: trainers report samples per second from it."""
        return len(self.loader.dataset)

    def __getitem__(self, number: int) -> Any:
        """Return a batch of this epoch. The first one may have any number; each further one is the next."""
        if self._iteration is None:
            if number:
                self.loader.skip_batches(number)
            self._iteration, self._next = iter(self.loader), number
        if number != self._next:
            raise IndexError(f"batches must be taken in order: {self._next} is the next one; got {number}")
        self._next += 1
        self._before_last = self.loader.state_dict()
        return next(self._iteration)

    @property
    def remain(self) -> bool:
        """Whether this epoch has more batches."""
        return self._iteration is None or len(self._iteration) > 0

    def start_epoch(self) -> None:
        """Let the next batch start an iteration."""
        if self._iteration is not None:
            self._iteration.close("another iteration started")
        self._iteration = self._before_last = None

    def end_epoch(self) -> None:
        """Note that the caller knows of the end, so that it has returned all batches."""
        self._before_last = None

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state for what the caller has returned, one batch less than it fetched."""
        return self.loader.state_dict() if self._before_last is None else self._before_last


class BatchNumbers:
    """A batch sampler of numbers: one number is one batch."""

    def __init__(self, batches: NumberedBatches) -> None:
        self._batches = batches
        loader = batches.loader
        self.batch_size, self.drop_last, self.sampler = loader.batch_size, loader.drop_last, loader.sampler

    def set_epoch(self, epoch: int) -> None:
        self._batches.loader.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._batches.loader)

    def __iter__(self) -> Iterator[list[int]]:
        self._batches.start_epoch()
        for number in range(len(self)):
            if not self._batches.remain:  # a state was loaded in mid-epoch
                break
            yield [number]
        self._batches.end_epoch()


class PreparedLoader(DataLoaderShard):  # type: ignore[misc] # Accelerate has no types
    """A `headrace.Loader` as Accelerate's own data loader; see `prepare`."""

    def __init__(self, loader: Loader, *, device: Any, non_blocking: bool) -> None:
        batches = NumberedBatches(loader)
        super().__init__(
            batches,
            device=device,
            batch_sampler=BatchNumbers(batches),
            collate_fn=_only,
            iteration=loader.epoch,
            # Accelerate would cut the repeats off the end, but ranks have them in other places: batch["_repeat"].
            _drop_last=True,
            _non_blocking=non_blocking,
        )
        self._batches = batches
        self._is_accelerate_prepared = True  # Accelerate must not divide it again
        self.use_stateful_dataloader = True  # `save_state` saves its state_dict

    @property
    def loader(self) -> Loader:
        """The loader that was prepared."""
        return self._batches.loader

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state for the batches that the training loop has received."""
        return self._batches.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next iteration continue after the samples of the state."""
        self._batches.start_epoch()
        self.loader.load_state_dict(state_dict)
        self.iteration = self.loader.epoch


def _only(batches: list[Any]) -> Any:
    (batch,) = batches
    return batch
