# SPDX-License-Identifier: Apache-2.0
"""What `iter(loader)` gives: the batches of one epoch, and an end to everything however the loop is left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from headrace.errors import LoaderError
from headrace.loader._feed import Feed
from headrace.loader._wait import Stopped, end_when_dropped
from headrace.loader.batch._stats import Meters


class LoaderIterator(Iterator[Any]):
    """Iterates once over the rest of an epoch.

    It ends, and all that it has under way with it, when it is exhausted, closed, dropped, when it raises, and when its
    loader begins another iteration or is closed.
    """

    def __init__(self, owner: Any, feed: Feed, meters: Meters, *, length: int, yielded: Callable[[int], None]) -> None:
        # The owner is kept: in `for batch in Loader(…)` nobody else does.
        self._owner, self._feed, self._meters = owner, feed, meters
        self._length, self._yielded = length, yielded
        self._given = 0
        self._ended_by: str | None = None
        self._process = os.getpid()
        self._end = end_when_dropped(self, feed.stop)
        self._last = time.perf_counter()  # when the iteration began, then when its last batch was given

    def __iter__(self) -> LoaderIterator:
        return self

    def __len__(self) -> int:
        """How many batches are still to come."""
        return self._length - self._given

    def __next__(self) -> Any:
        if self._process != os.getpid():
            raise LoaderError("this iteration began before the process was forked: begin a new one in the child")
        if self._given == self._length:
            raise StopIteration
        if self._ended_by is not None:
            raise LoaderError(f"this iteration has ended: {self._ended_by}; begin a new one")
        begun = time.perf_counter()
        if self._given:
            self._meters.steps.append(begun - self._last)
        try:
            batch = self._feed.next()
        except Stopped:
            # Another thread ended it, which says why; or the interpreter is about to end.
            self.close()
            raise LoaderError(f"this iteration has ended: {self._ended_by}; begin a new one") from None
        except BaseException:
            self.close("an error was raised")
            raise
        now = time.perf_counter()
        self._meters.wait_seconds += now - begun
        self._meters.wall_seconds += now - self._last
        self._last = now
        self._meters.batches += 1
        self._given += 1
        self._yielded(self._given)
        if self._given == self._length:
            self.close("it is exhausted")
        return batch

    @property
    def active(self) -> bool:
        """Whether there is more to come."""
        return self._ended_by is None and self._given < self._length

    @property
    def ready(self) -> int:
        """Batches that wait for the trainer."""
        return self._feed.ready

    def close(self, why: str = "it was closed") -> None:
        """End the iteration; what is under way is given up."""
        if self._ended_by is None and self._process == os.getpid():
            self._ended_by = why
            self._feed.close()
            self._end.detach()
