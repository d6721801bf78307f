# SPDX-License-Identifier: Apache-2.0
"""Fetch many pieces of objects at once: neighbors in one request, large pieces in several, many requests in flight.

One thread per process runs an event loop for all of them, so no thread waits for a single request. Everything that the
loop shares is used only in that thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.errors import StoreError
from headrace.storage._objects import MAX_TRIES, REPLACED, Objects, as_store_error, can_retry, pause_after
from headrace.storage._url import join_url

MAX_IN_FLIGHT = 64
"""Requests in flight. With 20 ms each and 1 MB per request, this is 3 GB/s."""
MAX_GAP = 64 << 10
"""Neighbors are fetched together if fewer bytes lie between them: as many as a fast network delivers in 0.1 ms."""
MAX_WASTE = 0.03
"""At most this share of the wanted bytes is fetched in vain between neighbors."""
MAX_REQUEST = 8 << 20
"""Larger pieces are fetched by several requests at the same time."""


class ObjectRange(NamedTuple):
    """Bytes of an object, and the position that they get in the memory of the caller."""

    name: str
    start: int
    n_bytes: int
    to: int


class RangePart(NamedTuple):
    """A part of a piece within a request: position in the object, length, position in memory."""

    piece: int
    start: int
    n_bytes: int
    to: int


@dataclass(slots=True)
class Request:
    """One range of an object and the parts that it contains, in order."""

    name: str
    start: int
    end: int
    parts: list[RangePart]


@dataclass(slots=True)
class StoreCounts:
    """What has been requested from a store since the dataset was opened. Written by the event loop's thread only."""

    requests: int = 0
    retries: int = 0
    bytes: int = 0


def plan_requests(pieces: Sequence[ObjectRange]) -> list[Request]:
    """Return the requests for some pieces, in the order of objects and offsets."""
    spare = MAX_WASTE * sum(piece.n_bytes for piece in pieces)
    requests: list[Request] = []
    for number in sorted(range(len(pieces)), key=lambda number: pieces[number][:2]):
        piece = pieces[number]
        end = piece.start + piece.n_bytes
        last = requests[-1] if requests else None
        if last is not None and last.name == piece.name and end - last.start <= MAX_REQUEST:
            gap = max(0, piece.start - last.end)
            if gap <= MAX_GAP and gap <= spare:
                spare -= gap
                last.end = max(last.end, end)
                last.parts.append(RangePart(number, piece.start, piece.n_bytes, piece.to))
                continue
        for start in range(piece.start, end, MAX_REQUEST):
            n_bytes = min(MAX_REQUEST, end - start)
            part = RangePart(number, start, n_bytes, piece.to + start - piece.start)
            requests.append(Request(piece.name, start, start + n_bytes, [part]))
    return requests


class Fetcher:
    """Fetches pieces of the objects of one dataset, in the event loop."""

    def __init__(self, objects: Objects, counts: StoreCounts) -> None:
        self._objects, self._counts = objects, counts
        self._etags: dict[str, str | None] = {}
        self._room: asyncio.Semaphore | None = None

    async def fetch(
        self, pieces: Sequence[ObjectRange], write: Callable[[RangePart, memoryview], None]
    ) -> dict[int, StoreError]:
        """Fetch ranges and pass their parts to `write`. Return the error of each range that could not be fetched."""
        failed: dict[int, StoreError] = {}

        async def one(request: Request) -> None:
            try:
                content = await self._get(request)
                for part in request.parts:
                    at = part.start - request.start
                    write(part, content[at : at + part.n_bytes])
            except StoreError as error:
                failed.update({part.piece: error for part in request.parts})

        await asyncio.gather(*map(one, plan_requests(pieces)))
        return failed

    async def _get(self, request: Request) -> memoryview:
        self._room = self._room or asyncio.Semaphore(MAX_IN_FLIGHT)
        for attempt in range(MAX_TRIES):
            async with self._room:
                self._counts.requests += 1
                try:
                    return await self._try(request)
                except Exception as error:  # noqa: BLE001 - sorted by `can_retry`
                    failure = error
            if not can_retry(failure):
                break
            self._counts.retries += 1
            await asyncio.sleep(pause_after(attempt))
        raise as_store_error(join_url(self._objects.url, request.name), failure)

    async def _try(self, request: Request) -> memoryview:
        known = self._etags.get(request.name)
        content, etag = await self._objects.get_range(request.name, request.start, request.end, known)
        # The first answer names the version of the object. A later one must not be of another version.
        if self._etags.setdefault(request.name, etag) != etag:
            raise StoreError(f"{join_url(self._objects.url, request.name)}: {REPLACED}")
        self._counts.bytes += len(content)
        return memoryview(content)


_loop: asyncio.AbstractEventLoop | None = None
_process = 0
_start = threading.Lock()


def run_in_loop(work: Coroutine[Any, Any, None]) -> None:
    """Start a coroutine in the event loop of this process. It must not raise. Returns at once."""
    asyncio.run_coroutine_threadsafe(work, _event_loop())


def call_in_loop(function: Callable[..., None], *arguments: Any) -> None:
    """Call a function in the event loop's thread, soon. Finalizers may call it."""
    loop = _loop
    if loop is not None and _process == os.getpid():
        loop.call_soon_threadsafe(function, *arguments)


def _event_loop() -> asyncio.AbstractEventLoop:
    global _loop, _process
    if _loop is None or _process != os.getpid():
        with _start:
            if _loop is None or _process != os.getpid():
                loop = asyncio.new_event_loop()
                threading.Thread(target=loop.run_forever, name="headrace-store", daemon=True).start()
                _loop, _process = loop, os.getpid()
    return _loop


def fetch_now(objects: Objects, pieces: Iterable[ObjectRange], write: Callable[[RangePart, memoryview], None]) -> None:
    """Fetch pieces and wait for them, in the calling thread.

    Raises:
        StoreError: One of them cannot be fetched.

    """
    wanted = list(pieces)
    fetcher = Fetcher(objects, StoreCounts())
    failed = asyncio.run_coroutine_threadsafe(fetcher.fetch(wanted, write), _event_loop()).result()
    if failed:
        raise failed[min(failed)]
