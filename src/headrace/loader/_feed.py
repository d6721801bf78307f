# SPDX-License-Identifier: Apache-2.0
"""Two ways from the pipeline to the trainer: in the trainer's own thread, or through a thread that works ahead.

Without functions of the user's and without a device, finishing a batch takes microseconds and is done when the
trainer asks. Otherwise a thread does it, one batch ahead.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import Any, Protocol, TypeAlias, TypeVar

from headrace.loader._pipeline import Pipeline
from headrace.loader._threads import start_thread
from headrace.loader._wait import SLICE_SECONDS, Stopped, StopSign, check, end_when_dropped
from headrace.loader.device._transfer import Arriving

Result: TypeAlias = Arriving | BaseException
T = TypeVar("T")


class Feed(Protocol):
    """Gives finished batches to the trainer."""

    @property
    def ready(self) -> int: ...
    def next(self) -> Any: ...

    def stop(self) -> None:
        """Let what is under way end, without waiting for it; finalizers call this."""
        ...

    def close(self) -> None:
        """Stop, and wait for the end."""
        ...


class InlineFeed:
    """Finishes batches in the trainer's thread."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    @property
    def ready(self) -> int:
        return 0

    def next(self) -> Any:
        return self._pipeline.hand_over(self._pipeline.next())

    def stop(self) -> None:
        self._pipeline.abandon()

    def close(self) -> None:
        self._pipeline.close()


class ThreadFeed:
    """Finishes batches in a thread of its own, which knows the pipeline and not this object: no cycle keeps it."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._slot = _Slot(pipeline.stop)
        # An interrupt may come after the thread was started and before anyone else knows of it.
        self._end = end_when_dropped(self, pipeline.abandon)
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
                del result  # its traceback has this frame: a ring that would keep all it knows alive
        return self._pipeline.hand_over(result)

    def stop(self) -> None:
        self._pipeline.abandon()

    def close(self) -> None:
        self._pipeline.abandon()
        self._slot.wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():  # a function of the user's may close us
            thread.join()
            self._thread = None
        self._slot.clear()
        self._pipeline.close()
        self._end.detach()


class _Slot:
    """Room for one result between two threads; both stop waiting when there is nothing more to wait for.

    Made of queues that are written in C. The trainer's thread, which Ctrl-C interrupts anywhere, must not hold a lock
    of Python code: `threading.Condition` may keep its lock if the interrupt comes while it is being entered.
    """

    def __init__(self, stop: StopSign) -> None:
        self._stop = stop
        self._results: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._room.put(None)

    @property
    def full(self) -> bool:
        return not self._results.empty()

    def put(self, result: Result) -> None:
        _get(self._room, self._stop)
        self._results.put(result)

    def take(self) -> Result:
        result = _get(self._results, self._stop)
        self._room.put(None)
        return result

    def wake(self) -> None:
        """Let the thread that waits for room look at the sign now, not in a while."""
        self._room.put(None)

    def clear(self) -> None:
        """Let go of what nobody has taken."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._results.get_nowait()


def _get(items: queue.SimpleQueue[T], stop: StopSign) -> T:
    while True:
        check(stop)
        with contextlib.suppress(queue.Empty):
            return items.get(timeout=SLICE_SECONDS)


def _work(pipeline: Pipeline, slot: _Slot) -> None:
    try:
        for _ in range(len(pipeline)):
            slot.put(pipeline.next())
    except Stopped:
        pass
    except BaseException as error:  # noqa: BLE001 - the trainer's thread raises it
        with contextlib.suppress(Stopped):
            slot.put(error)
    if pipeline.stop.is_set():
        pipeline.abandon()  # what was begun since it was stopped
        slot.clear()
