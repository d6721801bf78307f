# SPDX-License-Identifier: Apache-2.0
"""What a loader has running in this process: made when first needed, kept between epochs, ended once."""

from __future__ import annotations

import os
from collections.abc import Callable

from headrace.errors import LoaderError
from headrace.loader._callables import SampleCallables
from headrace.loader._device import Transfer
from headrace.loader._pixels import PixelSource
from headrace.loader._stats import EngineTotals


class Workshop:
    """The source of pixels and the threads that go with it. Knows nothing of the loader, so it keeps none alive.

    Threads do not survive a fork. A child that inherits a workshop forgets what was in it, touches none of it, and
    makes its own.
    """

    def __init__(self, make_source: Callable[[], PixelSource], callables: SampleCallables, transfer: Transfer) -> None:
        self._make_source, self._callables, self._transfer = make_source, callables, transfer
        self._source: PixelSource | None = None
        self._totals = EngineTotals()
        self._process = os.getpid()
        self._closed = False

    @property
    def source(self) -> PixelSource:
        """The running source; it is started if it is not."""
        if self._closed:
            raise LoaderError("the loader is closed: make a new one")
        if self._process != os.getpid():
            self._process = os.getpid()
            self._source = None
            self._callables.forget()
            self._transfer.forget()
        if self._source is None:
            self._source = self._make_source()
        return self._source

    def stats(self) -> dict[str, float]:
        """The source's figures, with those of sources that were closed."""
        running = self._source is not None and self._process == os.getpid()
        return self._totals.with_current(self._source.stats() if running and self._source is not None else {})

    def close(self) -> None:
        """End the threads and give the memory back. Any number of times, from any thread; nothing in a forked child."""
        if self._process != os.getpid():
            return
        self._closed = True
        source, self._source = self._source, None
        if source is not None:
            self._totals.retire(source.stats())
            source.close()
        self._callables.close()
        self._transfer.close()
