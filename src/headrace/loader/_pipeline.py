# SPDX-License-Identifier: Apache-2.0
"""One epoch under way: batches submitted ahead of the trainer, finished in order."""

from __future__ import annotations

from collections import deque
from typing import Any

from headrace.errors import EngineClosed
from headrace.loader._device import Arriving, Transfer
from headrace.loader._errors import Draft
from headrace.loader._finish import Finisher
from headrace.loader._order import EpochBatches
from headrace.loader._pixels import PixelSource
from headrace.loader._wait import Stopped, StopSign, check, wait_for
from headrace.records._gather import Gather


class Pipeline:
    """Gives the batches of one epoch, one by one. Used by one thread at a time; `stop` may be set by any.

    At most `ahead` batches are with the source at a time, so memory is bounded however slow the trainer is.
    """

    def __init__(
        self,
        batches: EpochBatches,
        gather: Gather,
        source: PixelSource,
        finisher: Finisher,
        transfer: Transfer,
        *,
        ahead: int,
    ) -> None:
        self._batches, self._gather, self._source = batches, gather, source
        self._finisher, self._transfer = finisher, transfer
        self._ahead = ahead
        self._submitted = 0
        self._drafts: deque[Draft] = deque()
        self.stop = StopSign()

    def __len__(self) -> int:
        return len(self._batches)

    def next(self) -> Arriving:
        """Wait for the next batch, finish it and begin to bring it to the device. Asked for `len` times at most."""
        try:
            self._submit()
            draft = self._pop()
            wait_for(draft.batch, self.stop)
            self._submit()
            batch = self._finisher.finish(draft, self._source, self.stop)
        except EngineClosed:
            if self.stop.is_set():
                raise Stopped from None  # the loader was closed, by another thread
            raise
        if not self._transfer.moves:
            batch = self._finisher.per_batch(batch)
        return self._transfer.start(batch, len(draft.rows))

    def hand_over(self, arriving: Arriving) -> Any:
        """Give the trainer its batch, in the trainer's thread: what runs on a device runs in the trainer's stream."""
        batch = self._transfer.finish(arriving)
        self._finisher.meters.samples += arriving.samples
        return self._finisher.per_batch(batch) if self._transfer.moves else batch

    def _submit(self) -> None:
        while len(self._drafts) < self._ahead and self._submitted < len(self._batches):
            check(self.stop)
            positions, repeat = self._batches.batch(self._submitted)
            rows = self._gather.rows(positions)
            epoch = self._batches.epoch
            self._drafts.append(Draft(epoch, rows, repeat, self._source.submit(rows, epoch)))
            self._submitted += 1

    def _pop(self) -> Draft:
        try:
            return self._drafts.popleft()
        except IndexError:
            raise Stopped from None  # another thread has just abandoned it

    def abandon(self) -> None:
        """Let go of what is under way: nobody will ask for it. Waits for nothing, so finalizers may call it."""
        self.stop.set()
        self._drafts.clear()
