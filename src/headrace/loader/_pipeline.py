# SPDX-License-Identifier: Apache-2.0
"""One epoch in progress: batches are submitted ahead of the training loop and finished in order."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.errors import EngineClosed
from headrace.loader._threads import Stopped, StopSign, call_when_dropped, check, start_thread, take_item, wait_for
from headrace.loader.batch._finish import Finisher
from headrace.loader.device._transfer import Arriving, Transfer
from headrace.loader.order._order import Positions
from headrace.loader.pixels._engine import PixelSource, Samples
from headrace.loader.pixels._errors import Draft
from headrace.loader.sampling._batches import SampledBatches
from headrace.records.index.gather import Gather


class EpochOrder(Protocol):
    """Which samples the batches of an epoch have: `EpochBatches`, or those of a sampler. For one thread at a time."""

    epoch: int

    def __len__(self) -> int: ...
    def batch(self, g: int) -> tuple[Positions, npt.NDArray[np.bool_] | None]: ...


_Result: TypeAlias = Arriving | BaseException


class Supply(Protocol):
    """Returns the drafts of one epoch in the order of training. For one thread at a time."""

    def __len__(self) -> int: ...

    def next(self, stop: StopSign) -> Draft:
        """Wait for the pixels of the next draft. Called at most `len` times. Raises Stopped if `stop` is set."""

    def abandon(self) -> None:
        """Drop the drafts in progress. Does not wait, so finalizers may call it."""

    def close(self) -> None:
        """Wait for the threads of the supply to end, after `abandon`."""


class HostSupply:
    """Makes all batches with this process's own source.

    At most `ahead` batches are in progress, so memory stays bounded however slow the training is.
    """

    def __init__(self, batches: EpochOrder, gather: Gather, source: PixelSource, *, ahead: int) -> None:
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
            raise Stopped from None  # another thread called `abandon`
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


def submit(batches: EpochOrder, number: int, gather: Gather, source: PixelSource) -> Draft:
    """Submit a batch to a source. Returns at once."""
    rows, repeat = samples_of(batches, number, gather)
    shape = batches.shape(number) if isinstance(batches, SampledBatches) else None
    return Draft(batches.epoch, rows, repeat, source.submit(rows, batches.epoch), shape)


def samples_of(batches: EpochOrder, number: int, gather: Gather) -> Samples:
    """Return the samples of a batch."""
    positions, repeat = batches.batch(number)
    return gather.rows(positions), repeat


class Pipeline:
    """Returns the finished batches of one epoch, in the calling thread.

    For one thread at a time; any thread may call `abandon`. A `ThreadFeed` calls `prepare` in a thread of its own and
    `hand_over` in the thread of the training loop.
    """

    ready = 0  # finished batches that wait

    def __init__(
        self,
        supply: Supply,
        source: PixelSource,
        finisher: Finisher,
        transfer: Transfer | None,
        on_device: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Create it. `transfer` is None if batches stay in host memory.

        `on_device` is entered while a batch is finished: if its pixels are on a device already, further operations
        on them must run on the right stream.
        """
        self._supply, self._source = supply, source
        self._finisher, self._transfer, self._on_device = finisher, transfer, on_device
        self.stop = StopSign()

    def __len__(self) -> int:
        return len(self._supply)

    def next(self) -> Any:
        """Wait for the next batch and return it. Called at most `len` times."""
        return self.hand_over(self.prepare())

    def prepare(self) -> Arriving:
        """Wait for the next batch, finish it and start its copy to the device."""
        try:
            draft = self._supply.next(self.stop)
            with self._on_device():
                batch = self._finisher.finish(draft, self._source, self.stop)
        except EngineClosed:
            if self.stop.is_set():
                raise Stopped from None  # another thread closed the loader
            raise
        if self._transfer is None:
            return Arriving(self._finisher.per_batch(batch), len(draft.rows))
        if not self._transfer.moves:
            batch = self._finisher.per_batch(batch)
        return self._transfer.start(batch, len(draft.rows))

    def hand_over(self, arriving: Arriving) -> Any:
        """Return a prepared batch. Called in the thread of the training loop, so functions use its CUDA stream."""
        self._finisher.meters.samples += arriving.samples
        if self._transfer is None:
            return arriving.batch
        batch = self._transfer.finish(arriving)
        return self._finisher.per_batch(batch) if self._transfer.moves else batch

    def abandon(self) -> None:
        """Drop the batches in progress. Does not wait, so finalizers may call it."""
        self.stop.set()
        self._supply.abandon()

    def close(self) -> None:
        """Drop the batches in progress and wait until nothing works on them."""
        self.abandon()
        self._supply.close()


class ThreadFeed:
    """Finishes batches in a thread, one ahead of the training loop.

    It is used if user functions or a device are involved. Otherwise finishing a batch takes microseconds. The thread
    refers to the pipeline and not to this object, so that it can end.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._slot = _Slot(pipeline.stop)
        # Ctrl-C may arrive after the thread started and before the caller has this object.
        self._finalizer = call_when_dropped(self, pipeline.abandon)
        self._thread: threading.Thread | None = start_thread(_work, (pipeline, self._slot), "headrace-batch")

    @property
    def ready(self) -> int:
        return int(self._slot.full)

    def next(self) -> Any:
        result = self._slot.take()
        if isinstance(result, BaseException):
            try:
                raise result
            finally:
                del result  # its traceback refers to this frame: avoid a reference cycle
        return self._pipeline.hand_over(result)

    def abandon(self) -> None:
        self._pipeline.abandon()

    def close(self) -> None:
        self._pipeline.abandon()
        self._slot.wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():  # a user function may close the loader
            thread.join()
            self._thread = None
        self._slot.clear()
        self._pipeline.close()
        self._finalizer.detach()


Feed: TypeAlias = Pipeline | ThreadFeed
"""What returns finished batches to the training loop."""


class _Slot:
    """Holds one result between two threads. Both stop waiting when the stop sign is set.

    It consists of queues that are implemented in C. The thread of the training loop can be interrupted anywhere, so it
    must not hold a lock in Python code: `threading.Condition` can keep its lock if an interrupt arrives on entry.
    """

    def __init__(self, stop: StopSign) -> None:
        self._stop = stop
        self._results: queue.SimpleQueue[_Result] = queue.SimpleQueue()
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._free.put(None)

    @property
    def full(self) -> bool:
        return not self._results.empty()

    def put(self, result: _Result) -> None:
        take_item(self._free, self._stop)
        self._results.put(result)

    def take(self) -> _Result:
        result = take_item(self._results, self._stop)
        self._free.put(None)
        return result

    def wake(self) -> None:
        """Let a waiting `put` check the stop sign now."""
        self._free.put(None)

    def clear(self) -> None:
        """Drop results that were not taken."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._results.get_nowait()


def _work(pipeline: Pipeline, slot: _Slot) -> None:
    try:
        for _ in range(len(pipeline)):
            slot.put(pipeline.prepare())
    except Stopped:
        pass
    except BaseException as error:  # noqa: BLE001 - the training loop's thread raises it
        with contextlib.suppress(Stopped):
            slot.put(error)
    if pipeline.stop.is_set():
        pipeline.abandon()  # drafts that were submitted after the stop
        slot.clear()
