# SPDX-License-Identifier: Apache-2.0
"""Two ways from the pipeline to the trainer: in the trainer's own thread, or through a thread that works ahead.

Without functions of the user's and without a device, finishing a batch takes microseconds and is done when the
trainer asks. Otherwise a thread does it, one batch ahead.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Protocol, TypeAlias

from headrace.loader._device import Arriving
from headrace.loader._pipeline import Pipeline
from headrace.loader._wait import SLICE_SECONDS, Stopped, StopSign, check

Result: TypeAlias = Arriving | BaseException


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
        self._thread = threading.Thread(target=_work, args=(pipeline, self._slot), name="headrace-batch")
        self._thread.start()

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
        if self._thread is not threading.current_thread():  # a function that the thread calls may close the loader
            self._thread.join()
        self._slot.clear()
        self._pipeline.close()


class _Slot:
    """Room for one result between two threads; both stop waiting when there is nothing more to wait for."""

    def __init__(self, stop: StopSign) -> None:
        self._stop = stop
        self._changed = threading.Condition()
        self._results: list[Result] = []

    @property
    def full(self) -> bool:
        return bool(self._results)

    def put(self, result: Result) -> None:
        with self._changed:
            while self.full:
                self._wait()
            self._results.append(result)
            self._changed.notify_all()

    def take(self) -> Result:
        with self._changed:
            while not self.full:
                self._wait()
            self._changed.notify_all()
            return self._results.pop()

    def _wait(self) -> None:
        check(self._stop)
        self._changed.wait(SLICE_SECONDS)

    def wake(self) -> None:
        """Let those who wait look at the sign now, not in a while."""
        with self._changed:
            self._changed.notify_all()

    def clear(self) -> None:
        """Let go of what nobody has taken."""
        self._results.clear()


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
