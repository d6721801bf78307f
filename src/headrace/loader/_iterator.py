# SPDX-License-Identifier: Apache-2.0
"""The iterator of a loader: the batches of one epoch. Everything ends however the loop is left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from headrace.errors import LoaderError
from headrace.loader._pipeline import Feed
from headrace.loader._state import EpochCursor
from headrace.loader._threads import Stopped, call_when_dropped
from headrace.loader.batch._stats import Meters


class LoaderIterator(Iterator[Any]):
    """Iterates once over the rest of an epoch.

    It ends when it is exhausted, closed or dropped, when it raises, and when its loader is closed or starts another
    iteration. All its work in progress ends with it.
    """

    def __init__(self, loader: Any, feed: Feed, meters: Meters, cursor: EpochCursor, *, length: int) -> None:
        # Keep the loader alive: in `for batch in Loader(…)` nothing else does.
        self._loader, self._feed, self._meters, self._cursor = loader, feed, meters, cursor
        self._length, self._returned = length, 0
        self._ended_by: str | None = None
        self._process = os.getpid()
        self._finalizer = call_when_dropped(self, feed.abandon)
        self._last = time.perf_counter()  # when the iteration started or the last batch was returned

    def __len__(self) -> int:
        """Return how many batches remain."""
        return self._length - self._returned

    def __next__(self) -> Any:
        if self._process != os.getpid():
            raise LoaderError("this iteration started before the process was forked: start a new one in the child")
        if self._returned == self._length:
            raise StopIteration
        if self._ended_by is not None:
            raise self._ended()
        started = time.perf_counter()
        if self._returned:
            self._meters.steps.append(started - self._last)
        try:
            batch = self._feed.next()
        except Stopped:  # another thread closed it, or the interpreter is exiting
            self.close()
            raise self._ended() from None
        except BaseException:
            self.close("an error was raised")
            raise
        now = time.perf_counter()
        self._meters.wait_seconds += now - started
        self._meters.wall_seconds += now - self._last
        self._last = now
        self._meters.batches += 1
        self._returned += 1
        self._cursor.batches = self._returned
        if self._returned == self._length:
            self.close("it is exhausted")
        return batch

    def _ended(self) -> LoaderError:
        return LoaderError(f"this iteration has ended: {self._ended_by}; start a new one")

    @property
    def active(self) -> bool:
        """Whether batches remain."""
        return self._ended_by is None and self._returned < self._length

    @property
    def unused(self) -> bool:
        """Whether it has not returned a batch yet, and its batches can still be replaced."""
        return self.active and not self._returned and self._process == os.getpid()

    def replace(self, feed: Feed, length: int) -> None:
        """Return these batches, after the ones before were closed."""
        self._finalizer.detach()
        self._feed, self._length = feed, length
        self._finalizer = call_when_dropped(self, feed.abandon)

    @property
    def ready(self) -> int:
        """Finished batches that wait for the training loop."""
        return self._feed.ready

    def close(self, why: str = "it was closed") -> None:
        """End the iteration and drop its batches in progress."""
        if self._ended_by is None and self._process == os.getpid():
            self._ended_by = why
            self._feed.close()
            self._finalizer.detach()
