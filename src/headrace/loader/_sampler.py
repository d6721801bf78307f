# SPDX-License-Identifier: Apache-2.0
"""`Loader.sampler` and `batch_sampler`: what trainers read of a loader, and where they set its epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

from headrace.loader.order._order import EpochBatches


class EpochSampler:
    """The samples of this rank in the epoch that the next iteration starts, as positions in `Loader.dataset`.

    It is what `torch.utils.data.DataLoader.sampler` is: trainers call its `set_epoch`. It is for reading only. Samples
    that fill the last batch, so that all ranks have the same number, are included. With an offload worker, the samples
    are the same, but their order may be another one.
    """

    def __init__(self, batches: Callable[[], EpochBatches], set_epoch: Callable[[int], None]) -> None:
        self._batches, self._set_epoch = batches, set_epoch

    def set_epoch(self, epoch: int) -> None:
        """Do what `Loader.set_epoch` does."""
        self._set_epoch(epoch)

    def __len__(self) -> int:
        """Return the number of samples of this rank in a complete epoch."""
        plan = self._batches().plan
        full, rest = divmod(plan.n, plan.batch_size * plan.world_size)
        return full * plan.batch_size + (0 if plan.drop_last else -(-rest // plan.world_size))

    def __iter__(self) -> Iterator[int]:
        batches = self._batches()
        for number in range(len(batches)):
            yield from batches.batch(number)[0].tolist()


class EpochBatchSampler:
    """What trainers read of a batch sampler: sizes, the sampler, and `set_epoch`.

    It cannot be iterated over. A library that does so would build a DataLoader from it and from the dataset, so its
    batches would lack the transforms of the loader.
    """

    def __init__(self, sampler: EpochSampler, batch_size: int, length: int, *, drop_last: bool) -> None:
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last
        self._length = length

    def set_epoch(self, epoch: int) -> None:
        """Do what `Loader.set_epoch` does."""
        self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        """Return the number of batches of this rank in a complete epoch."""
        return self._length

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "the batch_sampler of a headrace.Loader cannot be iterated over: batches made from it would lack the "
            "loader's transforms. Iterate over the loader. To continue in mid-epoch, as skip_first_batches "
            "does, call loader.load_state_dict or loader.skip_batches, or use "
            "headrace.integrations.accelerate.prepare(loader, accelerator). loader.sampler lists the samples"
        )
