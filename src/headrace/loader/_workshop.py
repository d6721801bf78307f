# SPDX-License-Identifier: Apache-2.0
"""What a loader has running in this process: made when first needed, kept between epochs, ended once."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from headrace.errors import LoaderError
from headrace.loader._feed import Feed
from headrace.loader.batch._callables import SampleCallables
from headrace.loader.batch._stats import EngineTotals
from headrace.loader.device._transfer import Transfer
from headrace.loader.pixels._engine import PixelSource


class Closable(Protocol):
    """What a loader has outside of this process, and gives up with it."""

    def close(self) -> None: ...
    def drop(self) -> None: ...


class Workshop:
    """The source of pixels and the threads that go with it. Knows nothing of the loader, so it keeps none alive.

    Threads do not survive a fork. A child that inherits a workshop forgets what was in it, touches none of it, and
    makes its own.
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
        self._totals = EngineTotals()
        self._process = os.getpid()
        self._closed = False
        _open.add(self)

    @property
    def source(self) -> PixelSource:
        """The running source; it is started if it is not."""
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
        """Take care of an epoch's feed: it is closed before the next one is used, and with all else."""
        self._feed = feed
        return feed

    def end_feed(self) -> None:
        """Wait for the end of the last epoch's feed, which may have been left in the middle."""
        if self._process == os.getpid() and self._feed is not None:
            feed, self._feed = self._feed, None
            feed.close()

    def stats(self) -> dict[str, Any]:
        """The source's figures, with those of sources that were closed."""
        source = self._source if self._process == os.getpid() else None
        return self._totals.with_current({} if source is None else source.stats())

    def close(self) -> None:
        """End the threads and give the memory back. Any number of times; nothing in a forked child."""
        if self._process != os.getpid():
            return
        self._closed = True
        self.end_feed()
        source, self._source = self._source, None
        if source is not None:
            self._totals.retire(source.stats())
            source.close()
        self._callables.close()
        self._transfer.close()
        if self._supplier is not None:
            self._supplier.close()

    def drop(self) -> None:
        """Let everything end by itself and wait for nothing: for finalizers, which must not (see `_wait`)."""
        if self._process != os.getpid():
            return
        self._closed = True
        if self._feed is not None:
            self._feed.stop()
        self._feed = self._source = None
        self._callables.drop()
        if self._supplier is not None:
            self._supplier.drop()


_open: weakref.WeakSet[Workshop] = weakref.WeakSet()


def _close_all() -> None:
    for workshop in list(_open):
        workshop.close()


atexit.register(_close_all)
