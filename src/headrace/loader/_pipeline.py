# SPDX-License-Identifier: Apache-2.0
"""One epoch under way: batches submitted ahead of the trainer, finished in the order in which they are supplied."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from headrace.errors import EngineClosed
from headrace.loader._wait import Stopped, StopSign, check, wait_for
from headrace.loader.batch._finish import Finisher
from headrace.loader.device._transfer import Arriving, Transfer
from headrace.loader.order._order import EpochBatches
from headrace.loader.pixels._engine import PixelSource, Samples
from headrace.loader.pixels._errors import Draft
from headrace.records.index.gather import Gather


class Supply(Protocol):
    """Gives the drafts of one epoch in the order in which the trainer gets them. For one thread at a time."""

    def __len__(self) -> int: ...

    def next(self, stop: StopSign) -> Draft:
        """Wait for the next draft's pixels; Stopped if nobody wants them any more. Asked for `len` times at most."""
        ...

    def abandon(self) -> None:
        """Let go of what is under way. Waits for nothing, so finalizers may call it."""
        ...

    def close(self) -> None:
        """Wait for the end of whatever works for it, after it was abandoned."""
        ...


class HostSupply:
    """All batches from this process's own source, from the head of the epoch to its end.

    At most `ahead` batches are with the source at a time, so memory is bounded however slow the trainer is.
    """

    def __init__(self, batches: EpochBatches, gather: Gather, source: PixelSource, *, ahead: int) -> None:
        self._batches, self._gather, self._source = batches, gather, source
        self._ahead = ahead
        self._submitted = 0
        self._drafts: deque[Draft] = deque()

    def __len__(self) -> int:
        return len(self._batches)

    def next(self, stop: StopSign) -> Draft:
        self._submit(stop)
        try:
            draft = self._drafts.popleft()
        except IndexError:
            raise Stopped from None  # another thread has just abandoned it
        wait_for(draft.batch, stop)
        self._submit(stop)
        return draft

    def _submit(self, stop: StopSign) -> None:
        while len(self._drafts) < self._ahead and self._submitted < len(self._batches):
            check(stop)
            self._drafts.append(submit(self._batches, self._submitted, self._gather, self._source))
            self._submitted += 1

    def abandon(self) -> None:
        self._drafts.clear()

    def close(self) -> None:
        pass


def submit(batches: EpochBatches, number: int, gather: Gather, source: PixelSource) -> Draft:
    """Let a source begin with a batch."""
    rows, repeat = samples_of(batches, number, gather)
    return Draft(batches.epoch, rows, repeat, source.submit(rows, batches.epoch))


def samples_of(batches: EpochBatches, number: int, gather: Gather) -> Samples:
    """Say which samples a batch has."""
    positions, repeat = batches.batch(number)
    return gather.rows(positions), repeat


class Pipeline:
    """Gives the batches of one epoch, one by one. Used by one thread at a time; `stop` may be set by any."""

    def __init__(self, supply: Supply, source: PixelSource, finisher: Finisher, transfer: Transfer) -> None:
        self._supply, self._source = supply, source
        self._finisher, self._transfer = finisher, transfer
        self.stop = StopSign()

    def __len__(self) -> int:
        return len(self._supply)

    def next(self) -> Arriving:
        """Wait for the next batch, finish it and begin to bring it to the device. Asked for `len` times at most."""
        try:
            draft = self._supply.next(self.stop)
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

    def abandon(self) -> None:
        """Let go of what is under way: nobody will ask for it. Waits for nothing, so finalizers may call it."""
        self.stop.set()
        self._supply.abandon()

    def close(self) -> None:
        """Abandon what is under way, and wait for the end of whatever worked on it."""
        self.abandon()
        self._supply.close()
