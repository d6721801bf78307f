# SPDX-License-Identifier: Apache-2.0
"""`Loader.sampler`: what trainers read of a loader to set its epoch, and the samples of a rank in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.loader.order._order import EpochBatches


class EpochSampler:
    """The samples of this rank in the epoch that the next iteration starts, as positions in `Loader.dataset`.

    It is what `torch.utils.data.DataLoader.sampler` is: trainers call its `set_epoch`. It is for reading only. Samples
    that fill the last batch, so that all ranks have the same number, are included.
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
