# SPDX-License-Identifier: Apache-2.0
"""A feed that finishes batches in a thread of its own, one batch ahead of the training loop.

It is used if user functions or a device are involved. Otherwise finishing a batch takes microseconds, and the
`Pipeline` itself is the feed.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import Any, TypeAlias, TypeVar

from headrace.loader._pipeline import Pipeline
from headrace.loader._threads import SLICE_SECONDS, Stopped, StopSign, call_when_dropped, check, start_thread
from headrace.loader.device._transfer import Arriving

_Result: TypeAlias = Arriving | BaseException
T = TypeVar("T")


class ThreadFeed:
    """Finishes batches in a thread. The thread refers to the pipeline and not to this object, so that it can end."""

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
        _get(self._free, self._stop)
        self._results.put(result)

    def take(self) -> _Result:
        result = _get(self._results, self._stop)
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


def _get(items: queue.SimpleQueue[T], stop: StopSign) -> T:
    while True:
        check(stop)
        with contextlib.suppress(queue.Empty):
            return items.get(timeout=SLICE_SECONDS)


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
