# SPDX-License-Identifier: Apache-2.0
"""The threads and files that a loader has open: created when first needed, kept between epochs, closed once."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from headrace.errors import LoaderError
from headrace.loader._feed import Feed
from headrace.loader.batch._callables import SampleCallables
from headrace.loader.batch._stats import final_counts
from headrace.loader.device._transfer import Transfer
from headrace.loader.pixels._engine import PixelSource


class Closable(Protocol):
    """Something to close with the loader. `drop` does the same without waiting, for finalizers."""

    def close(self) -> None: ...
    def drop(self) -> None: ...


class Workshop:
    """The pixel source and its threads. It does not refer to the loader, so it does not keep it alive.

    Threads do not survive a fork. A forked child forgets what it inherited, without touching it, and makes its own.
    """

    def __init__(
        self,
        make_source: Callable[[], PixelSource],
        callables: SampleCallables,
        transfer: Transfer,
        supplier: Closable | None = None,
    ) -> None:
        self._make_source, self._callables, self._transfer, self._supplier = make_source, callables, transfer, supplier
        self._source: PixelSource | None = None
        self._feed: Feed | None = None
        self._final_stats: dict[str, Any] = {}
        self._process = os.getpid()
        self._closed = False
        _all_workshops.add(self)

    @property
    def source(self) -> PixelSource:
        """The running source; it is started if necessary."""
        if self._closed:
            raise LoaderError("the loader is closed: make a new one")
        if self._process != os.getpid():
            self._process = os.getpid()
            self._source = self._feed = None
            self._callables.drop()
            self._transfer.forget()
        if self._source is None:
            self._source = self._make_source()
        return self._source

    def use(self, feed: Feed) -> Feed:
        """Keep the feed of an epoch, to close it before the next one starts."""
        self._feed = feed
        return feed

    def end_feed(self) -> None:
        """Close the feed of the last epoch and wait for its end."""
        if self._process == os.getpid() and self._feed is not None:
            feed, self._feed = self._feed, None
            feed.close()

    def stats(self) -> dict[str, Any]:
        """Return the counters of the source, also after it was closed."""
        source = self._source if self._process == os.getpid() else None
        return self._final_stats if source is None else source.stats()

    def close(self) -> None:
        """End the threads and free the memory. Can be called again; does nothing in a forked child."""
        if self._process != os.getpid():
            return
        self._closed = True
        self.end_feed()
        source, self._source = self._source, None
        if source is not None:
            self._final_stats = final_counts(source.stats())
            source.close()
        self._callables.close()
        self._transfer.close()
        if self._supplier is not None:
            self._supplier.close()

    def drop(self) -> None:
        """Let everything end without waiting, for finalizers (see `_threads`)."""
        if self._process != os.getpid():
            return
        self._closed = True
        if self._feed is not None:
            self._feed.abandon()
        self._feed = self._source = None
        self._callables.drop()
        if self._supplier is not None:
            self._supplier.drop()


_all_workshops: weakref.WeakSet[Workshop] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for workshop in list(_all_workshops):
        workshop.close()
